"""The SQLite store: which function each verb of the protocol is, and whether it writes or reads.

No logic lives here. The functions are in the file of their verb.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skep.clock import Instant
from skep.model import Appended, PopRequest, PushBatch, QueueKey, Renewal, Seq, Settlement
from skep.model.chores import Connections
from skep.model.forgetting import ForgetStep, SeqRange
from skep.model.system_event import EventPosition, SystemEvents
from skep.store.protocol.access import AccessStore
from skep.store.protocol.records import RecordStore
from skep.store.protocol.refusals import RefusalStore
from skep.store.protocol.scheduled import ScheduledStore
from skep.store.sqlite import (
    browse,
    bury,
    chores,
    data_keys,
    dead_letters,
    delete,
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
    vacuum,
)
from skep.store.sqlite.access import SqliteAccess
from skep.store.sqlite.connection import MEMORY
from skep.store.sqlite.database import Database, chore, read, written
from skep.store.sqlite.put_right import write_something
from skep.store.sqlite.records import SqliteRecords
from skep.store.sqlite.refusals import SqliteRefusals
from skep.store.sqlite.sampling import Sampling
from skep.store.sqlite.scheduled import SqliteScheduled

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange, NewRows


def _pushed(batches: Sequence[PushBatch], *_: object, **__: object) -> int:
    return sum([len(batch.ids) for batch in batches])


def _popped(requests: Sequence[PopRequest], *_: object, **__: object) -> int:
    return sum(request.batch for request in requests)


def _pushed_and_popped(batches: Sequence[PushBatch], requests: Sequence[PopRequest], *_: object, **__: object) -> int:
    return _pushed(batches) + _popped(requests)


def _settled(settled: Sequence[Settlement] | Sequence[Renewal], *_: object, **__: object) -> int:
    return len(settled)


def _settled_and_popped(
    settlements: Sequence[Settlement], requests: Sequence[PopRequest], *_: object, **__: object
) -> int:
    return len(settlements) + _popped(requests)


class SqliteStore(Database):
    """Queues in one SQLite file, or in memory. Implements `skep.store.protocol.Store`."""

    def __init__(self, path: str | Path, **knobs: int) -> None:
        super().__init__(path, **knobs)
        self._sampling = Sampling()
        self.access: AccessStore = SqliteAccess(self)
        self.refusals: RefusalStore = SqliteRefusals(self)
        self.records: RecordStore = SqliteRecords(self)
        self.scheduled: ScheduledStore = SqliteScheduled(self)

    # queues

    create_queue = written(queues.create_queue)
    update_queue = written(queues.update_queue)
    get_queue = read(queues.get_queue)
    list_queues = read(queues.list_queues)
    tenants = read(queues.tenants)
    sqs_note = read(queues.sqs_note)
    keep_sqs_note = written(queues.keep_sqs_note)
    delete_queue = written(queues.delete_queue)
    clear = written(groups.clear)

    # messages and leases

    push_and_pop = written(push_and_pop.push_and_pop, _pushed_and_popped)
    push = written(push.push, _pushed)
    settle_and_pop = written(settle_and_pop.settle_and_pop, _settled_and_popped)
    pop = written(pop.pop, _popped)
    renew = written(settle.renew, _settled)
    settle = written(settle.settle, _settled)
    transact = written(transact.transact)
    leases = read(stats.leases)
    leased_messages = read(stats.leased_messages)
    end_leases = written(groups.end_leases)
    release_lease = written(groups.release_lease)
    lease_history = read(history.lease_history)

    # groups

    seek = written(groups.seek)
    report_progress = written(groups.report_progress)
    report_progress_of_logs = written(groups.report_progress_of_logs)
    delete_group = written(groups.delete_group)

    # operations

    enqueue = written(operations.enqueue)
    claim_operations = written(operations.claim)
    perform = written(operations.perform)
    give_back = written(operations.give_back)
    cancel_operation = written(operations.cancel)
    operation = read(operations.find)
    list_operations = read(operations.browse)
    waiting_operations = read(operations.waiting)
    operation_figures = read(operations.figures)
    sweep_operations = written(operations.sweep)

    # the log; modules that need the extra `arrow` are imported at the first use

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        """Append messages that have only a partition and a payload."""
        from skep.store.sqlite import bulk

        packed = await asyncio.to_thread(bulk.pack, rows)
        return await self._write(bulk.append, key, packed, now, create_queue)

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """A range of the log, as columns."""
        from skep.store.sqlite import log

        return await self.read_bulk(log.read_piece, key, wanted)

    log_bounds = read(browse.log_bounds)
    bounds_of_logs = read(browse.bounds_of_logs)
    first_seqs_at = read(log_position.first_seqs_at)
    last_seqs_within = log_position.last_seqs_within
    progress_of_logs = read(stats.progress_of_logs)
    delete_message = written(delete.delete_message)
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
        """Forget the first messages of some ranges."""
        return await forget.forget(self, key, log, ranges, after, limit, now, dry_run)

    # staged messages

    stage = written(staging.stage)
    staged = read(staging.staged)
    staged_queues = read(staging.staged_queues)
    publish = written(staging.publish)
    abort = written(staging.abort)

    # dead letters

    count_dead_letters = read(dead_letters.count_dead_letters)
    replay = dead_letters.replay
    replays = read(dead_letters.replays)
    purge = dead_letters.purge
    quarantine = written(bury.quarantine)
    bury_unfit = written(bury.bury_unfit)
    deaths = read(history.deaths)
    dead_letters = read(dead_letters.dead_letters)

    # keys of payloads

    put_data_key = written(data_keys.put)
    rewrap_data_keys = data_keys.rewrap
    shred_data_keys = data_keys.shred
    reserve_seals = written(data_keys.reserve)
    data_keys = read(data_keys.every)

    # looking around, and back

    messages = read(browse.messages)
    message = read(browse.message)
    trace = read(traces.trace)
    with_transaction_id = read(traces.with_transaction_id)
    queue_stats = read(stats.queue_stats)
    stats_of = read(stats.stats_of)
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

    promote = chore(chores.promote)
    expire = chore(chores.expire)
    retain = chore(retain.retain)
    sweep = chore(chores.sweep)
    put_right = written(put_right.put_right)

    async def sample(self, now: Instant) -> None:
        """Sample the changed counters, in pieces."""
        await self._sampling.look(self, now)

    async def maintain(self) -> None:
        """Cut the write-ahead log if that is due, and give free pages of the file back."""
        if self._writer is None or self._path == MEMORY:
            return
        await self._writer.cut_log_if_due()
        for _ in range(vacuum.STEPS):
            if not await self._writer.call(self._shrinking.step, bare=True, piece=True):
                return

    def connections(self) -> Connections:
        """There is no pool, so there is nothing to count."""
        return Connections()

    # sessions: a local file has none that could be lost

    @property
    def session(self) -> str:
        """Empty: there are no sessions."""
        return ""

    async def probe(self) -> None:
        """If the last write was refused, try another; raises its error."""
        if self._writer is not None and self._writer.refused is not None:
            await self._write(write_something)

    def waited_seconds(self) -> float:
        """Always 0: a local file does not hang."""
        return 0.0

    def suspend(self) -> None:
        """There are no sessions to give up."""

    async def resume(self) -> None:
        """There are no sessions to open."""

    async def fence(self, sessions: Sequence[str]) -> None:
        """There are no sessions to end."""

    # news between servers: an SQLite file has one server, so there is none

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        """There is no other server that could change anything."""
        return SystemEvents(after or EventPosition(), [])

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        """There is no other server that could announce a push."""

    def on_news(self, callback: Callable[[QueueKey], None], missed: Callable[[], None]) -> None:
        """There is no other server that could bring news."""

    def announce_operations(self) -> None:
        """There is no other server that could perform them."""

    def on_operations(self, callback: Callable[[], None]) -> None:
        """There is no other server that could have any."""
