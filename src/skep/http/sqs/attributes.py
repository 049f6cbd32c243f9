"""Attributes of queues: which there are, which settings they become, and how a queue's settings and figures are told as attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct

from skep.clock import MICROS_PER_SECOND
from skep.http.request.call import Call
from skep.http.sqs.faults import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, SqsError, invalid
from skep.http.sqs.names import arn, key_of_arn
from skep.http.sqs.queues import SqsQueue
from skep.model import (
    DEAD_LETTER_SUFFIX,
    NO_DEAD_LETTER_QUEUE,
    QUEUE_MODE_GROUP,
    Ordering,
    QueueChanges,
    QueueKey,
    QueueSettings,
    QueueStats,
)

LEAST_LEASE_SECONDS = 0.001
"""The lease of a visibility timeout of 0."""
RECEIVES_MAX = 1_000
KIBIBYTE = 1_024
MESSAGE_BYTES_MAX = 1_024 * KIBIBYTE
RETENTION_SECONDS = 345_600
DEDUP_SECONDS = 300.0
VISIBILITY_SECONDS_MAX = 43_200
ALLOWED_SOURCES_MAX = 10
VALUE_CHARACTERS = 8_192
"""The longest value, such as that of a policy: a note is read as a whole."""

VISIBILITY, RETENTION, DELAY = "VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds"
MESSAGE_SIZE, WAIT = "MaximumMessageSize", "ReceiveMessageWaitTimeSeconds"
REDRIVE, REDRIVE_ALLOW, POLICY = "RedrivePolicy", "RedriveAllowPolicy", "Policy"
ALLOW_ALL, DENY_ALL, BY_QUEUE = "allowAll", "denyAll", "byQueue"
FIFO_QUEUE, CONTENT_BASED, SCOPE, THROUGHPUT = (
    "FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit",
)  # fmt: skip
SSE, KMS_KEY, KMS_SECONDS = "SqsManagedSseEnabled", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"
VISIBLE, NOT_VISIBLE, DELAYED = (
    "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
)  # fmt: skip
COUNTS = (VISIBLE, NOT_VISIBLE, DELAYED)
TOLD = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", *COUNTS)

_RANGES = {
    VISIBILITY: (0, VISIBILITY_SECONDS_MAX),
    RETENTION: (60, 1_209_600),
    DELAY: (0, 900),
    MESSAGE_SIZE: (KIBIBYTE, MESSAGE_BYTES_MAX),
    WAIT: (0, 20),
    KMS_SECONDS: (60, 86_400),
}
_CHOICES = {
    FIFO_QUEUE: ("true",),
    CONTENT_BASED: ("true", "false"),
    SSE: ("true", "false"),
    SCOPE: ("messageGroup", "queue"),
    THROUGHPUT: ("perQueue", "perMessageGroupId"),
}
_DOCUMENTS = (REDRIVE, REDRIVE_ALLOW, POLICY)
_OF_FIFO = (FIFO_QUEUE, CONTENT_BASED, SCOPE, THROUGHPUT)
NAMES = (*_RANGES, *_CHOICES, *_DOCUMENTS, KMS_KEY)
"""The attributes that may be set."""
_IN_SETTINGS = (VISIBILITY, RETENTION, REDRIVE, FIFO_QUEUE, SCOPE)
_NUMBER = re.compile("[0-9]{1,10}", re.ASCII)


class RedrivePolicy(Struct, frozen=True):
    """After how many receives a message goes to which dead-letter queue."""

    queue: QueueKey
    receives: int


def check(attributes: Mapping[str, str], *, is_fifo: bool, is_new: bool) -> None:
    """Check attributes that are to be set."""
    for name, value in attributes.items():
        if name not in NAMES or (name == FIFO_QUEUE and not is_new) or (name in _OF_FIFO and not is_fifo):
            raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
        if len(value) > VALUE_CHARACTERS:
            raise _unfit(name, f"It has at most {VALUE_CHARACTERS} characters.")
        if (range_ := _RANGES.get(name)) is not None:
            if not _NUMBER.fullmatch(value) or not range_[0] <= int(value) <= range_[1]:
                raise _unfit(name, f"Must be a number from {range_[0]} to {range_[1]}.")
        elif (choices := _CHOICES.get(name)) is not None:
            if value not in choices:
                raise _unfit(name, f"Must be {' or '.join(choices)}.")
        elif name in _DOCUMENTS and value:
            told = document(name, value)
            if name == REDRIVE_ALLOW:
                _check_allow(value, told)


def _check_allow(value: str, told: Mapping[str, object]) -> None:
    """Check a redrive allow policy: one that says nothing known would let every queue in."""
    permission, sources = told.get("redrivePermission", ALLOW_ALL), told.get("sourceQueueArns")
    is_sound = permission in (ALLOW_ALL, DENY_ALL) or (
        permission == BY_QUEUE and isinstance(sources, list) and 1 <= len(sources) <= ALLOWED_SOURCES_MAX
        and all(isinstance(one, str) for one in sources)
    )  # fmt: skip
    if not is_sound or set(told) - {"redrivePermission", "sourceQueueArns"}:
        raise invalid(
            REDRIVE_ALLOW, value,
            f"redrivePermission is {ALLOW_ALL}, {DENY_ALL}, or {BY_QUEUE} with sourceQueueArns, 1 to {ALLOWED_SOURCES_MAX} ARNs.",
        )  # fmt: skip


def document(name: str, value: str) -> dict[str, object]:
    """An attribute that is a JSON object."""
    try:
        return msgspec.json.decode(value, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        raise _unfit(name, "It is not a JSON object.") from None


def _unfit(name: str, reason: str) -> SqsError:
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}. Reason: {reason}")


def redrive_policy(value: str) -> RedrivePolicy | None:
    """The redrive policy in an attribute; None in an empty one, which ends the redrive."""
    if not value:
        return None
    told = document(REDRIVE, value)
    target, most = told.get("deadLetterTargetArn"), told.get("maxReceiveCount")
    if not isinstance(target, str) or most is None or set(told) - {"deadLetterTargetArn", "maxReceiveCount"}:
        raise invalid(
            REDRIVE,
            value,
            "Redrive policy does not contain mandatory attributes deadLetterTargetArn and maxReceiveCount alone.",
        )
    if not _NUMBER.fullmatch(str(most)) or not 1 <= int(str(most)) <= RECEIVES_MAX:
        raise invalid(REDRIVE, value, f"Invalid value for maxReceiveCount, must be from 1 to {RECEIVES_MAX}.")
    return RedrivePolicy(key_of_arn(target, REDRIVE), int(str(most)))


def new_settings(attributes: Mapping[str, str], *, is_fifo: bool) -> QueueChanges:
    """The settings of a new queue of SQS with these attributes: as SQS's defaults are, and not as Skep's."""
    usual = QueueChanges(
        ordering=Ordering.PER_KEY if is_fifo else Ordering.UNORDERED, lease_seconds=30.0, max_attempts=0,
        retention_seconds=float(RETENTION_SECONDS), retention_ignores_groups=True,
        dedup_window_seconds=DEDUP_SECONDS, dedup_across_partitions=is_fifo,
    )  # fmt: skip
    return msgspec.structs.replace(usual, **changes(attributes, is_fifo=is_fifo).given())


def changes(attributes: Mapping[str, str], *, is_fifo: bool) -> QueueChanges:
    """The settings that attributes become. A delay of a FIFO queue is of all its messages, as in SQS; of another, of those sent from now on."""
    given = attributes.get
    timeout, retention, redrive, scope, delay = (
        given(VISIBILITY),
        given(RETENTION),
        given(REDRIVE),
        given(SCOPE),
        given(DELAY),
    )
    policy = None if redrive is None else redrive_policy(redrive)
    return QueueChanges(
        lease_seconds=UNSET if timeout is None else max(float(timeout), LEAST_LEASE_SECONDS),
        retention_seconds=UNSET if retention is None else float(retention),
        max_attempts=UNSET if redrive is None else 0 if policy is None else policy.receives,
        dead_letter_queue=UNSET if redrive is None else None if policy is None else policy.queue.name,
        dedup_across_partitions=UNSET if scope is None else scope == "queue",
        delayed_processing_seconds=UNSET if delay is None or not is_fifo else float(delay),
    )


def kept(attributes: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """The attributes of the note after a change: an empty value removes one."""
    changed = {**before, **{name: value for name, value in attributes.items() if name not in _IN_SETTINGS}}
    return {name: value for name, value in changed.items() if value}


def told(call: Call, queue: SqsQueue) -> dict[str, str]:
    """The attributes of a queue, without its figures."""
    settings = queue.queue.settings
    shown = {
        "QueueArn": arn(call, queue.key),
        "CreatedTimestamp": str(queue.queue.created_at // MICROS_PER_SECOND),
        "LastModifiedTimestamp": str(queue.queue.updated_at // MICROS_PER_SECOND),
        VISIBILITY: str(int(settings.lease_seconds)),
        RETENTION: str(int(settings.retention_seconds) or _RANGES[RETENTION][1]),
        DELAY: "0",
        MESSAGE_SIZE: str(MESSAGE_BYTES_MAX),
        WAIT: "0",
        SSE: "true",
    }
    if queue.is_fifo:
        scope = "queue" if settings.dedup_across_partitions else "messageGroup"
        shown |= {FIFO_QUEUE: "true", CONTENT_BASED: "false", SCOPE: scope, THROUGHPUT: "perQueue"}
    if (policy := policy_of(queue.key, settings)) is not None:
        shown[REDRIVE] = msgspec.json.encode({
            "deadLetterTargetArn": arn(call, policy.queue), "maxReceiveCount": policy.receives,
        }).decode()  # fmt: skip
    return shown | queue.note.attributes


def policy_of(key: QueueKey, settings: QueueSettings) -> RedrivePolicy | None:
    """The redrive policy that settings amount to."""
    if not settings.max_attempts or settings.dead_letter_queue == NO_DEAD_LETTER_QUEUE:
        return None
    name = settings.dead_letter_queue or key.name + DEAD_LETTER_SUFFIX
    return RedrivePolicy(QueueKey(name, key.tenant), settings.max_attempts)


def counts(stats: QueueStats) -> dict[str, str]:
    """How many messages the readers by SQS have before them, in flight, and to come."""
    group = next((one for one in stats.groups if one.group == QUEUE_MODE_GROUP), None)
    pending = stats.depth - stats.scheduled if group is None else group.pending
    return {
        VISIBLE: str(max(0, pending)),
        NOT_VISIBLE: str(0 if group is None else group.in_flight),
        DELAYED: str(stats.scheduled),
    }


def chosen(names: Sequence[str], of: Callable[[], dict[str, str]]) -> dict[str, str]:
    """The attributes that are asked for."""
    for name in names:
        if name != "All" and name not in NAMES and name not in TOLD:
            raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
    found = of()
    return found if "All" in names else {name: found[name] for name in dict.fromkeys(names) if name in found}
