"""What was: figures by the minute, deliveries of a message, events of traces, and why messages died. Each look is bounded."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from msgspec import structs

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import DeadReason, QueueKey, Seq
from skep.model.history import Death, FailedAttempt, FinishedLease, Journey, LeaseTime, Moment, TraceEvent, TraceName
from skep.store.outcomes import outcome_for
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
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
    """Of each queue, or of the tenant as a whole; the row before ``since`` too."""
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
    return [(row["id"], _lease(key, row)) for row in rows]


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
        found[row["place"] - 1].append(structs.replace(_lease(journey.queue, row), outcome=told))
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
        found[row["place"] - 1].append(
            FailedAttempt(
                queue=key, seq=seq, group=row["group_name"], attempt=row["attempt"], leased_at=row["leased_at"],
                failed_at=row["failed_at"], outcome=row["outcome"], error=row["error"], consumer=row["consumer"],
            )
        )  # fmt: skip
    return found


async def lease_times(connection: Connection, key: QueueKey, since: Instant) -> list[LeaseTime]:
    """How long the newest leases of a queue waited and lasted, newest first."""
    queue = await queues.need(connection, key)
    return [LeaseTime(*row) for row in await connection.fetch(SQL["lease_times"], queue.id, TIMED_LEASES, since)]


def _lease(key: QueueKey, row: asyncpg.Record) -> FinishedLease:
    return FinishedLease(
        queue=key, group=row["group_name"], partition=row["partition"], first_seq=row["first_seq"],
        last_seq=row["last_seq"], messages=row["messages"], completed=row["completed"], attempt=row["attempt"],
        leased_at=row["leased_at"], settled_at=row["settled_at"], outcome=row["outcome"],
    )  # fmt: skip


async def note_events(connection: Connection, tenant: str, events: Sequence[TraceEvent]) -> None:
    """Keep what workers tell of traces."""
    await connection.execute(
        SQL["note_events"], tenant, [event.at for event in events], [event.trace_id for event in events],
        [event.message_id for event in events], [event.queue for event in events], [event.name for event in events],
        [event.data for event in events],
    )  # fmt: skip


async def events_of_trace(connection: Connection, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
    """The events of a trace in the order of telling."""
    return [_event(row) for row in await connection.fetch(SQL["events_of_trace"], tenant, trace_id, limit)]


async def events_of_name(
    connection: Connection, tenant: str, name: str, before: int | None = None, limit: int = 100
) -> list[TraceEvent]:
    """Events of a name, newest first."""
    start = SEQ_MAX if before is None else min(before, SEQ_MAX)
    return [_event(row) for row in await connection.fetch(SQL["events_of_name"], tenant, name, start, limit)]


async def names(connection: Connection, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
    """The names that events have, in their order."""
    return [TraceName(*row) for row in await connection.fetch(SQL["names"], tenant, after, limit)]


def _event(row: asyncpg.Record) -> TraceEvent:
    return TraceEvent(
        trace_id=row["trace_id"], name=row["name"], data=row["data"], at=row["at"], message_id=row["message_id"],
        queue=row["queue"], position=row["position"],
    )  # fmt: skip


async def deaths(connection: Connection, key: QueueKey, limit: int) -> list[Death]:
    """Why the newest dead letters of a dead-letter queue died, newest first."""
    queue = await queues.need(connection, key)
    if not queue.holds_dead_letters:
        raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"queue {key.name!r} is not a dead-letter queue", queue=key.name)
    return [
        Death(Seq(seq), source, group, DeadReason(reason), error, attempts, failed_at)
        for seq, source, group, reason, error, attempts, failed_at in await connection.fetch(
            SQL["deaths"], queue.id, limit
        )
    ]
