"""`ack` and `ack/batch`: an array with a result for each acknowledgment, each on its own merits. `lease/…/extend`: renewals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skep.errors import Code, SkepError
from skep.http.queen.door import QueenDoor
from skep.http.queen.names import read_lease
from skep.http.queen.naming import NOT_LEASED, settlements_of
from skep.http.queen.shapes import NoFields, QueenAck, QueenAckBatch, QueenAckResult, QueenExtend, QueenExtended
from skep.http.request.call import Answer, Call, json_answer
from skep.http.routes.ack import count_settled, refusal
from skep.model import LeaseFilter, Renewal, Settlement, SettleResult, SettleStatus
from skep.wire.times import to_datetime

_decode_ack = msgspec.json.Decoder(QueenAck)
_decode_batch = msgspec.json.Decoder(QueenAckBatch)
_decode_extend: msgspec.json.Decoder[QueenExtend | list[Any]] = msgspec.json.Decoder(QueenExtend | NoFields)
_OWN = QueenExtend()


async def ack(door: QueenDoor, call: Call) -> Answer:
    """Acknowledge one message."""
    row = await call.json(_decode_ack)
    return json_answer(await _acked(door, call, [row], None))


async def ack_batch(door: QueenDoor, call: Call) -> Answer:
    """Acknowledge several messages."""
    request = await call.json(_decode_batch)
    return json_answer(await _acked(door, call, request.acknowledgments, request.consumer_group))


async def _acked(door: QueenDoor, call: Call, rows: Sequence[QueenAck], group: str | None) -> list[QueenAckResult]:
    engine = door.engine
    call.visible  # noqa: B018 - of rows that name no queue of the caller, none is looked up
    if not rows:
        return []
    found = await settlements_of(engine, call, rows, group, {})
    meant = [one for one in found if isinstance(one, Settlement)]
    done = iter(await engine.settle(meant) if meant else ())
    told: list[QueenAckResult] = []
    settled: list[SettleResult] = []
    for index, (row, one) in enumerate(zip(rows, found, strict=True)):
        if isinstance(one, SkepError):
            told.append(QueenAckResult(index, row.transaction_id, False, one.sentence))
            continue
        result = next(done)
        settled.append(result)
        told.append(result_of(index, row, result))
    count_settled(door.meter, meant, settled)
    return told


def result_of(index: int, row: QueenAck, result: SettleResult) -> QueenAckResult:
    """What became of an acknowledgment."""
    if result.status is SettleStatus.REFUSED:
        return QueenAckResult(index, row.transaction_id, False, refusal(result.code).sentence, result.status)
    return QueenAckResult(index, row.transaction_id, True, status=result.status, dlq=result.status is SettleStatus.DEAD)


async def extend(door: QueenDoor, call: Call) -> Answer:
    """Keep a lease for longer, in all partitions that it has messages of."""
    lease = read_lease(call.path("lease"), call)
    request = await call.json(_decode_extend, _OWN)
    seconds = request.seconds if isinstance(request, QueenExtend) else None
    engine = door.engine
    [held] = await engine.browse.leased_messages([LeaseFilter(queue=lease.key, group=lease.group, token=lease.token)])
    if not held:
        raise SkepError(Code.STALE_LEASE, NOT_LEASED)
    wanted = (await engine.get_queue(lease.key)).settings.lease_seconds if seconds is None else seconds
    renewed = await engine.renew(
        [
            Renewal(queue=lease.key, partition=partition, token=lease.token, group=lease.group, lease_seconds=wanted)
            for partition in dict.fromkeys(message.partition for message in held)
        ]
    )
    deadlines = [result.deadline for result in renewed if result.deadline is not None]
    if len(deadlines) < len(renewed):
        raise SkepError(Code.STALE_LEASE, NOT_LEASED)
    until = to_datetime(min(deadlines))
    return json_answer(QueenExtended(True, call.path("lease"), until, until))
