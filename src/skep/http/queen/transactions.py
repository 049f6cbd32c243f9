"""`transaction`: pushes and acknowledgments that happen together or not at all, under leases that must still hold."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.engine.validate import check_count
from skep.errors import Code, SkepError
from skep.http import pushing
from skep.http.queen.door import QueenDoor
from skep.http.queen.names import LeasedBy, read_lease
from skep.http.queen.naming import NOT_LEASED, Found, required_leases, settlements_of
from skep.http.queen.pushing import new_messages, results
from skep.http.queen.settling import result_of
from skep.http.queen.shapes import QueenAck, QueenCommitted, QueenItem, QueenOperation, QueenTransaction
from skep.http.request.call import Answer, Call, json_answer
from skep.http.routes.ack import count_settled, refusal
from skep.model import LeaseFilter, NewMessage, Settlement, SettleStatus
from skep.model.transaction import TransactionOutcome

LEVELS_ABOVE_PAYLOADS = pushing.LEVELS_ABOVE_PAYLOADS + 2
"""A payload stands in an item, in a list, in an operation, in a list, in the body."""
_decode = msgspec.json.Decoder(QueenTransaction)


async def transaction(door: QueenDoor, call: Call) -> Answer:
    """Perform all operations, or none."""
    request = await call.json(_decode, levels_above=LEVELS_ABOVE_PAYLOADS)
    engine = door.engine
    rows, items = _parted(request.operations)
    if not rows and not items:
        raise SkepError(Code.INVALID_REQUEST, "a transaction has an ack or a message to push")
    required = _required(request.required_leases or (), call, engine.settings.limits.settlements)
    messages = new_messages(items, call)
    found = await settlements_of(engine, call, rows, None, required_leases(required)) if rows else []
    meant = _all_of(found)
    await _check_unused(door, required, meant)
    try:
        outcome = await engine.transact(meant, messages, json_checked=True)
    except SkepError as error:
        pushing.count_misfits(door.meter, messages, error)
        raise
    if not outcome.repeated:
        count_settled(door.meter, meant, outcome.settled)
        if messages:
            pushing.count_pushed(door.meter, messages, outcome.pushed)
    if not outcome.committed:
        raise _refusal(outcome)
    return json_answer(_told(rows, messages, outcome))


def _required(texts: Sequence[str], call: Call, most: int) -> list[LeasedBy]:
    """The leases that must hold."""
    if texts:
        check_count(len(texts), most, "the number of required leases")
    return [read_lease(text, call) for text in dict.fromkeys(texts)]


def _parted(operations: Sequence[QueenOperation]) -> tuple[list[QueenAck], list[QueenItem]]:
    """The acknowledgments and the items of all operations, in order."""
    rows: list[QueenAck] = []
    items: list[QueenItem] = []
    for operation in operations:
        if operation.type == "push":
            items += operation.items
        elif operation.type == "ack":
            if operation.transaction_id is None or operation.partition_id is None:
                raise SkepError(Code.INVALID_REQUEST, "an ack has a transactionId and a partitionId")
            rows.append(
                QueenAck(
                    operation.transaction_id, operation.partition_id, operation.status, operation.error,
                    operation.consumer_group, operation.lease_id,
                )
            )  # fmt: skip
        else:
            raise SkepError(Code.INVALID_REQUEST, f"an operation is a push or an ack, not {operation.type!r:.100}")
    return rows, items


def _all_of(found: Sequence[Found]) -> list[Settlement]:
    """All settlements; the error of the first row that has none."""
    meant: list[Settlement] = []
    for one in found:
        if isinstance(one, SkepError):
            raise one
        meant.append(one)
    return meant


async def _check_unused(door: QueenDoor, required: Sequence[LeasedBy], meant: Sequence[Settlement]) -> None:
    """Refuse the transaction when a lease has ended that it requires and acknowledges nothing of. The tokens fence all others."""
    used = {(one.queue, one.group, one.token) for one in meant}
    filters = [
        LeaseFilter(queue=one.key, group=one.group, token=one.token)
        for one in required if (one.key, one.group, one.token) not in used
    ]  # fmt: skip
    if filters and not all(await door.engine.browse.leased_messages(filters)):
        raise SkepError(Code.STALE_LEASE, f"a required lease has ended: {NOT_LEASED}")


def _refusal(outcome: TransactionOutcome) -> SkepError:
    """Why nothing of the transaction happened."""
    for settled in outcome.settled:
        if settled.status is SettleStatus.REFUSED and settled.code is not Code.BATCH_REFUSED:
            return refusal(settled.code)
    return pushing.refusal(outcome.pushed)


def _told(rows: Sequence[QueenAck], messages: Sequence[NewMessage], outcome: TransactionOutcome) -> QueenCommitted:
    acked = [
        result_of(index, row, result) for index, (row, result) in enumerate(zip(rows, outcome.settled, strict=True))
    ]
    return QueenCommitted(True, acked, results(messages, list(outcome.pushed.results)))
