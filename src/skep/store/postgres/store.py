"""The PostgreSQL store: any number of servers share one database; all coordination is row and advisory locks in it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from skep.clock import Clock, Instant, SystemClock
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    Appended,
    Cleared,
    ClearScope,
    DeadLetter,
    DeadLetterFilter,
    DeletedMessage,
    Edited,
    GroupStats,
    LeaseInfo,
    LogBounds,
    MessageFilter,
    MessagePage,
    NewMessage,
    PartitionStats,
    PopRequest,
    PopResult,
    PurgeStep,
    PushBatch,
    PushOutcome,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    QueueStats,
    Renewal,
    RenewResult,
    ReplayStep,
    Seq,
    Settlement,
    SettleResult,
    Start,
    StoredMessage,
    Token,
)
from skep.model.data_key import WrappedKey
from skep.model.history import (
    Death,
    FailedAttempt,
    FinishedLease,
    Journey,
    LeaseTime,
    Moment,
    ReplayRecord,
    RetentionPass,
    TraceEvent,
    TraceName,
)
from skep.model.operation import (
    Claim,
    Claimed,
    ClaimLimits,
    Enqueued,
    GivenBack,
    NewOperations,
    Operation,
    OperationFigures,
    OperationFilter,
    OperationPage,
    Performed,
    WaitingOperations,
)
from skep.model.record import MAX_BYTES, Buried, Receipt, ReceiptKey, Unfit
from skep.model.staging import Attempt, Chunk, EpochKey, Published
from skep.model.system_event import EventPosition, SystemEventKind, SystemEvents
from skep.model.transaction import Transaction, TransactionOutcome
from skep.model.upkeep import Chore, Connections
from skep.store.postgres import (
    browse,
    bury,
    chores,
    data_keys,
    dead_letters,
    events,
    groups,
    history,
    log_position,
    operations,
    pop,
    push,
    push_and_pop,
    put_right,
    queues,
    settle,
    settle_and_pop,
    staging,
    stats,
    traces,
    transact,
)
from skep.store.postgres.access import PostgresAccess
from skep.store.postgres.connection import Connection, Pool, translated
from skep.store.postgres.delete import delete_message
from skep.store.postgres.log_cache import LogCache
from skep.store.postgres.news import News
from skep.store.postgres.outcomes import settle_once
from skep.store.postgres.records import PostgresRecords
from skep.store.postgres.refusals import PostgresRefusals
from skep.store.postgres.sampling import Sampling
from skep.store.postgres.scheduled import PostgresScheduled
from skep.store.postgres.schema import migrate
from skep.store.protocol.access import AccessStore
from skep.store.protocol.records import RecordStore
from skep.store.protocol.refusals import RefusalStore
from skep.store.protocol.scheduled import ScheduledStore
from skep.store.rules import Attendance, HeadWalk
from skep.store.statements import load_statements

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange, NewRows

SQL = load_statements(__package__, "watching")
CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

T = TypeVar("T")

SHARDS = 16
MAX_CONNECTIONS = 10
LOG_CACHE_BYTES = 512 * 1024 * 1024

log = structlog.get_logger("skep.store.postgres")


class PostgresStore:
    """Queues in PostgreSQL 15 or newer. Implements `skep.store.protocol.Store`."""

    def __init__(
        self,
        dsn: str,
        *,
        max_connections: int = MAX_CONNECTIONS,
        log_cache_bytes: int = LOG_CACHE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._news = News(dsn)
        self._pool = Pool(dsn, max_connections, self._news.server)
        self.access: AccessStore = PostgresAccess(self._pool)
        self.refusals: RefusalStore = PostgresRefusals(self._pool)
        self.records: RecordStore = PostgresRecords(self._pool)
        self.scheduled: ScheduledStore = PostgresScheduled(self._pool, self._news.announce)
        self._log_cache = LogCache(log_cache_bytes)
        self._clock = clock
        # Servers that share a shard only wait for each other a little; with sixteen they seldom do.
        self._shard = secrets.randbelow(SHARDS)
        self._head_walk = HeadWalk()
        self._attendance = Attendance()
        self._sampling = Sampling()

    async def open(self) -> None:
        """Connect, migrate, and set the clock by the database's."""
        await self._pool.open()
        await self._pool.transaction(migrate)
        await self._follow_clock()

    async def close(self) -> None:
        """Finish what runs and disconnect."""
        await self._news.close()
        await self._pool.close()

    async def _follow_clock(self) -> None:
        if isinstance(self._clock, SystemClock):
            async with self._pool.connection() as connection:
                asked_at = time.monotonic_ns()
                reference = Instant(await connection.fetchval(CLOCK))
                self._clock.follow(reference, (time.monotonic_ns() - asked_at) // 1_000)

    # queues

    async def create_queue(self, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
        # Nobody holds anything of a queue that was not there, so nobody is told.
        return await self._pool.transaction(lambda c: queues.create(c, key, settings, now))

    async def update_queue(self, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
        return await self._changing(key, now, lambda c: queues.update(c, key, changes, now))

    async def _changing(self, key: QueueKey, now: Instant, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Change a queue, and tell the other servers."""

        async def told(connection: Connection) -> T:
            done = await work(connection)
            await events.note(connection, SystemEventKind.QUEUE, key, now)
            return done

        return await self._pool.transaction(told)

    async def get_queue(self, key: QueueKey) -> Queue | None:
        async with self._pool.connection() as connection:
            return await queues.find(connection, key)

    async def list_queues(
        self,
        tenant: str,
        after: str = "",
        limit: int = 100,
        namespace: str | None = None,
        task: str | None = None,
    ) -> list[Queue]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(queues.SQL["list"], tenant, after, limit, namespace, task)
        return [queues.queue_of(row) for row in rows]

    async def tenants(self, after: str = "", limit: int = 100) -> list[str]:
        async with self._pool.connection() as connection:
            return [row["tenant"] for row in await connection.fetch(queues.SQL["tenants"], after, limit)]

    async def delete_queue(self, key: QueueKey, now: Instant) -> bool:
        return await self._changing(key, now, lambda c: queues.delete(c, key, now))

    # the log

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        if not batches:
            return []
        done = None
        if push.is_small(batches, now):
            done = await self._pool.once(lambda c: push.push_small(c, batches, now))
        if done is None:
            ensure = queues.ensure if create_queues else None
            done = await self._pool.transaction(lambda c: push.push(c, batches, now, ensure))
        outcomes, watched = done
        self._news.announce(watched)
        return outcomes

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        popped: list[PopResult | None] = [None] * len(requests)
        numbers = push_and_pop.first_shape(batches, requests) if push.is_small(batches, now) else []
        if numbers:
            wanted = [requests[number] for number in numbers]
            done = await self._pool.once(lambda c: push_and_pop.push_and_pop(c, batches, wanted, now, self._shard))
            if done is not None:
                self._news.announce(done.watched)
                for number, found in zip(numbers, done.popped, strict=True):
                    popped[number] = found
                return done.outcomes, popped
        return await self.push(batches, now, create_queues), popped

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        buried = 0
        for _ in range(pop.TIDY_PASSES):
            try:
                shapes = pop.by_shape(requests)
                if len(shapes) == 1 and not any(request.auto_ack for request in requests):
                    # One statement is a transaction by itself.
                    (shape,) = shapes
                    quick = await self._pool.once(
                        partial(pop.pop_ordered, shape=shape, requests=requests, now=now, shard=self._shard)
                    )
                    if quick is not None:
                        return quick
                return await self._pool.transaction(lambda c: pop.pop_all(c, requests, now, self._shard))
            except pop.TidyingNeededError:
                if buried >= pop.BURIALS_PER_POP:
                    break
                buried += await self._tidy(requests, now)
        return [PopResult([], more=True) for _ in requests]

    async def _tidy(self, requests: Sequence[PopRequest], now: Instant) -> int:
        """Put right what stands in the way of pops, after finding it again: with a pop's transaction, its discovery was undone.

        How many messages died of their attempts.
        """
        shapes = pop.by_shape(requests)
        for shape in shapes:
            # Apart from tidying: who makes a group has the queue's log, and must not bury in another.
            await self._pool.transaction(partial(pop.discover_old, shape=shape, now=now, shard=self._shard))
        buried = 0
        for shape, numbers in shapes.items():
            rows = sum(requests[n].batch for n in numbers)  # no pop looks at more
            work = partial(pop.tidy_for, shape=shape, rows=rows, now=now, shard=self._shard)
            buried += await self._pool.transaction(work)
        return buried

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        if not settlements:
            return []
        if not settle.is_simple(settlements):
            return await self._pool.transaction(lambda c: settle_once(c, settlements, now, self._shard))
        quick = await self._pool.once(lambda c: settle.settle_acks(c, settlements, now, self._shard))
        return await self._settle_rest(settlements, quick, now)

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        popped: list[PopResult | None] = [None] * len(requests)
        numbers = settle_and_pop.first_shape(settlements, requests)
        if not numbers:
            return await self.settle(settlements, now), popped
        wanted = [requests[number] for number in numbers]
        quick, found = await self._pool.once(
            lambda c: settle_and_pop.settle_and_pop(c, settlements, wanted, now, self._shard)
        )
        for number, result in zip(numbers, found, strict=True):
            popped[number] = result
        return await self._settle_rest(settlements, quick, now), popped

    async def _settle_rest(
        self, settlements: Sequence[Settlement], quick: Sequence[SettleResult | None], now: Instant
    ) -> list[SettleResult]:
        # What the fast way left alone it did not touch, so a transaction of its own decides about it.
        left = [settlement for settlement, result in zip(settlements, quick, strict=True) if result is None]
        careful = iter(await self._pool.transaction(lambda c: settle_once(c, left, now, self._shard)) if left else [])
        return [next(careful) if result is None else result for result in quick]

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        return await self._pool.transaction(lambda c: settle.renew(c, renewals, now))

    async def transact(
        self, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
    ) -> list[TransactionOutcome]:
        outcomes, watched = await transact.transact_once(self._pool, transactions, now, create_queues, self._shard)
        self._news.announce(watched)
        return outcomes

    # operations

    async def enqueue(self, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
        return await self._pool.once(lambda c: operations.enqueue(c, requests, now))

    async def claim_operations(self, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> Claim:
        return await self._pool.once(lambda c: operations.claim(c, worker, token, limits, now, self._head_walk))

    async def perform(
        self, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
    ) -> Performed:
        ensure = queues.ensure if create_queues else None
        try:
            performed, watched = await self._pool.transaction(
                lambda c: operations.perform(c, token, claimed, now, ensure, self._shard)
            )
        except operations.RefusedError as refused:
            return refused.performed
        self._news.announce(watched)
        return performed

    async def give_back(self, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
        return await self._pool.transaction(lambda c: operations.give_back(c, token, back, now))

    async def cancel_operation(self, tenant: str, id_: Id, now: Instant) -> bool:
        async with self._pool.connection() as connection:
            return await operations.cancel(connection, tenant, id_, now)

    async def operation(self, tenant: str, id_: Id) -> Operation | None:
        async with self._pool.connection() as connection:
            return await operations.find(connection, tenant, id_)

    async def list_operations(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        async with self._pool.connection() as connection:
            return await operations.browse(connection, wanted, after, limit)

    async def waiting_operations(self, now: Instant, limit: int) -> WaitingOperations:
        async with self._pool.connection() as connection:
            return await operations.waiting(connection, now, limit)

    async def operation_figures(self, tenant: str, limit: int) -> list[OperationFigures]:
        async with self._pool.connection() as connection:
            return await operations.figures(connection, tenant, limit)

    async def sweep_operations(self, completed_before: Instant, ended_before: Instant, limit: int) -> int:
        return await self._pool.transaction(lambda c: operations.sweep(c, completed_before, ended_before, limit))

    # the log in bulk; what needs the extra `arrow` is imported when it is used

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        from skep.store.postgres import bulk

        ensure = queues.ensure if create_queue else None
        appended, watched = await self._pool.transaction(lambda c: bulk.append(c, key, rows, now, ensure))
        self._news.announce(watched)
        return appended

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        return await self._log_cache.read(self._pool, key, wanted)

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        async with self._pool.connection() as connection:
            return await browse.log_bounds(connection, key)

    async def bounds_of_logs(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        async with self._pool.connection() as connection:
            return await browse.bounds_of_logs(connection, tenant, queues)

    async def first_seq_at(self, key: QueueKey, at: Instant) -> Seq:
        async with self._pool.connection() as connection:
            return await log_position.first_seq_at(connection, key, at)

    async def last_seq_within(self, key: QueueKey, first: Seq, max_bytes: int, max_rows: int) -> Seq:
        async with self._pool.connection() as connection:
            return await log_position.last_seq_within(connection, key, first, max_bytes, max_rows)

    # messages that are staged

    async def stage(self, chunk: Chunk, now: Instant) -> None:
        await self._pool.transaction(lambda c: staging.stage(c, chunk, now))

    async def staged_queues(self, epoch: EpochKey) -> list[str]:
        async with self._pool.connection() as connection:
            return await staging.queues(connection, epoch)

    async def staged(self, epoch: EpochKey) -> list[tuple[Attempt, int]]:
        async with self._pool.connection() as connection:
            return await staging.attempts(connection, epoch)

    async def publish(
        self,
        epoch: EpochKey,
        attempts: list[Attempt],
        first_id: Id,
        expires_at: Instant,
        now: Instant,
        create_queues: bool = True,
    ) -> Published:
        ensure = queues.ensure if create_queues else None
        published, watched = await self._pool.transaction(
            lambda c: staging.publish(c, epoch, attempts, first_id, expires_at, now, ensure)
        )
        self._news.announce(watched)
        return published

    async def abort(self, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
        async with self._pool.connection() as connection:
            return await staging.abort(connection, epoch, partition, attempt)

    # dead letters

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        async with self._pool.connection() as connection:
            return await dead_letters.browse(connection, wanted, after, limit, max_bytes)

    async def count_dead_letters(self, wanted: DeadLetterFilter) -> int:
        async with self._pool.connection() as connection:
            return await dead_letters.count(connection, wanted)

    async def replay(
        self,
        wanted: DeadLetterFilter,
        ids: Sequence[Id],
        until: Seq,
        now: Instant,
        edited: Edited | None = None,
        after: Seq | None = None,
    ) -> ReplayStep:
        step, watched = await self._pool.piece(
            "replay",
            lambda c, size: dead_letters.replay(c, wanted, ids[:size], until, now, self._shard, edited, after),
            len(ids),
            lambda done: done[0].after is not None,
        )
        self._news.announce(watched)
        return step

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        async with self._pool.connection() as connection:
            return await dead_letters.replays(connection, key, source_queue, before, limit)

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None) -> PurgeStep:
        return await self._pool.piece(
            "purge",
            lambda c, size: dead_letters.purge(c, wanted, size, now, self._shard, after),
            limit,
            lambda step: step.after is not None,
        )

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        outcome, watched = await self._pool.transaction(lambda c: bury.quarantine(c, message, id_, error, receipt, now))
        self._news.announce(watched)
        return outcome

    async def bury_unfit(
        self, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
    ) -> Buried:
        return await self._pool.transaction(lambda c: bury.bury_unfit(c, key, unfit, receipt, expires_at, now))

    # keys of payloads

    async def put_data_key(self, key: WrappedKey) -> None:
        await self._pool.transaction(lambda c: data_keys.put(c, key))

    async def data_keys(self) -> list[WrappedKey]:
        async with self._pool.connection() as connection:
            return await data_keys.every(connection)

    async def rewrap_data_keys(self, keys: Sequence[WrappedKey], was: str) -> int:
        return await self._pool.transaction(lambda c: data_keys.rewrap(c, keys, was))

    async def shred_data_keys(self, tenant: str, queue: str | None, now: Instant) -> int:
        return await self._pool.transaction(lambda c: data_keys.shred(c, tenant, queue, now))

    async def reserve_seals(self, id_: Id, messages: int) -> int | None:
        return await self._pool.transaction(lambda c: data_keys.reserve(c, id_, messages))

    # groups and progress

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        await self._tell_waiting(await self._pool.transaction(lambda c: groups.seek(c, key, group, start, now)), now)
        async with self._pool.connection() as connection:
            return await stats.group_stats(connection, key, group, now)

    async def report_progress(self, key: QueueKey, group: str, seq: Seq, now: Instant) -> GroupStats:
        await self._pool.transaction(lambda c: groups.report_progress(c, key, group, seq, now, self._shard))
        async with self._pool.connection() as connection:
            return await stats.group_stats(connection, key, group, now)

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:  # noqa: ARG002 - the protocol gives it
        return await self._pool.transaction(lambda c: groups.delete(c, key, group))

    async def end_leases(self, key: QueueKey, group: str, partition: str, now: Instant) -> int:
        ended, queue = await self._pool.transaction(lambda c: groups.end_leases(c, key, group, partition, now))
        await self._tell_waiting(queue, now)
        return ended

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
        released, queue = await self._pool.transaction(
            lambda c: groups.release_lease(c, key, group, partition, token, now)
        )
        await self._tell_waiting(queue, now)
        return released

    async def _tell_waiting(self, queues: list[int], now: Instant) -> None:
        """Let other servers look at queues where messages became ready, if one of them waits there.

        Asked after the commit: whoever begins to wait after this finds what there is. A failure costs time, and undoes nothing.
        """
        if not queues:
            return
        with suppress(SkepError):
            async with self._pool.connection() as connection:
                self._news.announce([row["id"] for row in await connection.fetch(SQL["watched"], queues, now)])

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
    ) -> DeletedMessage:
        deleted, changed = await self._pool.transaction(
            lambda c: delete_message(c, key, seq, id_, now, self._shard, dry_run)
        )
        await self._tell_waiting(changed, now)
        return deleted

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        return await self._pool.transaction(lambda c: groups.clear(c, key, scope, now, self._shard))

    # looking around

    async def queue_stats(self, key: QueueKey, now: Instant) -> QueueStats:
        # One snapshot: an account must add up whatever happens meanwhile (I12).
        return await self._pool.transaction(lambda c: stats.queue_stats(c, key, now), "repeatable_read")

    async def stats_of(self, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
        return await self._pool.transaction(lambda c: stats.stats_of(c, queues, now), "repeatable_read")

    async def partition_stats(
        self, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
    ) -> list[PartitionStats]:
        async with self._pool.connection() as connection:
            return await stats.partition_stats(connection, key, group, now, after, limit)

    async def leases(
        self,
        tenant: str,
        now: Instant,
        key: QueueKey | None = None,
        expiring_before: Instant | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        async with self._pool.connection() as connection:
            return await stats.leases(connection, tenant, now, key, expiring_before, limit)

    async def messages(self, wanted: MessageFilter, now: Instant) -> MessagePage:
        return await self._pool.transaction(lambda c: browse.messages(c, wanted, now), "repeatable_read")

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage | None:
        async with self._pool.connection() as connection:
            return await browse.message(connection, key, seq)

    async def trace(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[StoredMessage]:
        async with self._pool.connection() as connection:
            return await traces.trace(connection, tenant, trace_id, limit)

    async def with_transaction_id(self, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
        async with self._pool.connection() as connection:
            return await traces.with_transaction_id(connection, tenant, transaction_id, limit)

    async def lease_history(
        self, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        async with self._pool.connection() as connection:
            return await history.lease_history(connection, key, after, limit, since)

    async def retention_history(self, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
        async with self._pool.connection() as connection:
            return await stats.retention_history(connection, key, limit)

    # the past

    async def past(self, tenant: str, names: Sequence[str] | None, since: Instant) -> list[list[Moment]]:
        async with self._pool.connection() as connection:
            return await history.figures(connection, tenant, names, since)

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        async with self._pool.connection() as connection:
            return await history.deliveries(connection, journeys)

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        async with self._pool.connection() as connection:
            return await history.failures(connection, places)

    async def lease_times(self, key: QueueKey, since: Instant) -> list[LeaseTime]:
        async with self._pool.connection() as connection:
            return await history.lease_times(connection, key, since)

    async def note_trace_events(self, tenant: str, events: Sequence[TraceEvent]) -> None:
        await self._pool.transaction(lambda c: history.note_events(c, tenant, events))

    async def trace_events(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
        async with self._pool.connection() as connection:
            return await history.events_of_trace(connection, tenant, trace_id, limit)

    async def named_trace_events(
        self, tenant: str, name: str, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        async with self._pool.connection() as connection:
            return await history.events_of_name(connection, tenant, name, before, limit)

    async def trace_names(self, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
        async with self._pool.connection() as connection:
            return await history.names(connection, tenant, after, limit)

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        async with self._pool.connection() as connection:
            return await history.deaths(connection, key, limit)

    # chores

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        done, watched = await self._pool.piece(
            "promote", lambda c, size: chores.promote(c, key, now, size), limit, lambda promoted: promoted[0].more
        )
        self._news.announce(watched)
        return done

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        return await self._chore("expire", lambda c, size: chores.expire(c, key, now, size, self._shard), limit)

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        idle_too = self._attendance.may_mark_idle(now)
        await self._pool.transaction(lambda c: chores.mark_idle(c, key, now, idle_too))
        return await self._chore("retain", lambda c, size: chores.retain(c, key, now, size, self._shard), limit)

    async def put_right(self, now: Instant, limit: int) -> Chore:
        return await self._pool.transaction(lambda c: put_right.put_right(c, now, limit))

    async def sample(self, now: Instant) -> None:
        """Note which counters changed, in pieces."""
        await self._sampling.look(self._pool.transaction, now)

    async def sweep(self, now: Instant, limit: int) -> Chore:
        return await self._chore("sweep", lambda c, size: chores.sweep(c, now, size), limit)

    async def _chore(self, kind: str, work: Callable[[Connection, int], Awaitable[Chore]], most: int) -> Chore:
        return await self._pool.piece(kind, work, most, lambda chore: chore.more)

    def connections(self) -> Connections:
        """How busy the pool is."""
        return self._pool.connections()

    async def maintain(self) -> None:
        """Let go of what is kept for nobody, follow the database's clock, and compact the state tables when dead versions
        outnumber the live by far.
        """
        self._log_cache.drop_idle()
        await self._follow_clock()
        async with self._pool.connection() as connection:
            if not await connection.fetchval("SELECT wants_compaction()"):
                return
        try:
            await self._pool.transaction(_compact)
        except SkepError as error:
            if error.code is not Code.STORE_BUSY:
                raise
            log.info("compaction postponed", reason=error.message)

    # being cut off

    @property
    def session(self) -> str:
        return self._pool.name

    async def probe(self) -> None:
        await self._pool.probe()

    def waited_seconds(self) -> float:
        return self._pool.waited_seconds()

    def suspend(self) -> None:
        self._pool.suspend()

    async def resume(self) -> None:
        await self._pool.resume()
        await self._follow_clock()

    async def fence(self, sessions: Sequence[str]) -> None:
        await self._pool.fence(sessions)

    # several servers

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        with translated():
            async with self._news.connection() as connection:
                return await events.read(connection, after)

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        with translated():
            await self._news.listen()
        tenants, names = [key.tenant for key in keys], [key.name for key in keys]
        async with self._pool.connection() as connection:
            await connection.execute(SQL["watch"], self._news.server, tenants, names, until)
            await connection.execute(SQL["wait_for_pushes"], tenants, names)

    def on_news(self, callback: Callable[[QueueKey], None]) -> None:
        self._news.on_news(callback)

    def announce_operations(self) -> None:
        self._news.announce_operations()

    def on_operations(self, callback: Callable[[], None]) -> None:
        self._news.on_operations(callback)


async def _compact(connection: Connection) -> None:
    # A dump or a long statement may hold these tables: better to try again later than to make every popper wait behind us.
    await connection.execute("SET LOCAL lock_timeout = '100ms'")
    await connection.execute("SELECT compact()")
