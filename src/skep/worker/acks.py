"""The settlements of a worker: completed, failed or dead letter, and the one after a refused transaction."""

from __future__ import annotations

from skep.client import error_texts
from skep.entities import PERMANENT
from skep.errors import Code, SkepError
from skep.wire.messages import Ack, AckStatus, PoppedMessage

ERROR_CHARACTERS = 8_192
LOST = frozenset({Code.STALE_LEASE, Code.NOT_IN_LEASE})
"""A message refused with one of these codes is leased to another consumer by now, or settled."""
OWN_FAULTS = PERMANENT | {
    Code.PAYLOAD_TOO_LARGE, Code.INVALID_PAYLOAD, Code.INVALID_PARTITION, Code.INVALID_TRANSACTION_ID, Code.INVALID_NAME,
    Code.INVALID_REQUEST, Code.MALFORMED,
}  # fmt: skip
"""A message refused with one of these codes has bad content; every retry would be refused too."""


def completed(message: PoppedMessage) -> Ack:
    """The ack of a completed message."""
    return Ack(message.lease_id, message.seq)


def given_up(message: PoppedMessage, error: SkepError) -> Ack:
    """The ack of a message that becomes a dead letter at once."""
    return Ack(message.lease_id, message.seq, AckStatus.DLQ, writable(str(error)))


def failed(message: PoppedMessage, error: str) -> Ack:
    """The ack of a failed message, which comes again after the queue's backoff."""
    return Ack(message.lease_id, message.seq, AckStatus.FAILED, writable(error))


def is_hopeless(error: SkepError) -> bool:
    """Whether an error is not about the messages: the server is away, or refuses this worker altogether."""
    away = error.retryable and error.code is not Code.QUEUE_FULL
    return away or error.code in (Code.UNAUTHENTICATED, Code.FORBIDDEN)


def refused(message: PoppedMessage, error: SkepError) -> Ack:
    """The settlement of a message whose transaction was refused. Errors that are not about the message are raised."""
    if is_hopeless(error):
        raise error
    return given_up(message, error) if error.code in OWN_FAULTS else failed(message, str(error))


def writable(error: str) -> str:
    """An error as JSON can carry it, cut as the server would."""
    return error_texts.writable(error[:ERROR_CHARACTERS])
