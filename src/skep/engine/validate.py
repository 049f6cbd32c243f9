"""Checks of all requests before they enter the engine, so that a bad one cannot spoil a store call that it shares with others.

A bad request raises a `SkepError`. A bad message of a push gets a refused result with its own code, and the rest of its batch is
refused with it (BATCH_REFUSED), since a batch is stored whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.config import Limits
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    SEALED_ERROR,
    SEALED_TYPE,
    NewMessage,
    Outcome,
    PopRequest,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    Renewal,
    Retry,
    Settlement,
    Start,
    StartMode,
    Token,
)
from skep.model.queue_settings import LEASE_SECONDS_MAX, PRIORITY_MAX, PRIORITY_MIN

NAME_CHARACTERS = 255
TRANSACTION_ID_CHARACTERS = 255
CONTENT_TYPE_CHARACTERS = 255
TOKEN_BYTES = 16
ID_BYTES = 16
SEQ_MAX = 2**63 - 1
INSTANT_MAX = 253_402_300_799_999_999
"""The last microsecond of the year 9999: every date type on the way can hold it."""
PARTITIONS_MAX = 1_000_000

NO_NAMES = (".", "..")
"""Names that lead elsewhere in the path of a URL."""
# OpenAPI states these patterns, too, without surrogates: half a pair is no character, and only Python texts can have it.
_CONTROL = r"\x00-\x1f\x7f-\x9f"
FIT_PATTERN = f"^[^{_CONTROL}]*$"
STORABLE_PATTERN = r"^[^\x00]*$"

_UNFIT = re.compile(rf"[{_CONTROL}\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_JSON = msgspec.json.Decoder(msgspec.Raw)
_HEADERS = msgspec.json.Decoder(dict[str, str])


class Weight(Struct, frozen=True):
    """The size of a checked push, its queue if it has only one, and the earliest ``deliver_at`` of its messages."""

    size_bytes: int
    queue: QueueKey | None
    deliver_at: Instant | None


class MessageRefusal(NamedTuple):
    """Why one message of a push cannot be stored."""

    code: Code
    reason: str


def is_fit(text: str) -> bool:
    """Whether ``text`` may name something: 1 to 255 characters, no control characters, no lone surrogates."""
    # isprintable is one fast pass and nearly always true. Other texts, with unusual spaces for example, are searched.
    return 0 < len(text) <= NAME_CHARACTERS and (text.isprintable() or _UNFIT.search(text) is None)


def is_name(text: str) -> bool:
    """Whether ``text`` may name a queue, tenant, group, namespace or task: as `is_fit`, without `NO_NAMES`."""
    return (
        0 < len(text) <= NAME_CHARACTERS
        and (text.isprintable() or _UNFIT.search(text) is None)
        and text not in NO_NAMES  # `is_fit` is spelled out: a call less for each name
    )


def check_name(name: str, what: str = "queue") -> None:
    """Raise unless ``name`` may name a queue, or what ``what`` says."""
    if not is_name(name):
        raise SkepError(Code.INVALID_NAME, _name_rule(what))


def _name_rule(what: str) -> str:
    return f"the {what} name must have 1 to {NAME_CHARACTERS} characters, none of them control characters, and not be '.' or '..'"


def check_key(key: QueueKey) -> None:
    """Check a queue's name and its tenant's."""
    if not is_name(key.name):
        check_name(key.name)
    if not is_name(key.tenant):
        check_name(key.tenant, "tenant")


def check_partition(partition: str) -> None:
    """Check a partition's name."""
    if not is_fit(partition):
        raise SkepError(
            Code.INVALID_PARTITION,
            f"a partition has 1 to {NAME_CHARACTERS} characters, none of them control characters",
        )


def check_count(value: int, most: int, what: str) -> None:
    """Check that a requested number is from 1 to ``most``."""
    if type(value) is not int or not 1 <= value <= most:
        raise SkepError(Code.INVALID_REQUEST, f"{what} must be from 1 to {most}", value=value)


def check_lease_seconds(value: float) -> None:
    """Check the duration of a lease."""
    if not _is_number(value) or not 0 < value <= LEASE_SECONDS_MAX:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"lease_seconds (over HTTP: leaseSeconds) must be above 0 and at most {LEASE_SECONDS_MAX}",
        )


def check_wait_seconds(value: float, limits: Limits) -> None:
    """Check how long a pop waits."""
    if not _is_number(value) or not 0 <= value <= limits.wait_seconds:
        raise SkepError(
            Code.INVALID_REQUEST, f"wait_seconds (over HTTP: timeout) must be from 0 to {limits.wait_seconds:.0f}"
        )


def check_start(start: Start) -> None:
    """Check the position where a group starts."""
    if start.mode is StartMode.TIME and not 0 <= start.value <= INSTANT_MAX:
        raise SkepError(Code.INVALID_TIME, "the time to start from is out of range")
    if start.mode is StartMode.SEQ and not 0 <= start.value <= SEQ_MAX:
        raise SkepError(Code.INVALID_REQUEST, "the seq to start from is out of range")


def check_pop(request: PopRequest, wait_seconds: float, limits: Limits) -> None:
    """Check all of a pop but its queue."""
    if not is_name(request.group):
        check_name(request.group, "group")
    if not 1 <= request.batch <= limits.pop_messages:
        check_count(request.batch, limits.pop_messages, "batch")
    if request.partition is not None:
        check_partition(request.partition)
    if request.max_partitions and not 1 <= request.max_partitions <= PARTITIONS_MAX:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"max_partitions (over HTTP: partitions) must be from 0 (no limit) to {PARTITIONS_MAX}",
        )
    if request.lease_seconds is not None:
        check_lease_seconds(request.lease_seconds)
    if request.start.mode is not StartMode.ALL:
        check_start(request.start)
    if wait_seconds:
        check_wait_seconds(wait_seconds, limits)


def check_push(
    messages: Sequence[NewMessage], limits: Limits, json_checked: bool
) -> Weight | list[MessageRefusal | None]:
    """The weight of a push; or, when a message is bad, the refusal of each message, None for the good ones."""
    if not 1 <= len(messages) <= limits.push_messages:
        check_count(len(messages), limits.push_messages, "the number of messages")
    size = 0
    deliver_at: Instant | None = None
    several = False
    queue: QueueKey | None = None
    for message in messages:
        if message.queue is not queue and message.queue != queue:
            several = queue is not None
            queue = message.queue
            if not (is_name(queue.name) and is_name(queue.tenant)):
                break
        if refusal_of(message, limits, json_checked) is not None:
            break
        size += len(message.payload)
        if message.headers is not None:
            size += len(message.headers)
        if message.deliver_at is not None and (deliver_at is None or message.deliver_at < deliver_at):
            deliver_at = message.deliver_at
    else:
        if size > limits.request_bytes:
            raise SkepError(
                Code.PAYLOAD_TOO_LARGE,
                f"a push carries at most {limits.request_bytes} bytes",
                bytes=size,
                limit=limits.request_bytes,
            )
        return Weight(size, None if several else queue, deliver_at)
    return [_queue_refusal(message.queue) or refusal_of(message, limits, json_checked) for message in messages]


def refusal_of(message: NewMessage, limits: Limits, json_checked: bool) -> MessageRefusal | None:
    """Why a message is refused, apart from its queue; None when it is not."""
    payload = message.payload
    partition = message.partition
    if type(payload) is not bytes:
        return MessageRefusal(Code.INVALID_PAYLOAD, "a payload is bytes")
    if len(payload) > limits.payload_bytes:
        return MessageRefusal(Code.PAYLOAD_TOO_LARGE, f"a payload has at most {limits.payload_bytes} bytes")
    if not (0 < len(partition) <= NAME_CHARACTERS and (partition.isprintable() or _UNFIT.search(partition) is None)):
        return MessageRefusal(
            Code.INVALID_PARTITION, f"a partition has 1 to {NAME_CHARACTERS} characters, no control characters"
        )
    if message.content_type is None:
        if not json_checked and (refusal := json_refusal(payload)) is not None:
            return refusal
    elif not is_fit(message.content_type) or message.content_type == SEALED_TYPE:
        reason = f"a content type has 1 to {CONTENT_TYPE_CHARACTERS} characters, and is not {SEALED_TYPE}"
        return MessageRefusal(Code.INVALID_PAYLOAD, reason)
    if message.transaction_id is not None and not is_fit(message.transaction_id):
        return MessageRefusal(
            Code.INVALID_TRANSACTION_ID,
            f"a transaction id has 1 to {TRANSACTION_ID_CHARACTERS} characters, no control characters",
        )
    if message.headers is not None and (refusal := _headers_refusal(message.headers, limits)) is not None:
        return refusal
    if message.trace_id is not None and (type(message.trace_id) is not bytes or len(message.trace_id) != ID_BYTES):
        return MessageRefusal(Code.INVALID_TRACE_ID, "a trace id is a UUID")
    if message.deliver_at is not None and not 0 <= message.deliver_at <= INSTANT_MAX:
        return MessageRefusal(Code.INVALID_TIME, "deliver_at is out of range")
    if message.priority and not PRIORITY_MIN <= message.priority <= PRIORITY_MAX:
        return MessageRefusal(Code.INVALID_PRIORITY, f"a priority is from {PRIORITY_MIN} to {PRIORITY_MAX}")
    return None


def refused(
    refusals: Sequence[MessageRefusal | None], messages: Sequence[NewMessage], ids: Sequence[Id]
) -> PushOutcome:
    """The answer to a push with refused messages."""
    results = [
        PushResult(
            PushStatus.REFUSED,
            id_,
            transaction_id=message.transaction_id,
            trace_id=message.trace_id,
            code=refusal.code if refusal else Code.BATCH_REFUSED,
            reason=refusal.reason if refusal else "another message of the batch was refused",
        )
        for refusal, message, id_ in zip(refusals, messages, ids, strict=True)
    ]
    return PushOutcome(results, {})


def _queue_refusal(key: QueueKey) -> MessageRefusal | None:
    if is_name(key.name) and is_name(key.tenant):
        return None
    return MessageRefusal(Code.INVALID_NAME, _name_rule("tenant" if is_name(key.name) else "queue"))


def json_refusal(payload: bytes) -> MessageRefusal | None:
    """The refusal of a payload that should be JSON and is not; None when it is."""
    try:
        # The decoder does not check the bytes of strings, so a payload that is not ASCII is decoded once more.
        _JSON.decode(payload)
        if not payload.isascii():
            payload.decode()
    except RecursionError:
        return MessageRefusal(Code.INVALID_PAYLOAD, "the payload is nested too deeply")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return MessageRefusal(
            Code.INVALID_PAYLOAD, f"the payload is not JSON, and no content type says what it is: {error}"
        )
    return None


def _headers_refusal(headers: bytes, limits: Limits) -> MessageRefusal | None:
    if len(headers) > limits.headers_bytes:
        return MessageRefusal(Code.INVALID_HEADERS, f"headers have at most {limits.headers_bytes} bytes")
    try:
        _HEADERS.decode(headers)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        return MessageRefusal(Code.INVALID_HEADERS, f"headers are a JSON object of strings: {error}")
    return None


_ACKS = (Outcome.ACK, Outcome.ACK_THROUGH)


def check_settlements(
    settlements: Sequence[Settlement], limits: Limits, least: int = 1
) -> tuple[QueueKey | None, bool]:
    """The queue of all settlements, if it is one, and whether all are plain acks; raises for an invalid one."""
    if not least <= len(settlements) <= limits.settlements:
        check_count(len(settlements), limits.settlements, "the number of settlements")
    plain = True
    several = False
    queue: QueueKey | None = None
    token: Token | None = None
    group = ""
    for settlement in settlements:
        if settlement.queue is not queue and settlement.queue != queue:
            several = queue is not None
            queue = settlement.queue
            check_key(queue)
        if settlement.token != token or settlement.group != group:
            token, group = settlement.token, settlement.group
            _check_lease(token, group)
        if not is_fit(settlement.partition):
            check_partition(settlement.partition)
        if not 0 <= settlement.seq <= SEQ_MAX:
            raise SkepError(Code.INVALID_REQUEST, "a seq is out of range", seq=settlement.seq)
        if settlement.outcome not in _ACKS:
            plain = False
            _check_retry(settlement)
    return None if several else queue, plain


def completed(settlements: Sequence[Settlement], random: Random, limits: Limits) -> list[Settlement]:
    """The settlements, with jitter for nacks, and with error texts that any store can hold."""
    return [
        settlement if settlement.outcome in _ACKS else _completed(settlement, random, limits)
        for settlement in settlements
    ]


def _completed(settlement: Settlement, random: Random, limits: Limits) -> Settlement:
    jitter, error = settlement.jitter, settlement.error
    if settlement.outcome is Outcome.NACK and settlement.retry is Retry.BACKOFF and not jitter:
        jitter = random.random()
    if error is not None:
        error = storable(error.removeprefix(SEALED_ERROR[0]), limits.error_characters)
    return msgspec.structs.replace(settlement, jitter=jitter, error=error)


def check_renewals(renewals: Sequence[Renewal], limits: Limits) -> None:
    """Raise for an invalid renewal."""
    check_count(len(renewals), limits.settlements, "the number of renewals")
    for renewal in renewals:
        check_key(renewal.queue)
        check_partition(renewal.partition)
        _check_lease(renewal.token, renewal.group)
        check_lease_seconds(renewal.lease_seconds)
        if renewal.seq is not None and not 0 <= renewal.seq <= SEQ_MAX:
            raise SkepError(Code.INVALID_REQUEST, "a seq is out of range", seq=renewal.seq)


def storable(text: str, most: int) -> str:
    """A text that any store can hold, cut to ``most`` characters."""
    if len(text) > most:
        text = text[:most]
    return text if text.isprintable() else _UNSTORABLE.sub("\ufffd", text)


def check_texts(texts: Iterable[str | None]) -> None:
    """Check texts to search for: a store must be able to hold them."""
    for text in texts:
        if text is not None and _UNSTORABLE.search(text):
            raise SkepError(Code.INVALID_REQUEST, "a text to look for has characters that cannot be stored")


def _check_lease(token: Token, group: str) -> None:
    if not is_name(group):
        check_name(group, "group")
    check_token(token)


def check_token(token: Token) -> None:
    """Check that a text may be the token of a lease."""
    if type(token) is not bytes or len(token) != TOKEN_BYTES:
        raise SkepError(Code.INVALID_REQUEST, f"a lease token is {TOKEN_BYTES} bytes")


def _check_retry(settlement: Settlement) -> None:
    if settlement.outcome is Outcome.RELEASE:
        # A release does not count the delivery: with it, a consumer could keep a message for ever.
        raise SkepError(Code.INVALID_REQUEST, "a message that was delivered is acked, nacked or rejected")
    at = settlement.retry_at
    if settlement.retry is Retry.AT and settlement.outcome is Outcome.NACK and not (at and 0 < at <= INSTANT_MAX):
        raise SkepError(Code.INVALID_TIME, "a nack with a time needs a retry_at within range")
    if not 0 <= settlement.jitter < 1:
        raise SkepError(Code.INVALID_REQUEST, "jitter is from 0 to below 1")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_page(limit: int, limits: Limits, after: str = "") -> None:
    """Check the length of a page, and the text that it starts after."""
    check_count(limit, limits.page, "limit")
    check_texts((after,))


def check_match(tenant: str, namespace: str | None, task: str | None) -> None:
    """Check the names of a tenant, a namespace and a task."""
    check_name(tenant, "tenant")
    for name, what in ((namespace, "namespace"), (task, "task")):
        if name is not None:
            check_name(name, what)
