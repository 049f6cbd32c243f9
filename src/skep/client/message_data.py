"""A popped message as data, for both clients, and the acks that settle it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, field

from skep.client.decoding import decode_json
from skep.client.error_texts import writable
from skep.client.exchange import NO_CONTENT, ApiResponse
from skep.client.lease_acks import Left, Shortened, leases_of, settled, shortened
from skep.client.reading import reader
from skep.client.tracing import began, settling_popped
from skep.client.tracing import failed as failed_span
from skep.clock import Clock, seconds
from skep.errors import Code, SkepError
from skep.model import SettleStatus
from skep.wire.messages import Ack, AckResult, AckStatus, DeadLetterStory, PoppedMessage
from skep.wire.times import to_datetime
from skep.wire.traces import NewTraceEvent

if TYPE_CHECKING:
    from skep.client.observation import Observation

T = TypeVar("T")
M = TypeVar("M", bound="MessageData")

_headers = msgspec.json.Decoder(dict[str, str])
_text = msgspec.json.Decoder(str)


class MessageData(Struct, eq=False, gc=False, rename="camel"):  # nothing that a message refers to refers to it
    """A message under a lease, as the wire tells of it. ``payload`` is bytes as they were pushed; `json` and `as_` read it."""

    queue: str
    partition: str
    seq: int
    id: str
    transaction_id: str | None
    trace_id: str
    raw_payload: Raw = field(name="payload")
    raw_headers: Raw = field(name="headers")
    content_type: str | None
    priority: int
    created_at: datetime
    attempt: int
    group: str = field(name="consumerGroup")
    lease_id: str
    lease_deadline: datetime
    dead_letter: DeadLetterStory | None = None
    """The source and reason of a dead letter, when the message is popped from a dead-letter queue."""
    client: Any = None
    settled: AckStatus | None = None
    """The settlement made through this object; None before it."""
    work: Any = None
    """The span of working on it, in a ``with`` block."""
    left: Left | None = None
    """The unsettled seqs of its lease, shared by all messages of the lease; None when they are not known."""
    known_payload: bytes | None = None
    known_headers: dict[str, str] | None = None
    """Once they were asked for: most messages are asked for one of the two."""

    @classmethod
    def of(cls, popped: PoppedMessage, client: object) -> Self:
        """The message that the wire tells of."""
        return cls(
            popped.queue, popped.partition, popped.seq, popped.id, popped.transaction_id, popped.trace_id, popped.payload,
            popped.headers, popped.content_type, popped.priority, popped.created_at, popped.attempt, popped.consumer_group,
            popped.lease_id, popped.lease_deadline, None if popped.dead_letter is UNSET else popped.dead_letter, client,
        )  # fmt: skip

    @property
    def payload(self) -> bytes:
        """The payload as it was pushed: JSON, or the bytes of a content type."""
        if self.known_payload is None:
            self.known_payload = payload_bytes(self.raw_payload, self.content_type)
        return self.known_payload

    @property
    def headers(self) -> dict[str, str]:
        """The headers; empty when it has none."""
        if self.known_headers is None:
            raw = bytes(self.raw_headers)
            self.known_headers = {} if raw in (b"", b"null") else _headers.decode(raw)
        return self.known_headers

    def json(self) -> Any:
        """The payload as plain Python values."""
        return decode_json(self.payload, Any)

    def as_(self, kind: type[T]) -> T:
        """The payload as a dataclass, struct, pydantic model or whatever type; INVALID_PAYLOAD when it does not fit."""
        return decode_json(self.payload, kind)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.queue} {self.partition} seq={self.seq} attempt={self.attempt}"
            f"{f' {self.settled}' if self.settled else ''}>"
        )


class _Popped(Struct, Generic[M]):
    messages: list[M]
    results: list[AckResult] = []


Said = Sequence[tuple["MessageData", Ack]]
"""Messages with the ack of each."""


def message_reader(kind: type[M]) -> Callable[..., list[M]]:
    """A function that reads the answer to a pop straight into messages. Acks that went along are noted in their messages."""
    read = reader(_Popped[kind])  # type: ignore[valid-type] # known only when it runs

    def popped(
        answer: ApiResponse, said: Said = (), short: Shortened | None = None, span: Observation | None = None
    ) -> list[M]:
        if answer.status == NO_CONTENT:
            return []
        found = read(answer)
        if short is not None:
            noted(said, short.results(found.results), span)
        return found.messages

    return popped


def held(messages: list[M], client: object, leases: Mapping[str, Left] | None = None) -> list[M]:
    """Give the messages of a pop their client, and the unsettled seqs of their lease (by default all that the pop brought)."""
    if leases is None:
        leases = leases_of(messages)
    for message in messages:
        message.left, message.client = leases[message.lease_id], client
    return messages


def payload_bytes(payload: Raw, content_type: str | None) -> bytes:
    """A payload as it was pushed: JSON as it stands, or what the base64 text says."""
    if content_type is None:
        return bytes(payload)
    return base64.b64decode(_text.decode(payload))


def completed(message: MessageData) -> Ack:
    """The ack of a completed message."""
    return Ack(lease_of(message), message.seq)


def lease_of(message: object) -> str:
    """The lease of a popped message; INVALID_REQUEST for any other object, such as the list that a pop returned."""
    if not isinstance(message, MessageData):
        cure = ": put a star before it, as in client.ack(*messages)" if isinstance(message, list | tuple) else ""
        raise SkepError(Code.INVALID_REQUEST, f"a popped message is wanted, not a {type(message).__name__}{cure}")
    return message.lease_id


def failed(
    message: MessageData,
    clock: Clock,
    *,
    error: str | None = None,
    retry_at: datetime | None = None,
    delay: float | timedelta | None = None,
) -> Ack:
    """The ack of a failed message. It comes again after the queue's backoff, at a time, or after a number of seconds (0 is at once)."""
    lease_id = lease_of(message)
    if retry_at is not None and delay is not None:
        raise SkepError(Code.INVALID_REQUEST, "give retry_at or delay, not both")
    length = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if length is not None and length > 0:
        retry_at = to_datetime(clock.now() + seconds(length))
    status = AckStatus.FAILED if retry_at is None and delay is None else AckStatus.RETRY
    return Ack(lease_id, message.seq, status, _told(error), retry_at)


def rejected(message: MessageData, *, error: str | None = None) -> Ack:
    """The ack of a message that becomes a dead letter."""
    return Ack(lease_of(message), message.seq, AckStatus.DLQ, _told(error))


def happened(message: MessageData, name: str, data: dict[str, Any] | None) -> NewTraceEvent:
    """An event in the trace of a message."""
    return NewTraceEvent(message.trace_id, name, data or {}, message.id, message.queue)


def _told(error: str | None) -> str | None:
    return None if error is None else writable(error)


def traced(said: Said, *, is_current: bool = True) -> AbstractContextManager[Observation | None]:
    """A span around settling these messages; not the current one where the same request does something else, too."""
    if not said or not began():
        return nullcontext()
    word = word_of([ack for _, ack in said])
    url = said[0][0].client.settings.urls[0]
    return settling_popped(url, word, [message for message, _ in said], is_current=is_current)


def word_of(acks: Sequence[Ack]) -> str:
    """The status that all acks have, as a word; "settle" when they differ."""
    words = {ack.status for ack in acks}
    return str(next(iter(words))) if len(words) == 1 else "settle"


def noted(
    said: Sequence[tuple[MessageData, Ack]], results: list[AckResult], span: Observation | None
) -> list[AckResult]:
    """The results, after each message that was settled has been marked so."""
    refusal = SettleStatus.REFUSED
    for (message, ack), result in zip(said, results, strict=True):
        status = result.status
        if status is not refusal:
            mark(message, ack, status)
    refused(span, results)
    return results


def mark(message: MessageData, ack: Ack, status: SettleStatus) -> None:
    """Note that the server has taken the ack of a message."""
    message.settled = ack.status
    if message.left is not None:
        settled(message.left, message.seq, ack.status, status)


def short(said: Sequence[tuple[MessageData, Ack]]) -> Shortened:
    """The acks of one request. Where they cover a lease, the lease is acked instead of each message."""
    leases = {message.lease_id: message.left for message, _ in said if message.left is not None}
    return shortened([ack for _, ack in said], leases)


def refused(span: Observation | None, results: Sequence[AckResult | None]) -> None:
    """Say on a span why a message was not settled; one reason stands for all."""
    if span is not None:
        codes = [one.code or Code.STALE_LEASE for one in results if one and one.status is SettleStatus.REFUSED]
        if codes:
            failed_span(span, str(codes[0]))
