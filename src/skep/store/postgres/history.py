"""History: figures by the minute, deliveries of a message, events of traces, and the reasons of dead letters. Each read is bounded."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from skep.clock import Instant, seconds
from skep.ids import Id
from skep.model import DeadReason, QueueKey, Seq
from skep.model.history import Death, FailedAttempt, FinishedLease, Journey, LeaseTime, Moment, TraceEvent, TraceName
from skep.store.outcomes import outcome_for
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.dead_letters import dead_letter_queue
from skep.store.postgres.rows import struct_of
from skep.store.rules import (
    FAILURES_SHOWN,
    HISTORY_DISORDER_SECONDS,
    PAST_SECONDS,
    SEARCHED_LEASES,
    SEQ_MAX,
    TIMED_LEASES,
)
from skep.store.statements import load_statements

SQL = load_statements(__package__, "history")

MINUTE = seconds(60)
POINTS = PAST_SECONDS // 60 + 3
_WHOLE_TENANT = 0


async def figures(
    connection: Connection, tenant: str, names: Sequence[str] | None, since: Instant
) -> list[list[Moment]]:
    """The figures of each queue, or of the whole tenant, from the last ones before ``since`` on."""
    if names is None:
        rows = await connection.fetch(SQL["figures"], tenant, _WHOLE_TENANT, since // MINUTE, POINTS)
        return [[Moment(*row) for row in rows]]
    found: list[list[Moment]] = [[] for _ in names]
    for place, *moment in await connection.fetch(SQL["figures_of"], tenant, names, since // MINUTE, POINTS):
        found[place - 1].append(Moment(*moment))
    return found


async def lease_history(
    connection: Connection, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
) -> list[tuple[int, FinishedLease]]:
    """Finished leases in the order in which they ended."""
    queue = await queues.need(connection, key)
    if since is not None:
        first = await connection.fetchval(SQL["first_lease_ended"], since - seconds(HISTORY_DISORDER_SECONDS))
        after = max(after, 0 if first is None else first - 1)
    rows = await connection.fetch(SQL["lease_history"], queue.id, after, limit, since or 0)
    return [(row["id"], _lease(key, row, row["outcome"])) for row in rows]


async def deliveries(connection: Connection, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
    """The finished leases of each message, as far as a bounded look finds them."""
    found: list[list[FinishedLease]] = [[] for _ in journeys]
    newest: int | None = await connection.fetchval(SQL["last_lease_ended"])
    if newest is None:
        return found
    rows = await connection.fetch(
        SQL["deliveries"], [one.queue.tenant for one in journeys], [one.queue.name for one in journeys],
        [one.partition for one in journeys], [one.seq for one in journeys], [one.created_at for one in journeys],
        newest, SEARCHED_LEASES,
    )  # fmt: skip
    for row in rows:
        journey = journeys[row["place"] - 1]
        told = outcome_for(journey.seq, row["outcome"], row["answer"])
        found[row["place"] - 1].append(_lease(journey.queue, row, told))
    return found


async def failures(connection: Connection, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
    """The failed attempts of each message, oldest first."""
    found: list[list[FailedAttempt]] = [[] for _ in places]
    rows = await connection.fetch(
        SQL["failures"], [key.tenant for key, _ in places], [key.name for key, _ in places], [seq for _, seq in places],
        FAILURES_SHOWN,
    )  # fmt: skip
    for row in rows:
        key, seq = places[row["place"] - 1]
        found[row["place"] - 1].append(struct_of(FailedAttempt, row, queue=key, seq=seq, group=row["group_name"]))
    return found


async def lease_times(connection: Connection, key: QueueKey, since: Instant) -> list[LeaseTime]:
    """How long the newest leases of a queue waited and lasted, newest first."""
    queue = await queues.need(connection, key)
    return [LeaseTime(*row) for row in await connection.fetch(SQL["lease_times"], queue.id, TIMED_LEASES, since)]


def _lease(key: QueueKey, row: asyncpg.Record, outcome: str) -> FinishedLease:
    return struct_of(FinishedLease, row, queue=key, group=row["group_name"], outcome=outcome)


async def note_events(connection: Connection, tenant: str, events: Sequence[TraceEvent]) -> None:
    """Store events that workers report of traces."""
    await connection.execute(
        SQL["note_events"], tenant, [event.at for event in events], [event.trace_id for event in events],
        [event.message_id for event in events], [event.queue for event in events], [event.name for event in events],
        [event.data for event in events],
    )  # fmt: skip


async def events_of_trace(connection: Connection, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
    """The events of a trace in the order of their arrival."""
    rows = await connection.fetch(SQL["events_of_trace"], tenant, trace_id, limit)
    return [struct_of(TraceEvent, row) for row in rows]


async def events_of_name(
    connection: Connection, tenant: str, name: str, before: int | None = None, limit: int = 100
) -> list[TraceEvent]:
    """Events of a name, newest first."""
    start = SEQ_MAX if before is None else min(before, SEQ_MAX)
    rows = await connection.fetch(SQL["events_of_name"], tenant, name, start, limit)
    return [struct_of(TraceEvent, row) for row in rows]


async def names(connection: Connection, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
    """The names of events, by name."""
    return [TraceName(*row) for row in await connection.fetch(SQL["names"], tenant, after, limit)]


async def deaths(connection: Connection, key: QueueKey, limit: int) -> list[Death]:
    """Why the newest dead letters of a dead-letter queue died, newest first."""
    queue = await dead_letter_queue(connection, key)
    return [
        Death(Seq(seq), source, group, DeadReason(reason), error, attempts, failed_at)
        for seq, source, group, reason, error, attempts, failed_at in await connection.fetch(
            SQL["deaths"], queue.id, limit
        )
    ]
