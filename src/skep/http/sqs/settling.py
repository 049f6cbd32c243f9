"""DeleteMessage and ChangeMessageVisibility, and their batches: acks, renewals and nacks.

SQS says of a handle that counts no longer: deleting a message of a standard queue by it succeeds and does nothing; of a FIFO queue it is refused.
A change of visibility is refused in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from skep.errors import Code, SkepError
from skep.http.request.call import Call
from skep.http.routes.ack import count_settled
from skep.http.sqs import attributes
from skep.http.sqs.batches import check_batch, failed
from skep.http.sqs.door import SqsDoor, queue_of
from skep.http.sqs.faults import MESSAGE_NOT_IN_FLIGHT, SqsError, invalid, missing
from skep.http.sqs.names import Handle, read_handle
from skep.http.sqs.queues import SqsQueue
from skep.http.sqs.shapes import (
    BatchResult,
    DoneEntry,
    FailedEntry,
    HandleBatchRequest,
    HandleEntry,
    HandleRequest,
    Nothing,
)
from skep.model import WHOLE_LEASE, Outcome, Renewal, Retry, Settlement, SettleStatus, Token
from skep.model.key import Verb

Errors = dict[Handle, SkepError]
"""What went wrong, by handle; of a handle that is missing here nothing did."""


async def delete(door: SqsDoor, call: Call, request: HandleRequest) -> Nothing:
    """Delete a message."""
    queue, receipts, errors = await _read(door, call, request.queue_url, [request])
    return _one(errors, await _delete(door, queue, receipts))


async def delete_batch(door: SqsDoor, call: Call, request: HandleBatchRequest) -> BatchResult:
    """Delete up to ten messages."""
    entries = request.entries.listed()
    check_batch(entries)
    queue, receipts, errors = await _read(door, call, request.queue_url, entries)
    return _several(entries, receipts, errors, await _delete(door, queue, receipts))


async def change(door: SqsDoor, call: Call, request: HandleRequest) -> Nothing:
    """Change for how long a message stays in flight."""
    if request.visibility_timeout is None:
        raise missing("VisibilityTimeout")
    queue, receipts, errors = await _read(door, call, request.queue_url, [request], _check_timeout)
    return _one(errors, await _change(door, queue, [request], receipts))


async def change_batch(door: SqsDoor, call: Call, request: HandleBatchRequest) -> BatchResult:
    """Change for how long up to ten messages stay in flight."""
    entries = request.entries.listed()
    check_batch(entries)
    queue, receipts, errors = await _read(door, call, request.queue_url, entries, _check_timeout)
    return _several(entries, receipts, errors, await _change(door, queue, entries, receipts))


def _check_timeout(entry: HandleEntry) -> None:
    timeout = entry.visibility_timeout
    if timeout is not None and not 0 <= timeout <= attributes.VISIBILITY_SECONDS_MAX:
        raise invalid(
            "VisibilityTimeout",
            timeout,
            f"VisibilityTimeout must be an integer between 0 and {attributes.VISIBILITY_SECONDS_MAX}.",
        )


def _no_check(entry: HandleEntry) -> None:
    """Handles are checked in any case."""


async def _read(
    door: SqsDoor,
    call: Call,
    url: str | None,
    entries: Sequence[HandleEntry],
    check: Callable[[HandleEntry], None] = _no_check,
) -> tuple[SqsQueue, list[Handle | None], dict[int, SqsError]]:
    """The queue, the handle of each entry, and what is wrong with those that have none, by their place."""
    queue = await queue_of(door, call, url, Verb.POP)
    receipts: list[Handle | None] = []
    errors: dict[int, SqsError] = {}
    for place, entry in enumerate(entries):
        try:
            if entry.receipt_handle is None:
                raise missing("ReceiptHandle")
            check(entry)
            receipts.append(read_handle(entry.receipt_handle, queue.key))
        except SqsError as error:
            receipts.append(None)
            errors[place] = error
    return queue, receipts, errors


def _one(errors: Mapping[int, SqsError], refused: Errors) -> Nothing:
    for error in (*errors.values(), *refused.values()):
        raise error
    return Nothing()


def _several(
    entries: Sequence[HandleEntry], receipts: Sequence[Handle | None], errors: Mapping[int, SqsError], refused: Errors
) -> BatchResult:
    done: list[DoneEntry] = []
    lost: list[FailedEntry] = []
    for place, (entry, receipt) in enumerate(zip(entries, receipts, strict=True)):
        error = errors.get(place) if receipt is None else refused.get(receipt)
        if error is None:
            done.append(DoneEntry(entry.id or ""))
        else:
            lost.append(failed(entry.id or "", error))
    return BatchResult(done, lost)


async def _delete(door: SqsDoor, queue: SqsQueue, receipts: Sequence[Handle | None]) -> Errors:
    """Ack messages. When all messages of a lease are among them, the lease is acked as a whole, which costs a fraction."""
    leases: dict[tuple[Token, str], list[Handle]] = {}
    for receipt in dict.fromkeys(receipts):
        if receipt is not None:
            leases.setdefault((receipt.token, receipt.partition), []).append(receipt)
    meant: list[tuple[Settlement, list[Handle]]] = []
    for own in leases.values():
        if len(own) >= own[0].messages:
            meant.append((_settlement(queue, own[0], Outcome.ACK_THROUGH), own))
        else:
            meant += [(_settlement(queue, receipt, Outcome.ACK), [receipt]) for receipt in own]
    refused = await _settle(door, [settlement for settlement, _ in meant])
    if not queue.is_fifo:
        return {}
    # Of a lease that is good, a message that is not in it any more was deleted before.
    return {
        receipt: _expired(receipt)
        for (_, own), code in zip(meant, refused, strict=True) if code is Code.STALE_LEASE
        for receipt in own
    }  # fmt: skip


async def _change(
    door: SqsDoor, queue: SqsQueue, entries: Sequence[HandleEntry], receipts: Sequence[Handle | None]
) -> Errors:
    """Renew leases of single messages, and return those whose time is to be 0."""
    wanted = {
        receipt: queue.queue.settings.lease_seconds if entry.visibility_timeout is None else entry.visibility_timeout
        for entry, receipt in zip(entries, receipts, strict=True) if receipt is not None
    }  # fmt: skip
    ended = [receipt for receipt, timeout in wanted.items() if not timeout]
    kept = [receipt for receipt, timeout in wanted.items() if timeout]
    refused = await _settle(door, [_settlement(queue, receipt, Outcome.NACK) for receipt in ended])
    stale = [receipt for receipt, code in zip(ended, refused, strict=True) if code is not None]
    if kept:
        renewed = await door.engine.renew([
            Renewal(
                queue=queue.key, partition=receipt.partition, token=receipt.token, group=receipt.group, seq=receipt.seq,
                lease_seconds=float(wanted[receipt]),
            )
            for receipt in kept
        ])  # fmt: skip
        stale += [receipt for receipt, result in zip(kept, renewed, strict=True) if result.code is not None]
    return {
        receipt: SqsError(
            MESSAGE_NOT_IN_FLIGHT,
            "The message is not in flight under this receipt handle: it was deleted, or its visibility timeout has ended.",
        )
        for receipt in stale
    }


async def _settle(door: SqsDoor, settlements: Sequence[Settlement]) -> list[Code | None]:
    """Settle; returns for each why nothing changed, or None."""
    if not settlements:
        return []
    done = await door.engine.settle(settlements)
    count_settled(door.meter, settlements, done)
    return [result.code if result.status is SettleStatus.REFUSED else None for result in done]


def _settlement(queue: SqsQueue, receipt: Handle, outcome: Outcome) -> Settlement:
    return Settlement(
        queue=queue.key, partition=receipt.partition, group=receipt.group, token=receipt.token, outcome=outcome,
        seq=WHOLE_LEASE if outcome is Outcome.ACK_THROUGH else receipt.seq, retry=Retry.NOW,
    )  # fmt: skip


def _expired(receipt: Handle) -> SqsError:
    return invalid("ReceiptHandle", f"of message {receipt.seq}", "The receipt handle has expired.")
