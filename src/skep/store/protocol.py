"""The verbs every store has.

Each verb is one transaction, all or nothing, and is given ``now``: on an error assume that nothing of the call
happened (an error of the connection during a commit is ambiguous, which is why ids and transaction ids are minted
before the first try). Verbs are batch-shaped: the engine hands over all that is waiting and gets one answer for each.
Errors are `skep.errors.SkepError` with a ``STORE_…`` code when the store itself failed. `docs/log.md` says how the
log, leases and dead letters are kept and what must stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
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
from skep.store.access import AccessStore
from skep.store.records import RecordStore
from skep.store.refusals import RefusalStore
from skep.store.scheduled import ScheduledStore

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange, NewRows


class Store(Protocol):
    """Where queues live."""

    @property
    def access(self) -> AccessStore:
        """Keys, and the audit log."""
        ...

    @property
    def refusals(self) -> RefusalStore:
        """Requests that webhooks refused."""
        ...

    @property
    def records(self) -> RecordStore:
        """What is kept beside the logs: receipts, entities, applied specs, endpoints, runs of pipelines."""
        ...

    @property
    def scheduled(self) -> ScheduledStore:
        """Messages that wait for their time."""
        ...

    async def open(self) -> None:
        """Connect and migrate. Raises STORE_UNAVAILABLE, STORE_BUSY or STORE_CORRUPT."""
        ...

    async def close(self) -> None:
        """Finish what runs and let go of everything."""
        ...

    # queues

    async def create_queue(self, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
        """Create; QUEUE_EXISTS when there is one, DEAD_LETTER_… when the dead-letter rules forbid it."""
        ...

    async def update_queue(self, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
        """Change what is given. Ordering changes only while nothing is unsettled (INVALID_SETTING)."""
        ...

    async def get_queue(self, key: QueueKey) -> Queue | None:
        """The queue, or None."""
        ...

    async def list_queues(
        self,
        tenant: str,
        after: str = "",
        limit: int = 100,
        namespace: str | None = None,
        task: str | None = None,
    ) -> list[Queue]:
        """Queues of a tenant by name, those after ``after``."""
        ...

    async def tenants(self, after: str = "", limit: int = 100) -> list[str]:
        """Tenants that have queues, by name, those after ``after``: how timers find queues nobody touched since start."""
        ...

    async def delete_queue(self, key: QueueKey, now: Instant) -> bool:
        """Delete with all it holds; False when there is none, DEAD_LETTER_QUEUE_IN_USE while a queue names it."""
        ...

    # the log

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        """Append every batch that is not refused, in one transaction and in order; each is whole or not at all.

        A batch is held, and not stored, while a push to one of its partitions waits as an operation; that is asked under the
        lock that operations are performed under.
        When one message of a batch is refused, the others of that batch are refused with BATCH_REFUSED. A batch whose receipt
        exists already is not stored, and its outcome has what was recorded; that of a refused batch is not written. Where a
        message is a duplicate, an answer that names its id names that of the first one instead. A batch that was tried
        before, by a session that is fenced by now, is not stored when a message of it is in the log or in the schedule: its
        outcome is then that of a batch whose receipt exists, and its receipt is written.
        """
        ...

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """As `push`, and then as `pop` for those who wait for it, in one transaction where that is cheaper.

        None where nobody looked: its caller pops by itself.
        """
        ...

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        """Lease messages for each request in turn. An unknown queue is QUEUE_NOT_FOUND; a paused one gives nothing."""
        ...

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        """Settle each message on its own merits; a refused one changes nothing and does not hinder the others.

        ACK_THROUGH completes what a lease, that is a token in a partition, has up to a seq and the call does not name: NOT_IN_LEASE
        when that is nothing.
        """
        ...

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """As `settle`, and then as `pop` for those who wait for what that frees, in one transaction where that is cheaper.

        None where nobody looked: its caller pops by itself, if something was freed.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        """Move the deadline of each lease whose token is still good."""
        ...

    async def transact(
        self, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
    ) -> list[TransactionOutcome]:
        """Each transaction whole or not at all: any refusal in it undoes all of it.

        Receipts and effects are looked at first (RECEIPT_EXISTS, ENTITY_CHANGED), then settlements and pushes. Its push has no
        receipt of its own, and each of its effects at least one event.
        """
        ...

    # operations: calls that wait for their turn

    async def enqueue(self, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
        """Keep each call, whole, as one operation per partition; their positions rise in the order of the calls.

        OPERATIONS_AHEAD for a push with a receipt that has several partitions.
        """
        ...

    async def claim_operations(self, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> Claim:
        """Take the next operations, all pushes or all acks, by priority, then age; each counts this as a try.

        One is taken only when every older live one of its partition is taken with it, and one that was tried before comes
        alone. What nobody performed before its timeout may be claimed again, which makes the first claim worthless. One claim looks at a
        bounded number of operations: when it has found nothing by then, it says that there is ``more``.
        """
        ...

    async def perform(
        self, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
    ) -> Performed:
        """Do what claimed operations ask for and end them, in one transaction.

        Those that were claimed by someone else meanwhile, or stand behind such a one, are left alone. When one is refused,
        nothing of the call happens.
        """
        ...

    async def give_back(self, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
        """Let go of operations that were not performed, those that are still ours; their positions.

        The messages of one that failed for good go among the dead letters of their queue in the same transaction. When they
        cannot, they stay with the failed operation. NOT_ENCRYPTED when the queue is encrypted and they are not: then nothing is
        let go.
        """
        ...

    async def cancel_operation(self, tenant: str, id_: Id, now: Instant) -> bool:
        """End an operation that is pending; False when there is none of that id that is."""
        ...

    async def operation(self, tenant: str, id_: Id) -> Operation | None:
        """An operation, or None."""
        ...

    async def list_operations(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        """Operations, newest first, those before position ``after``."""
        ...

    async def waiting_operations(self, now: Instant, limit: int) -> WaitingOperations:
        """What is live over all tenants, counted up to ``limit``."""
        ...

    async def operation_figures(self, tenant: str, limit: int) -> list[OperationFigures]:
        """Figures by kind and status: of up to ``limit`` that are live, and the latest ``limit`` of all."""
        ...

    async def sweep_operations(self, completed_before: Instant, ended_before: Instant, limit: int) -> int:
        """Forget up to ``limit`` operations that completed, or ended otherwise, long ago; how many."""
        ...

    # the log in bulk, as columns

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        """Append messages that have nothing but a partition and a payload, all of them or none (QUEUE_FULL, …)."""
        ...

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """As many messages of a range as fit: it ends with the one that reaches ``max_bytes``.

        The walk is bounded, so a piece may be empty where a stretch of the log is, or is of other partitions. It holds nothing
        open: reading on is another call.
        """
        ...

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        """Which seqs the log holds."""
        ...

    async def bounds_of_logs(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        """Which seqs the logs of some queues hold, all in one look; queues that are not there are left out."""
        ...

    async def first_seq_at(self, key: QueueKey, at: Instant) -> Seq:
        """The first seq whose message was created at or after an instant; the one after the last when there is none."""
        ...

    async def last_seq_within(self, key: QueueKey, first: Seq, max_bytes: int, max_rows: int) -> Seq:
        """The last seq from ``first`` on such that payloads have at most ``max_bytes`` together, or just one has more.

        It looks at ``max_rows`` seqs at most.
        """
        ...

    # messages that are staged: in no log until they are published

    async def stage(self, chunk: Chunk, now: Instant) -> None:
        """Keep a chunk; one that is sent again takes the place of the first. EPOCH_PUBLISHED when it is too late."""
        ...

    async def staged(self, epoch: EpochKey) -> list[tuple[Attempt, int]]:
        """The attempts that are staged, in the order of partition and attempt, each with its number of chunks."""
        ...

    async def publish(
        self,
        epoch: EpochKey,
        attempts: list[Attempt],
        first_id: Id,
        expires_at: Instant,
        now: Instant,
        create_queues: bool = True,
    ) -> Published:
        """Append these attempts in the order of partition, chunk and place, in one transaction, and forget all others.

        Once: until ``expires_at`` a repeat gets the first one's answer and changes nothing. All rules of a push hold, and a
        refusal (QUEUE_FULL, …) leaves everything as it was. STAGING_INCOMPLETE when an attempt is not there in full. The
        messages get the ids from ``first_id`` on.
        """
        ...

    async def staged_queues(self, epoch: EpochKey) -> list[str]:
        """The names of the queues that messages of an epoch are staged for."""
        ...

    async def abort(self, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
        """Forget what is staged of an epoch, or of one attempt; how many chunks that was."""
        ...

    # dead letters

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        """Dead letters in the order of their queue, those after ``after``; they end with the one whose payload reaches ``max_bytes``."""
        ...

    async def count_dead_letters(self, wanted: DeadLetterFilter) -> int:
        """How many match: the dry run of replay and purge."""
        ...

    async def replay(
        self,
        wanted: DeadLetterFilter,
        ids: Sequence[Id],
        until: Seq,
        now: Instant,
        edited: Edited | None = None,
        after: Seq | None = None,
    ) -> ReplayStep:
        """Move the oldest matches behind ``after`` and up to seq ``until``, one per given id, back to their source queues, in order.

        It looks at a bounded number of letters, and says behind which one the next step goes on.
        A replayed message is delivered to the group that gave it up and to no other. Deduplication is bypassed and
        the replay recorded. A source queue that is gone is QUEUE_NOT_FOUND, and nothing moves. With ``edited`` they go with
        that payload instead of their own; NOT_ENCRYPTED when a source queue is encrypted and that is not.
        """
        ...

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        """What was replayed from a dead-letter queue, the newest letters first, those before the seq of a letter."""
        ...

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None) -> PurgeStep:
        """Delete up to ``limit`` matches behind ``after``; like `replay` it looks at a bounded number of letters."""
        ...

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        """Put an invalid message straight into its queue's dead-letter queue (reason INVALID, no group, no attempts).

        The result is its place there. A queue that keeps no dead letters refuses it (MESSAGE_INVALID), and one whose dead
        letters are at their max_depth does (QUEUE_FULL); then nothing is kept. NOT_ENCRYPTED when the queue is encrypted
        and the message is not.
        """
        ...

    async def bury_unfit(
        self, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
    ) -> Buried:
        """Copy messages of a log into its dead-letter queue (reason INVALID, no group, no attempts), in order, and once per receipt.

        The log keeps them, and so do its groups; max_depth does not turn them away. Those that are in the log no longer, and all
        of a queue that keeps no dead letters, are left out.
        """
        ...

    # keys of payloads

    async def put_data_key(self, key: WrappedKey) -> None:
        """Keep a key."""
        ...

    async def data_keys(self) -> list[WrappedKey]:
        """All keys, oldest first."""
        ...

    async def rewrap_data_keys(self, keys: Sequence[WrappedKey], was: str) -> int:
        """Keep these keys as they are wrapped now, those that are still wrapped by the master key ``was``; how many were."""
        ...

    async def shred_data_keys(self, tenant: str, queue: str | None, now: Instant) -> int:
        """Destroy the keys of a queue, or of all queues of a tenant: what they sealed can never be read again.

        When this returns, the store's files hold neither the destroyed keys nor the old wrapping of rewrapped ones.
        """
        ...

    async def reserve_seals(self, id_: Id, messages: int) -> int | None:
        """Count messages that a key is about to seal; how many it has sealed with them, None when there is no such key."""
        ...

    # groups and progress

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        """Move a group, making it when there is none: its leases end, its account starts anew."""
        ...

    async def report_progress(self, key: QueueKey, group: str, seq: Seq, now: Instant) -> GroupStats:
        """Note that an external group is done with all up to ``seq``; it never goes back (I7), and an earlier seq changes nothing.

        Made on first sight, it begins at ``seq``. A seq beyond the log is INVALID_REQUEST; a group that messages were leased to
        is GROUP_NOT_EXTERNAL, as popping from an external one is GROUP_EXTERNAL.
        """
        ...

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:
        """Forget a group and its leases."""
        ...

    async def end_leases(self, key: QueueKey, group: str, partition: str, now: Instant) -> int:
        """Let the leases of a partition run out now, whoever holds them; how many did."""
        ...

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
        """Let the leases under a token run out now, and fence it: nothing that is said with it counts any more (I6). How many did.

        They count as any that ran out: the delivery was an attempt.
        """
        ...

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
    ) -> DeletedMessage:
        """Delete one message from the log, for all groups; those that had not settled it count it as expired.

        A lease that holds it ends as by `release_lease`, its token is fenced, and what else it holds is delivered again.
        The deduplication key stays. MESSAGE_NOT_FOUND when there is none at this seq, or it has another id than ``id_``;
        MESSAGE_SETTLED when no group has anything to do with it.
        """
        ...

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        """Settle as expired all that is pending (ALL: in flight too, and its leases end), and drop what is scheduled."""
        ...

    # looking around: reads only

    async def queue_stats(self, key: QueueKey, now: Instant) -> QueueStats:
        """A queue's figures."""
        ...

    async def stats_of(self, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
        """The figures of queues in one look; None for one that is gone."""
        ...

    async def partition_stats(
        self, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
    ) -> list[PartitionStats]:
        """Partitions with unsettled, discovered messages, by name."""
        ...

    async def leases(
        self,
        tenant: str,
        now: Instant,
        key: QueueKey | None = None,
        expiring_before: Instant | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """Live leases by deadline; with ``expiring_before`` those about to run out."""
        ...

    async def messages(self, wanted: MessageFilter, now: Instant) -> MessagePage:
        """Browse the log. A page may be short, or empty with ``after`` set: the walk per call is bounded."""
        ...

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage | None:
        """One message with its whole payload."""
        ...

    async def trace(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[StoredMessage]:
        """All messages of a trace across the tenant's queues, oldest first."""
        ...

    async def with_transaction_id(self, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
        """Messages of the tenant's queues with this transaction id, newest first, without their payloads.

        When there are more than ``limit``, those of some queues may be missing.
        """
        ...

    async def lease_history(
        self, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        """Finished leases with their position in the history, those after ``after`` that ended at or after ``since``.

        What ended before ``since`` is not walked over, however long the history is.
        """
        ...

    async def retention_history(self, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
        """The latest retention passes, newest first."""
        ...

    # the past: bounded looks at what was

    async def past(self, tenant: str, names: Sequence[str] | None, since: Instant) -> list[list[Moment]]:
        """Figures by the minute since an instant, oldest first: of each queue, or with None of the tenant as a whole.

        Between two that are the same, and after the last, nothing changed. The first one may be from before: how it stood then.
        A queue that is not there has none.
        """
        ...

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        """The finished leases that each message was in, as far as `SEARCHED_LEASES` rows tell: those that ended after the
        message was created, and the newest.

        The outcome is that of the message: ``returned`` when its lease ended with a neighbour's failure, and it comes again.
        """
        ...

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        """The failed attempts of each message over all groups, oldest first: the latest `FAILURES_SHOWN` of them."""
        ...

    async def lease_times(self, key: QueueKey, since: Instant) -> list[LeaseTime]:
        """How long the newest leases of a queue waited and lasted, newest first: `TIMED_LEASES` at most, that ended since."""
        ...

    async def note_trace_events(self, tenant: str, events: Sequence[TraceEvent]) -> None:
        """Keep what workers tell of traces; a while, and so many of them."""
        ...

    async def trace_events(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
        """The events of a trace in the order of telling."""
        ...

    async def named_trace_events(
        self, tenant: str, name: str, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        """Events of a name, newest first, those before a position."""
        ...

    async def trace_names(self, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
        """The names that events have, in their order, those after ``after``."""
        ...

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        """Why the newest dead letters of a dead-letter queue died, newest first, without their payloads."""
        ...

    # chores: bounded passes that the engine's timers run

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Let scheduled messages that are due enter the log, oldest due first."""
        ...

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Settle messages past max_age or max_wait, and bury those whose attempts ran out with their lease."""
        ...

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Delete from the head of the log what retention and clearing allow; adds a retention history row."""
        ...

    async def put_right(self, now: Instant, limit: int) -> Chore:
        """Note the time. When it has gone back since it was last noted, put right what was written ahead of it.

        Deadlines are moved in the pass that notices. Stamps, of up to ``limit`` messages a pass, are put right when the clock has
        gone on for ten minutes since.
        """
        ...

    async def sample(self, now: Instant) -> None:
        """Note the counters of queues and groups that changed since the last look, for rates and charts.

        In pieces, each a short transaction of its own: callers come in between.
        """
        ...

    async def sweep(self, now: Instant, limit: int) -> Chore:
        """Remove what has aged out: deduplication keys, receipts, histories, samples, and the data of deleted queues."""
        ...

    async def maintain(self) -> None:
        """The store's own upkeep (compaction, checkpoints); safe at any time."""
        ...

    def connections(self) -> Connections:
        """How busy its connections are, at no cost."""
        ...

    # being cut off from the database

    @property
    def session(self) -> str:
        """What the database knows this store's sessions by; empty when there is no such thing."""
        ...

    async def probe(self) -> None:
        """Return soon when the store answers and can be written to; STORE_UNAVAILABLE when not."""
        ...

    def waited_seconds(self) -> float:
        """How long the oldest call that is under way has been; 0 without one."""
        ...

    def suspend(self) -> None:
        """Give up all sessions: calls under way fail with STORE_UNAVAILABLE, and so do all others until `resume`."""
        ...

    async def resume(self) -> None:
        """Open new sessions, and return once nothing that came through earlier ones can take effect any more.

        Without a `suspend` before it, calls that are under way have a while to finish.
        """
        ...

    async def fence(self, sessions: Sequence[str]) -> None:
        """Return once nothing can take effect any more that came through the sessions of other stores, which have ended."""
        ...

    # several servers

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        """What all servers changed after a position; with None nothing, but the position to begin from.

        It waits for no connection that others use, however busy the store is.
        """
        ...

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        """Say that someone here waits for messages of these queues, so that other servers announce pushes to them."""
        ...

    def on_news(self, callback: Callable[[QueueKey], None]) -> None:
        """Call ``callback`` when another server pushed to a watched queue."""
        ...

    def announce_operations(self) -> None:
        """Tell other servers, soon, that operations wait."""
        ...

    def on_operations(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when another server announced operations."""
        ...
