"""The SQLite store: every verb of the protocol, handed to the writing or the reading thread.

No logic lives here: a verb is one function of one session, run whole or not at all by the writer or in one snapshot by the
reader. In `:memory:` there is one connection, so reads go through the writer too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from skep.clock import Instant
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
from skep.model.system_event import EventPosition, SystemEvents
from skep.model.transaction import Transaction, TransactionOutcome
from skep.model.upkeep import Chore, Connections
from skep.store.pieces import Pieces
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
    discover,
    groups,
    history,
    log_position,
    operations,
    pop,
    put_right,
    queues,
    receipts,
    retain,
    settle,
    staging,
    stats,
    transact,
    vacuum,
)
from skep.store.sqlite.access import SqliteAccess
from skep.store.sqlite.calls import Piece, Reader, Work
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.connection import MEMORY, FileLock, Knobs, migrate, open_reader, open_writer
from skep.store.sqlite.delete import delete_message
from skep.store.sqlite.records import SqliteRecords
from skep.store.sqlite.refusals import SqliteRefusals
from skep.store.sqlite.sampling import Sampling
from skep.store.sqlite.scheduled import SqliteScheduled
from skep.store.sqlite.session import Session
from skep.store.sqlite.writer import PIECE_SECONDS, Writer

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange, NewRows

T = TypeVar("T")

MANY_MESSAGES = 2_000
"""A call that touches so many messages would keep the event loop from its other callers, and is made in a thread."""


class SqliteStore:
    """Queues in one SQLite file, or in memory. One process at a time; all its callers share one connection that writes."""

    def __init__(self, path: str | Path, **knobs: int) -> None:
        """``knobs`` are those of `Knobs`."""
        self._path = os.fspath(path)
        self._knobs = Knobs(**knobs)
        self._lock: FileLock | None = None
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._bulk_readers: list[Reader] = []
        self._bulk_start = asyncio.Lock()
        self._bulk_turn = 0
        self._pieces = Pieces(PIECE_SECONDS)
        self._sampling = Sampling()
        self._shrinking = vacuum.Shrinking()
        self.access: AccessStore = SqliteAccess(self._write, self._read)
        self.refusals: RefusalStore = SqliteRefusals(self._write, self._read)
        self.records: RecordStore = SqliteRecords(self._write, self._read)
        self.scheduled: ScheduledStore = SqliteScheduled(self._piece, self._read)

    @property
    def commits(self) -> int:
        """How many transactions the writer has committed since it was opened."""
        return self._writer.commits if self._writer is not None else 0

    async def open(self) -> None:
        """Lock the file, connect and migrate."""
        knobs = self._knobs
        self._writer = Writer(self._path, self._connect, knobs.busy_timeout_ms, knobs.max_calls_per_commit)
        try:
            await self._writer.start()
            if self._path != MEMORY:
                self._reader = self._make_reader("reader")
                await self._reader.start()
        except BaseException:
            await self.close()
            raise

    def _connect(self) -> Session:
        if self._path != MEMORY:
            self._lock = FileLock(self._path, self._knobs.busy_timeout_ms)
            vacuum.drop_unfinished(Path(self._path).resolve())
        db = open_writer(self._path, self._knobs)
        try:
            migrate(db, self._path)
            db.execute(operations.SQL["release_claims"])
        except BaseException:
            db.close()
            raise
        if self._path == MEMORY:
            return Session(db)
        checkpoints = Checkpoints(db, self._knobs.checkpoint_pages, lambda: open_writer(self._path, self._knobs))
        with suppress(apsw.Error):  # a full disk: the next upkeep tries again
            checkpoints.cut()  # whoever had the file before may have died before they could
        return Session(db, checkpoints)

    def _make_reader(self, name: str) -> Reader:
        return Reader(f"skep-sqlite-{name}", self._path, self._connect_reader)

    def _connect_reader(self) -> Session:
        return Session(open_reader(self._path, self._knobs))

    async def close(self) -> None:
        """Finish what runs, then let go of the connections and of the file."""
        for thread in (*self._bulk_readers, self._reader, self._writer):
            if thread is not None:
                await thread.stop()
        self._reader, self._writer, self._bulk_readers = None, None, []
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _write(self, work: Work[T], messages: int = MANY_MESSAGES) -> T:
        """Write; ``messages`` is how many are touched at the most, if that is known: few of them are written at once."""
        if self._writer is None:
            raise SkepError(Code.STORE_UNAVAILABLE, f"{self._path} is not open")
        return await self._writer.call(work, short=messages < MANY_MESSAGES)

    async def _piece(self, kind: str, work: Piece[T], most: int, more: Callable[[T], bool]) -> T:
        """Write a piece of a chore, behind all callers: ``work`` is told how many messages it may touch, at most ``most``.

        ``more`` tells from what it returns whether there is more to do.
        """
        if self._writer is None:
            raise SkepError(Code.STORE_UNAVAILABLE, f"{self._path} is not open")
        writer, pieces = self._writer, self._pieces

        def piece(session: Session) -> T:
            pieces.seconds = writer.piece_seconds
            return pieces.measured(kind, most, lambda size: work(session, size), more)

        return await writer.piece(piece, long=pieces.is_long(kind))

    async def _chore(self, kind: str, work: Piece[Chore], most: int) -> Chore:
        return await self._piece(kind, work, most, lambda chore: chore.more)

    async def _destroy(self, work: Work[T], done: str) -> T:
        """Write, and leave nothing of what was before in the write-ahead log."""
        value = await self._write(work)
        if self._writer is not None and self._path != MEMORY:
            await self._writer.cut_log(done)
        return value

    async def _read_bulk(self, work: Work[T]) -> T:
        """Read much, out of the way of those who read little; several at once."""
        if self._reader is None:
            return await self._read(work)
        async with self._bulk_start:
            while len(self._bulk_readers) < self._knobs.bulk_readers:
                reader = self._make_reader(f"bulk-reader-{len(self._bulk_readers)}")
                await reader.start()
                self._bulk_readers.append(reader)
        self._bulk_turn += 1
        return await self._bulk_readers[self._bulk_turn % len(self._bulk_readers)].call(work)

    async def _read(self, work: Work[T]) -> T:
        if self._reader is None:
            return await self._write(work)
        return await self._reader.call(work)

    # queues

    async def create_queue(self, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
        """Create; QUEUE_EXISTS when there is one, DEAD_LETTER_… when the dead-letter rules forbid it."""
        return await self._write(lambda session: queues.create_queue(session, key, settings, now))

    async def update_queue(self, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
        """Change what is given."""
        return await self._write(lambda session: queues.update_queue(session, key, changes, now))

    async def get_queue(self, key: QueueKey) -> Queue | None:
        """The queue, or None."""
        return await self._read(lambda session: queues.get_queue(session, key))

    async def list_queues(
        self, tenant: str, after: str = "", limit: int = 100, namespace: str | None = None, task: str | None = None
    ) -> list[Queue]:
        """Queues of a tenant by name."""
        return await self._read(lambda session: queues.list_queues(session, tenant, after, limit, namespace, task))

    async def tenants(self, after: str = "", limit: int = 100) -> list[str]:
        """Tenants that have queues, by name."""
        return await self._read(lambda session: queues.tenants(session, after, limit))

    async def delete_queue(self, key: QueueKey, now: Instant) -> bool:
        """Delete with all it holds; False when there is none."""
        return await self._write(lambda session: queues.delete_queue(session, key, now))

    # the log

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        """Append every batch that is not refused."""
        messages = sum(len(batch.ids) for batch in batches)
        return await self._write(lambda session: receipts.push(session, batches, now, create_queues), messages)

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """Append, and lease what is ready then, in one transaction."""
        messages = sum(len(batch.ids) for batch in batches) + sum(request.batch for request in requests)

        def work(session: Session) -> tuple[list[PushOutcome], list[PopResult | None]]:
            outcomes = receipts.push(session, batches, now, create_queues)
            popped: list[PopResult | None] = [pop.pop_if_any(session, request, now) for request in requests]
            return outcomes, popped

        return await self._write(work, messages)

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        """Lease messages for each request in turn."""
        messages = sum(request.batch for request in requests)
        return await self._write(lambda session: pop.pop(session, requests, now), messages)

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        """Settle each message on its own merits."""
        return await self._write(lambda session: settle.settle(session, settlements, now), len(settlements))

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """Settle, and lease what that frees, in one transaction."""
        messages = len(settlements) + sum(request.batch for request in requests)

        def work(session: Session) -> tuple[list[SettleResult], list[PopResult | None]]:
            results = settle.settle(session, settlements, now)
            freed = {(s.queue, s.group) for s, r in zip(settlements, results, strict=True) if r.frees}
            popped = [
                pop.pop_if_any(session, request, now) if (request.queue, request.group) in freed else None
                for request in requests
            ]
            return results, popped

        return await self._write(work, messages)

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        """Move the deadline of each lease whose token is still good."""
        return await self._write(lambda session: settle.renew(session, renewals, now), len(renewals))

    async def transact(
        self, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
    ) -> list[TransactionOutcome]:
        """Each transaction whole or not at all."""
        return await self._write(lambda session: transact.transact(session, transactions, now, create_queues))

    # operations

    async def enqueue(self, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
        """Keep each call, whole, as operations."""
        return await self._write(lambda session: operations.enqueue(session, requests, now))

    async def claim_operations(self, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> Claim:
        """Take the next operations."""
        return await self._write(lambda session: operations.claim(session, worker, token, limits, now))

    async def perform(
        self, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
    ) -> Performed:
        """Do what claimed operations ask for, and end them."""
        return await self._write(lambda session: operations.perform(session, token, claimed, now, create_queues))

    async def give_back(self, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
        """Let go of operations that were not performed."""
        return await self._write(lambda session: operations.give_back(session, token, back, now))

    async def cancel_operation(self, tenant: str, id_: Id, now: Instant) -> bool:
        """End an operation that is pending."""
        return await self._write(lambda session: operations.cancel(session, tenant, id_, now))

    async def operation(self, tenant: str, id_: Id) -> Operation | None:
        """An operation, or None."""
        return await self._read(lambda session: operations.find(session, tenant, id_))

    async def list_operations(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        """Operations, newest first."""
        return await self._read(lambda session: operations.browse(session, wanted, after, limit))

    async def waiting_operations(self, now: Instant, limit: int) -> WaitingOperations:
        """What is live."""
        return await self._read(lambda session: operations.waiting(session, now, limit))

    async def operation_figures(self, tenant: str, limit: int) -> list[OperationFigures]:
        """Figures by kind and status."""
        return await self._read(lambda session: operations.figures(session, tenant, limit))

    async def sweep_operations(self, completed_before: Instant, ended_before: Instant, limit: int) -> int:
        """Forget operations that ended long ago."""
        return await self._write(lambda session: operations.sweep(session, completed_before, ended_before, limit))

    # the log in bulk; what needs the extra `arrow` is imported when it is used

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        """Append messages that have nothing but a partition and a payload."""
        from skep.store.sqlite import bulk

        packed = await asyncio.to_thread(bulk.pack, rows)
        return await self._write(lambda session: bulk.append(session, key, packed, now, create_queue))

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """A range of the log, as columns."""
        from skep.store.sqlite import log

        return await self._read_bulk(lambda session: log.piece_of(wanted, log.read(session, key, wanted)))

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        """Which seqs the log holds."""
        return await self._read(lambda session: browse.log_bounds(session, key))

    async def bounds_of_logs(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        """Which seqs some logs hold."""
        return await self._read(lambda session: browse.bounds_of_logs(session, tenant, queues))

    async def first_seq_at(self, key: QueueKey, at: Instant) -> Seq:
        """The first seq at or after an instant."""
        return await self._read(lambda session: discover.seq_at(session, key, at))

    async def last_seq_within(self, key: QueueKey, first: Seq, max_bytes: int, max_rows: int) -> Seq:
        """How far payloads fit."""
        return await self._read_bulk(
            lambda session: log_position.last_seq_within(session, key, first, max_bytes, max_rows)
        )

    # messages that are staged

    async def stage(self, chunk: Chunk, now: Instant) -> None:
        """Keep a chunk of messages that are in no log yet."""
        await self._write(lambda session: staging.stage(session, chunk, now))

    async def staged_queues(self, epoch: EpochKey) -> list[str]:
        """The names of the queues that messages of an epoch are staged for."""
        return await self._read(lambda session: staging.queues(session, epoch))

    async def staged(self, epoch: EpochKey) -> list[tuple[Attempt, int]]:
        """What is staged of an epoch."""
        return await self._read(lambda session: staging.attempts(session, epoch))

    async def publish(
        self,
        epoch: EpochKey,
        attempts: list[Attempt],
        first_id: Id,
        expires_at: Instant,
        now: Instant,
        create_queues: bool = True,
    ) -> Published:
        """Append what was staged, once."""
        return await self._write(
            lambda session: staging.publish(session, epoch, attempts, first_id, expires_at, now, create_queues)
        )

    async def abort(self, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
        """Forget what is staged."""
        return await self._write(lambda session: staging.abort(session, epoch, partition, attempt))

    # dead letters

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        """Dead letters in the order of their queue."""
        return await self._read(lambda session: dead_letters.dead_letters(session, wanted, after, limit, max_bytes))

    async def count_dead_letters(self, wanted: DeadLetterFilter) -> int:
        """How many match."""
        return await self._read(lambda session: dead_letters.count_dead_letters(session, wanted))

    async def replay(
        self,
        wanted: DeadLetterFilter,
        ids: Sequence[Id],
        until: Seq,
        now: Instant,
        edited: Edited | None = None,
        after: Seq | None = None,
    ) -> ReplayStep:
        """Move the oldest matches back to their source queues."""
        return await self._piece(
            "replay",
            lambda session, size: dead_letters.replay(session, wanted, ids[:size], until, now, edited, after),
            len(ids),
            lambda step: step.after is not None,
        )

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        """What was replayed from a dead-letter queue."""
        return await self._read(lambda session: dead_letters.replays(session, key, source_queue, before, limit))

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None) -> PurgeStep:
        """Delete matches."""
        return await self._piece(
            "purge",
            lambda session, size: dead_letters.purge(session, wanted, size, now, after),
            limit,
            lambda step: step.after is not None,
        )

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        """Put an invalid message straight among its queue's dead letters."""
        return await self._write(lambda session: bury.quarantine(session, message, id_, error, receipt, now))

    async def bury_unfit(
        self, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
    ) -> Buried:
        """Copy messages of a log among its queue's dead letters, once."""
        return await self._write(lambda session: bury.bury_unfit(session, key, unfit, receipt, expires_at, now))

    # keys of payloads

    async def put_data_key(self, key: WrappedKey) -> None:
        """Keep a key."""
        await self._write(lambda session: data_keys.put(session, key))

    async def data_keys(self) -> list[WrappedKey]:
        """All keys, oldest first."""
        return await self._read(lambda session: data_keys.every(session))

    async def rewrap_data_keys(self, keys: Sequence[WrappedKey], was: str) -> int:
        """Keep these keys as they are wrapped now."""
        return await self._destroy(lambda session: data_keys.rewrap(session, keys, was), "the keys are rewrapped")

    async def shred_data_keys(self, tenant: str, queue: str | None, now: Instant) -> int:  # noqa: ARG002 - nobody else is told
        """Destroy the keys of a queue, or of all queues of a tenant."""
        return await self._destroy(lambda session: data_keys.shred(session, tenant, queue), "the keys are destroyed")

    async def reserve_seals(self, id_: Id, messages: int) -> int | None:
        """Count messages that a key is about to seal."""
        return await self._write(lambda session: data_keys.reserve(session, id_, messages))

    # groups and progress

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        """Move a group, making it when there is none."""
        return await self._write(lambda session: groups.seek(session, key, group, start, now))

    async def report_progress(self, key: QueueKey, group: str, seq: Seq, now: Instant) -> GroupStats:
        """Move an external group forward."""
        return await self._write(lambda session: groups.report_progress(session, key, group, seq, now))

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:
        """Forget a group and its leases."""
        return await self._write(lambda session: groups.delete_group(session, key, group, now))

    async def end_leases(self, key: QueueKey, group: str, partition: str, now: Instant) -> int:
        """Let the leases of a partition run out now."""
        return await self._write(lambda session: groups.end_leases(session, key, group, partition, now))

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
        """Let the leases under a token run out now, and fence it."""
        return await self._write(lambda session: groups.release_lease(session, key, group, partition, token, now))

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
    ) -> DeletedMessage:
        """Delete one message that is not settled, for all groups."""
        return await self._write(lambda session: delete_message(session, key, seq, id_, now, dry_run))

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        """Settle as expired what waits, and drop what is scheduled."""
        return await self._write(lambda session: groups.clear(session, key, scope, now))

    # looking around

    async def queue_stats(self, key: QueueKey, now: Instant) -> QueueStats:
        """A queue's figures."""
        return await self._read(lambda session: stats.queue_stats(session, key, now))

    async def stats_of(self, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
        """The figures of queues."""
        keys = [queue.key for queue in queues]
        return await self._read(lambda session: stats.stats_of(session, keys, now))

    async def partition_stats(
        self,
        key: QueueKey,
        group: str,
        now: Instant,
        after: str = "",
        limit: int = 100,
    ) -> list[PartitionStats]:
        """Partitions with unsettled, discovered messages, by name."""
        return await self._read(lambda session: stats.partition_stats(session, key, group, now, after, limit))

    async def leases(
        self,
        tenant: str,
        now: Instant,
        key: QueueKey | None = None,
        expiring_before: Instant | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """Live leases by deadline."""
        return await self._read(lambda session: stats.leases(session, tenant, now, key, expiring_before, limit))

    async def messages(self, wanted: MessageFilter, now: Instant) -> MessagePage:
        """Browse the log."""
        return await self._read(lambda session: browse.messages(session, wanted, now))

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage | None:
        """One message with its whole payload."""
        return await self._read(lambda session: browse.message(session, key, seq))

    async def trace(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[StoredMessage]:
        """All messages of a trace across the tenant's queues, oldest first."""
        return await self._read(lambda session: browse.trace(session, tenant, trace_id, limit))

    async def with_transaction_id(self, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
        """Messages with this transaction id, newest first, without their payloads."""
        return await self._read(lambda session: browse.with_transaction_id(session, tenant, transaction_id, limit))

    async def lease_history(
        self, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        """Finished leases with their position in the history."""
        return await self._read(lambda session: history.lease_history(session, key, after, limit, since))

    async def retention_history(self, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
        """The latest retention passes, newest first."""
        return await self._read(lambda session: stats.retention_history(session, key, limit))

    # the past

    async def past(self, tenant: str, names: Sequence[str] | None, since: Instant) -> list[list[Moment]]:
        """Figures by the minute."""
        return await self._read(lambda session: history.figures(session, tenant, names, since))

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        """The finished leases of messages."""
        return await self._read(lambda session: history.deliveries(session, journeys))

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        return await self._read(lambda session: history.failures(session, places))

    async def lease_times(self, key: QueueKey, since: Instant) -> list[LeaseTime]:
        return await self._read(lambda session: history.lease_times(session, key, since))

    async def note_trace_events(self, tenant: str, events: Sequence[TraceEvent]) -> None:
        """Keep what workers tell of traces."""
        await self._write(lambda session: history.note_events(session, tenant, events))

    async def trace_events(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
        """The events of a trace."""
        return await self._read(lambda session: history.events_of_trace(session, tenant, trace_id, limit))

    async def named_trace_events(
        self, tenant: str, name: str, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        """Events of a name, newest first."""
        return await self._read(lambda session: history.events_of_name(session, tenant, name, before, limit))

    async def trace_names(self, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
        """The names that events have."""
        return await self._read(lambda session: history.names(session, tenant, after, limit))

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        """Why the newest dead letters died."""
        return await self._read(lambda session: history.deaths(session, key, limit))

    # chores

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Let scheduled messages that are due enter the log."""
        return await self._chore("promote", lambda session, size: chores.promote(session, key, now, size), limit)

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Settle what is too old, and bury what ran out of attempts."""
        return await self._chore("expire", lambda session, size: chores.expire(session, key, now, size), limit)

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Delete from the head of the log what retention and clearing allow."""
        return await self._chore("retain", lambda session, size: retain.retain(session, key, now, size), limit)

    async def put_right(self, now: Instant, limit: int) -> Chore:
        return await self._write(lambda session: put_right.put_right(session, now, limit))

    async def sample(self, now: Instant) -> None:
        """Note which counters changed, in pieces."""
        await self._sampling.look(self._piece, now)

    async def sweep(self, now: Instant, limit: int) -> Chore:
        """Remove what has aged out, and the data of deleted queues."""
        return await self._chore("sweep", lambda session, size: chores.sweep(session, now, size), limit)

    async def maintain(self) -> None:
        """Copy the write-ahead log into the database and cut it; give back room that the file has to spare."""
        if self._writer is None or self._path == MEMORY:
            return
        await self._writer.cut_log_if_due()
        for _ in range(vacuum.STEPS):
            if not await self._writer.piece(self._shrinking.step, bare=True):
                return

    def connections(self) -> Connections:
        """One writes and one reads, always: there is nothing to count."""
        return Connections()

    # A file in this machine is not to be cut off from, and who writes to it knows what was written.

    @property
    def session(self) -> str:
        """There is none."""
        return ""

    async def probe(self) -> None:
        """Write something if the last write was refused, and raise what SQLite says to that."""
        if self._writer is not None and self._writer.refused is not None:
            await self._write(put_right.write_something)

    def waited_seconds(self) -> float:
        """Nobody is kept waiting by a file."""
        return 0.0

    def suspend(self) -> None:
        """There is nothing to give up."""

    async def resume(self) -> None:
        """There is nothing to open."""

    async def fence(self, sessions: Sequence[str]) -> None:
        """There is nobody to keep out."""

    # several servers: a SQLite file has one, so nobody else pushes and there is never news

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        """There is no other server that could change anything."""
        return SystemEvents(after or EventPosition(), [])

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        """There is no other server that could announce a push."""

    def on_news(self, callback: Callable[[QueueKey], None]) -> None:
        """There is no other server that could bring news."""

    def announce_operations(self) -> None:
        """There is no other server that could perform them."""

    def on_operations(self, callback: Callable[[], None]) -> None:
        """There is no other server that could have any."""
