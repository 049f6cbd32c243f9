"""The PostgreSQL store. Any number of servers share one database, and coordinate by its row and advisory locks.

This file maps each verb of the store protocol to its function, and says how that is run. The function is in the file of its verb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import structlog

from skep.clock import Clock, Instant
from skep.model import Appended, QueueKey, Seq
from skep.model.forgetting import ForgetStep, SeqRange
from skep.model.system_event import EventPosition, SystemEvents
from skep.store.postgres import (
    browse,
    bury,
    chores,
    data_keys,
    dead_letters,
    delete,
    events,
    forget,
    groups,
    history,
    log_position,
    operations,
    pop,
    push,
    push_and_pop,
    put_right,
    queues,
    retain,
    settle,
    settle_and_pop,
    staging,
    stats,
    traces,
    transact,
)
from skep.store.postgres.access import PostgresAccess
from skep.store.postgres.connection import translated
from skep.store.postgres.database import (
    MAX_CONNECTIONS,
    SQL,
    Database,
    announced,
    read,
    read_at_once,
    written,
    written_at_once,
)
from skep.store.postgres.log_cache import LogCache
from skep.store.postgres.records import PostgresRecords
from skep.store.postgres.refusals import PostgresRefusals
from skep.store.postgres.sampling import Sampling
from skep.store.postgres.scheduled import PostgresScheduled
from skep.store.protocol.access import AccessStore
from skep.store.protocol.records import RecordStore
from skep.store.protocol.refusals import RefusalStore
from skep.store.protocol.scheduled import ScheduledStore

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange, NewRows

T = TypeVar("T")

LOG_CACHE_BYTES = 512 * 1024 * 1024

log = structlog.get_logger("skep.store.postgres")


class PostgresStore(Database):
    """Queues in PostgreSQL 15 or newer. Implements `skep.store.protocol.Store`."""

    def __init__(
        self,
        dsn: str,
        *,
        max_connections: int = MAX_CONNECTIONS,
        log_cache_bytes: int = LOG_CACHE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(dsn, max_connections, clock)
        self.access: AccessStore = PostgresAccess(self.pool)
        self.refusals: RefusalStore = PostgresRefusals(self.pool)
        self.records: RecordStore = PostgresRecords(self)
        self.scheduled: ScheduledStore = PostgresScheduled(self.pool, self.news.announce)
        self._log_cache = LogCache(log_cache_bytes)
        self._sampling = Sampling()
        # verbs that the pool and the news have as they are
        self.session = self.pool.name
        self.connections = self.pool.connections
        self.probe = self.pool.probe
        self.waited_seconds = self.pool.waited_seconds
        self.suspend = self.pool.suspend
        self.fence = self.pool.fence
        self.on_news = self.news.on_news
        self.announce_operations = self.news.announce_operations
        self.on_operations = self.news.on_operations

    # queues

    create_queue = written(queues.create_queue)
    update_queue = written(queues.update_queue)
    get_queue = read(queues.get_queue)
    list_queues = read(queues.list_queues)
    tenants = read(queues.tenants)
    sqs_note = read(queues.sqs_note)
    keep_sqs_note = written(queues.keep_sqs_note)
    delete_queue = written(queues.delete_queue)
    clear = groups.clear

    # messages and leases

    push_and_pop = push_and_pop.push_and_pop
    push = push.push
    settle_and_pop = settle_and_pop.settle_and_pop
    pop = pop.pop
    renew = written(settle.renew)
    settle = settle.settle
    transact = transact.transact
    leases = read(stats.leases)
    leased_messages = read(stats.leased_messages)
    end_leases = groups.end_leases
    release_lease = groups.release_lease
    lease_history = read(history.lease_history)

    # groups

    seek = groups.seek
    report_progress = groups.report_progress
    report_progress_of_logs = groups.report_progress_of_logs
    delete_group = written(groups.delete_group)

    # operations

    enqueue = operations.enqueue
    claim_operations = operations.claim
    perform = operations.perform
    give_back = written(operations.give_back)
    cancel_operation = written_at_once(operations.cancel)
    operation = read(operations.find)
    list_operations = read(operations.browse)
    waiting_operations = read(operations.waiting)
    operation_figures = read(operations.figures)
    sweep_operations = written(operations.sweep)

    # the log; what needs the extra `arrow` is imported when it is used

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        """Append messages given as columns: each has a partition and a payload, and all have the same headers."""
        from skep.store.postgres import bulk

        appended, watched = await self.pool.transaction(bulk.append, key, rows, now, create_queue)
        self.news.announce(watched)
        return appended

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """The first piece of a range of the log, as columns."""
        return await self._log_cache.read(self.pool, key, wanted)

    log_bounds = read(browse.log_bounds)
    bounds_of_logs = read(browse.bounds_of_logs)
    first_seqs_at = read(log_position.first_seqs_at)
    last_seqs_within = read(log_position.last_seqs_within)
    progress_of_logs = read(stats.progress_of_logs)
    delete_message = delete.delete_message
    tombstones = read(forget.tombstones)
    letters_of_source = read(forget.letters_of_source)

    async def forget(
        self,
        key: QueueKey,
        log: Instant | None,
        ranges: Sequence[SeqRange],
        after: Seq,
        limit: int,
        now: Instant,
        dry_run: bool = False,
    ) -> ForgetStep:
        """Forget the first messages of some ranges, in the cache of logs, too."""
        step = await forget.forget(self, key, log, ranges, after, limit, now, dry_run)
        for changed in step.queues:
            self._log_cache.drop(changed)
        return step

    # staged messages

    stage = written(staging.stage)
    staged = read(staging.staged)
    staged_queues = read(staging.staged_queues)
    publish = announced(staging.publish)
    abort = written_at_once(staging.abort)

    # dead letters

    count_dead_letters = read(dead_letters.count_dead_letters)
    replay = dead_letters.replay
    replays = read(dead_letters.replays)
    purge = dead_letters.purge
    quarantine = announced(bury.quarantine)
    bury_unfit = written(bury.bury_unfit)
    deaths = read(history.deaths)
    dead_letters = read(dead_letters.dead_letters)

    # keys of payloads

    put_data_key = written(data_keys.put)
    rewrap_data_keys = written(data_keys.rewrap)
    shred_data_keys = written(data_keys.shred)
    reserve_seals = written(data_keys.reserve)
    data_keys = read(data_keys.every)

    # looking around, and back

    messages = read_at_once(browse.messages)
    message = read(browse.message)
    trace = read(traces.trace)
    with_transaction_id = read(traces.with_transaction_id)
    queue_stats = read_at_once(stats.queue_stats)
    stats_of = read_at_once(stats.stats_of)
    partition_stats = read(stats.partition_stats)
    past = read(history.figures)
    deliveries = read(history.deliveries)
    failures = read(history.failures)
    lease_times = read(history.lease_times)
    retention_history = read(stats.retention_history)
    note_trace_events = written(history.note_events)
    trace_events = read(history.events_of_trace)
    named_trace_events = read(history.events_of_name)
    trace_names = read(history.names)

    # chores

    promote = chores.promote
    expire = chores.expire
    retain = retain.retain
    put_right = written(put_right.put_right)
    sweep = chores.sweep

    async def sample(self, now: Instant) -> None:
        """Sample the counters of all queues and tenants, in pieces."""
        await self._sampling.look(self.pool.transaction, now)

    async def maintain(self) -> None:
        """Drop idle chunks of the log cache, follow the database's clock, and compact the state tables if they need it."""
        self._log_cache.drop_idle()
        await self._follow_clock()
        await chores.compact_if_wanted(self)

    async def resume(self) -> None:
        """As `Pool.resume`; then follow the database's clock, which may be another server's now."""
        await self.pool.resume()
        await self._follow_clock()

    # several servers

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        with translated():
            async with self.news.connection() as connection:
                return await events.read(connection, after)

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        with translated():
            await self.news.listen()
        tenants, names = [key.tenant for key in keys], [key.name for key in keys]
        async with self.pool.connection() as connection:
            await connection.execute(SQL["watch"], self.news.server, tenants, names, until)
            await connection.execute(SQL["wait_for_pushes"], tenants, names)
