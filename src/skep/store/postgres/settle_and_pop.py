"""Acks that also lease the freed messages to waiting pops (functions/settle_and_pop.sql)."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant, seconds
from skep.model import PopRequest, PopResult, Settlement, SettleResult
from skep.store.postgres import pop, settle
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.push_and_pop import popped_of
from skep.store.statements import load_statements

SQL = load_statements(__package__, "settle_and_pop")


def first_shape(settlements: Sequence[Settlement], requests: Sequence[PopRequest]) -> list[int]:
    """The indexes of the requests that these acks can serve: of the same queue and group, of one shape, without auto-ack."""
    if not settlements or not settle.is_simple(settlements):
        return []
    if sum(len(lease.indexes) for lease in settle.acked_leases(settlements)) < len(settlements):
        return []  # the careful way must settle some, and may fail: then the claimed messages would reach nobody
    account = (settlements[0].queue, settlements[0].group)
    mine = [i for i, one in enumerate(requests) if (one.queue, one.group) == account and not one.auto_ack]
    return [i for i in mine if pop.shape_of(requests[i]) == pop.shape_of(requests[mine[0]])]


async def settle_and_pop(
    db: Database, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
) -> tuple[list[SettleResult], list[PopResult | None]]:
    """Settle, and lease the freed messages to the requests of one shape, in one transaction."""
    popped: list[PopResult | None] = [None] * len(requests)
    numbers = first_shape(settlements, requests)
    if not numbers:
        return await settle.settle(db, settlements, now), popped
    wanted = [requests[number] for number in numbers]
    quick, found = await db.pool.once(_settle_and_pop, settlements, wanted, now, db.shard)
    for number, result in zip(numbers, found, strict=True):
        popped[number] = result
    return await settle.settle_rest(db, settlements, quick, now), popped


async def _settle_and_pop(
    connection: Connection, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant, shard: int
) -> tuple[list[SettleResult | None], list[PopResult | None]]:
    """Ack, as `settle_acks` does, and pop for requests of one shape; None for results that were not served."""
    leases = settle.acked_leases(settlements)
    shape = pop.shape_of(requests[0])
    lease_us = None if shape.lease_seconds is None else seconds(shape.lease_seconds)
    rows = await connection.fetch(
        SQL["settle_and_pop"], *settle.columns(settlements[0], leases, now, shard), [request.batch for request in requests],
        [request.token for request in requests], shape.max_partitions, shape.partition, lease_us, shape.max_bytes,
        [request.consumer for request in requests],
    )  # fmt: skip
    results = settle.acked(settlements, leases, rows[0]["leases"], rows[0]["messages"])
    return results, await popped_of(connection, rows[1:], requests)
