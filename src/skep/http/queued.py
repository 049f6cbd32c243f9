"""The answers to calls that were queued (202)."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from msgspec import UNSET

from skep.http.request.call import Answer, json_answer
from skep.ids import id_text, id_texts
from skep.model import PushResult, QueuedOperation, SettleResult
from skep.model.operation import QueuedReason
from skep.wire.messages import Ack
from skep.wire.operations import (
    Queued,
    QueuedAckResponse,
    QueuedAckResult,
    QueuedGroup,
    QueuedMessage,
    QueuedPushResponse,
)


def push_answer(results: Sequence[PushResult], operations: Sequence[QueuedOperation]) -> Answer:
    """The answer to a queued push: its operation, and an entry for every item."""
    names = _names(operations, len(results))
    messages = [
        QueuedMessage(result.transaction_id, result.status, text, id_text(result.trace_id or result.id), None, name)
        for result, text, name in zip(results, id_texts([result.id for result in results]), names, strict=True)
    ]
    first = operations[0]
    told = QueuedPushResponse(
        True, Queued.QUEUED, id_text(first.id), first.queue_position, QueuedReason(first.reason),
        first.estimated_wait_seconds, messages, _groups(operations),
    )  # fmt: skip
    return json_answer(told, HTTPStatus.ACCEPTED)


def ack_answer(acks: Sequence[Ack], settled: Sequence[SettleResult]) -> Answer:
    """The answer to acks that were queued."""
    operations = list({one.operation.id: one.operation for one in settled if one.operation is not None}.values())
    names = _names(operations, len(settled))
    results = [
        QueuedAckResult(None if ack.seq is UNSET else ack.seq, result.status, name)
        for ack, result, name in zip(acks, settled, names, strict=True)
    ]
    first = operations[0]
    told = QueuedAckResponse(
        Queued.QUEUED, id_text(first.id), first.queue_position, QueuedReason(first.reason), first.estimated_wait_seconds,
        results, _groups(operations),
    )  # fmt: skip
    return json_answer(told, HTTPStatus.ACCEPTED)


def _names(operations: Sequence[QueuedOperation], items: int) -> list[str]:
    """The id of each item's operation."""
    names = [""] * items
    for operation in operations:
        text = id_text(operation.id)
        for index in operation.indexes:
            names[index] = text
    return names


def _groups(operations: Sequence[QueuedOperation]) -> list[QueuedGroup]:
    return [
        QueuedGroup(
            id_text(one.id), one.queue.name, one.partition, one.queue_position, QueuedReason(one.reason),
            one.estimated_wait_seconds, one.indexes,
        )
        for one in operations
    ]  # fmt: skip
