"""A connection and its cache of queues and groups, with their counters.

There is exactly one writer, so its cache stays true until the writer itself changes a row. Changed counters are collected here, and
`flush` writes them at the end of a call. After a rollback `forget` empties the cache, so that it is never ahead of the file. A
reading connection forgets before every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
from msgspec import Struct

from skep.clock import Instant, seconds
from skep.model import DEFAULT_PARTITION, Ordering, Queue, QueueKey, QueueSettings
from skep.model.group import no_group
from skep.model.queue import no_queue
from skep.model.queue_settings import SETTINGS, SettingKind
from skep.store.lease import AttemptRow
from skep.store.rules import (
    ALL_PARTITIONS,
    FAILURES_KEPT,
    Attendance,
    HeadWalk,
    lifetime_micros,
    may_lose_messages,
    wants_mark,
)
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.statements import load_statements

SQL = load_statements(__package__, "state")

SEQ_BITS = 40
MAX_SEQ = (1 << SEQ_BITS) - 1

_SETTING_NAMES = QueueSettings.__struct_fields__
_SWITCHES = [setting.name for setting in SETTINGS.values() if setting.kind is SettingKind.SWITCH]
_FIRST_SETTING = 3
_AFTER_SETTINGS = _FIRST_SETTING + len(_SETTING_NAMES)

Row = tuple[Any, ...]
"""A row as SQLite gives it."""


class QueueRow(Struct):
    """A queue and the ends of its log. ``base`` | seq is a message's position."""

    id: int
    key: QueueKey
    settings: QueueSettings
    holds_dead_letters: bool
    floor_seq: int
    first_seq: int
    scheduled: int
    gaps: int
    """How many seqs from ``first_seq`` on have no message any more."""
    created_at: Instant
    updated_at: Instant
    last_seq: int = 0
    last_at: int = 0
    delay_micros: int = 0
    lifetime_micros: int | None = None
    only_partition: str | None = None
    """The one partition of a fifo queue."""
    is_ordered: bool = True
    """Whether the queue's leases are rows of `partition_lease`."""

    def apply(self, settings: QueueSettings) -> None:
        """Set the settings, and the values that follow from them."""
        self.settings = settings
        self.delay_micros = seconds(settings.delayed_processing_seconds)
        self.lifetime_micros = lifetime_micros(settings)
        self.only_partition = DEFAULT_PARTITION if settings.ordering is Ordering.FIFO else None
        self.is_ordered = settings.ordering is not Ordering.UNORDERED

    @property
    def base(self) -> int:
        """The position just before the queue's first message."""
        return self.id << SEQ_BITS

    @property
    def may_lose(self) -> bool:
        """Whether leased messages may be gone from the log."""
        return may_lose_messages(self.settings, self.holds_dead_letters)

    def dedup_partition(self, partition: str) -> str:
        """The partition in which a transaction id counts."""
        return ALL_PARTITIONS if self.settings.dedup_across_partitions else partition

    def stored_partition(self, partition: str) -> str:
        """The partition in which a message is stored: a fifo queue has only one."""
        return self.only_partition or partition

    @property
    def public(self) -> Queue:
        """The queue as callers see it."""
        return Queue(
            id=self.id,
            key=self.key,
            settings=self.settings,
            holds_dead_letters=self.holds_dead_letters,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


class GroupRow(Struct):
    """A consumer group's progress and counters."""

    id: int
    queue_id: int
    name: str
    start_seq: int
    scan_seq: int
    completed: int
    dead: int
    expired: int
    skipped: int
    retried: int
    created_at: Instant
    external: int
    gaps: int = 0
    """How many seqs beyond ``scan_seq`` have no message any more; they are counted as settled already."""
    active_at: int = 0
    idle: int = 0
    archived_seq: int | None = None
    """The last seq that the group, an archive, has reported as safe in its lake."""

    def pushed(self, last_seq: int) -> int:
        """How many messages for the group were pushed since its start."""
        return last_seq - self.start_seq - self.skipped

    def unsettled(self, last_seq: int) -> int:
        """How many messages the group has not settled."""
        return self.pushed(last_seq) - self.completed - self.dead - self.expired


class Session:
    """A connection and its cache. One thread at a time uses it."""

    def __init__(self, db: apsw.Connection, checkpoints: Checkpoints | None = None) -> None:
        self.db = db
        self.checkpoints = checkpoints
        self._queues: dict[QueueKey, QueueRow] = {}
        self._groups: dict[int, dict[str, GroupRow]] = {}
        self._changed_queues: dict[int, QueueRow] = {}
        self._changed_groups: dict[int, GroupRow] = {}
        self._history: list[Row] = []
        self._failures: list[Row] = []
        self._operations: bool | None = None
        self.attendance = Attendance()
        self.head_walk = HeadWalk()

    def close(self) -> None:
        """Close the connection, and then the one for checkpoints."""
        self.db.close()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def cut_log_soon(self) -> None:
        """Let the next `maintain` cut the write-ahead log, as it may still hold destroyed data."""
        if self.checkpoints is not None:
            self.checkpoints.cut_soon()

    def forget(self) -> None:
        """Empty the cache: something was rolled back, or another connection may have written."""
        self._queues.clear()
        self._groups.clear()
        self._changed_queues.clear()
        self._changed_groups.clear()
        self._history.clear()
        self._failures.clear()
        self._operations = None

    def flush(self) -> None:
        """Write the counters, history rows and failed attempts that came since the last flush."""
        if self._changed_groups:
            self.db.executemany(
                SQL["save_group"],
                [
                    (
                        g.id,
                        g.start_seq,
                        g.scan_seq,
                        g.completed,
                        g.dead,
                        g.expired,
                        g.skipped,
                        g.retried,
                        g.gaps,
                        g.active_at,
                        g.idle,
                        g.archived_seq,
                    )
                    for g in self._changed_groups.values()
                ],
            )
            self._changed_groups.clear()
        if self._changed_queues:
            self.db.executemany(
                SQL["save_queue_state"],
                [
                    (q.id, q.floor_seq, q.first_seq, q.scheduled, q.holds_dead_letters, q.gaps)
                    for q in self._changed_queues.values()
                ],
            )
            self._changed_queues.clear()
        if self._history:
            self.db.executemany(SQL["add_history"], self._history)
            self._history.clear()
        if self._failures:
            self._flush_failures()

    def _flush_failures(self) -> None:
        """Write the failed attempts, and keep only the latest `FAILURES_KEPT` of a message in a group."""
        self.db.executemany(SQL["add_failure"], self._failures)
        often = [
            (queue_id, seq, group, attempt - FAILURES_KEPT)
            for queue_id, seq, group, attempt, *_ in self._failures
            if attempt > FAILURES_KEPT
        ]
        if often:
            self.db.executemany(SQL["forget_failures"], often)
        self._failures.clear()

    def add_history(self, row: Row) -> None:
        """Add a row to the lease history; the next `flush` writes it."""
        self._history.append(row)

    def add_failures(self, queue: QueueRow, group: GroupRow, failures: Iterable[AttemptRow], now: Instant) -> None:
        """Add failed attempts; the next `flush` writes them."""
        self._failures += [
            (queue.id, one.seq, group.name, one.attempt, one.leased_at, now, one.outcome, one.error, one.consumer)
            for one in failures
        ]

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of the transaction that is undone alone when it raises."""
        self.flush()
        self.db.execute("SAVEPOINT part")
        try:
            yield
            self.flush()
        except BaseException:
            self.forget()
            if self.db.in_transaction:
                self.db.execute("ROLLBACK TO part; RELEASE part")
            raise
        self.db.execute("RELEASE part")

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Row]:
        """All rows of a statement."""
        return list(self.db.execute(sql, parameters))

    def row(self, sql: str, parameters: tuple[Any, ...] = ()) -> Row | None:
        """The first row of a statement, or None."""
        cursor = self.db.execute(sql, parameters)
        found: Row | None = cursor.fetchone()
        cursor.close()
        return found

    def one(self, sql: str, parameters: tuple[Any, ...] = ()) -> Row:
        """The row of a statement that always has one."""
        found = self.row(sql, parameters)
        assert found is not None
        return found

    # operations

    def has_operations(self) -> bool:
        """Whether any operation is live. Mostly there is none, and a push need not look for operations ahead of it."""
        if self._operations is None:
            self._operations = self.row(SQL["any_operation"]) is not None
        return self._operations

    def operations_changed(self) -> None:
        """Note that operations came or went."""
        self._operations = None

    # queues

    def find_queue(self, key: QueueKey) -> QueueRow | None:
        """The queue, or None."""
        queue = self._queues.get(key)
        if queue is None:
            row = self.row(SQL["queue_by_key"], (key.tenant, key.name))
            if row is None:
                return None
            queue = queue_of_row(row)
            self.find_log_end(queue)
            self._queues[key] = queue
        return queue

    def find_queues(self, tenant: str, names: Iterable[str]) -> dict[str, QueueRow]:
        """Those of some queues that exist, by name."""
        found = {name: self.find_queue(QueueKey(name, tenant)) for name in names}
        return {name: queue for name, queue in found.items() if queue is not None}

    def queue(self, key: QueueKey) -> QueueRow:
        """The queue; QUEUE_NOT_FOUND when there is none."""
        queue = self.find_queue(key)
        if queue is None:
            raise no_queue(key.name)
        return queue

    def find_log_end(self, queue: QueueRow) -> None:
        """Read where the queue's log ends."""
        last = self.row(SQL["last_message"], (queue.base, queue.base | MAX_SEQ))
        stored, queue.last_at = (last[0] & MAX_SEQ, last[1]) if last is not None else (0, 0)
        queue.last_seq = max(stored, queue.floor_seq)

    def drop_queue(self, key: QueueKey) -> None:
        """Remove a deleted queue and its groups from the cache."""
        queue = self._queues.pop(key, None)
        if queue is not None:
            self._changed_queues.pop(queue.id, None)
            self._groups.pop(queue.id, None)

    def touch_queue(self, queue: QueueRow) -> None:
        """Note that the queue's counters or flags changed."""
        self._changed_queues[queue.id] = queue

    # groups

    def groups(self, queue: QueueRow) -> dict[str, GroupRow]:
        """All groups of a queue by name."""
        groups = self._groups.get(queue.id)
        if groups is None:
            groups = {row[2]: GroupRow(*row) for row in self.rows(SQL["groups_of_queue"], (queue.id,))}
            self._groups[queue.id] = groups
        return groups

    def find_group(self, queue: QueueRow, name: str) -> GroupRow | None:
        """The group, or None."""
        return self.groups(queue).get(name)

    def group(self, queue: QueueRow, name: str) -> GroupRow:
        """The group; GROUP_NOT_FOUND when there is none."""
        group = self.find_group(queue, name)
        if group is None:
            raise no_group(queue.key.name, name)
        return group

    def make_group(self, queue: QueueRow, name: str, after_seq: int, now: Instant, external: bool = False) -> GroupRow:
        """Make a group that starts after ``after_seq``."""
        gaps = self.gaps_after(queue, after_seq)
        self.db.execute(SQL["insert_group"], (queue.id, name, after_seq, now, external, gaps))
        id_ = self.db.last_insert_rowid()
        group = GroupRow(id_, queue.id, name, after_seq, after_seq, 0, 0, 0, gaps, 0, now, external, gaps, now)
        self.groups(queue)[name] = group
        return group

    def gaps_after(self, queue: QueueRow, seq: int) -> int:
        """How many seqs beyond ``seq`` have no message. Rows are counted only in the middle of a log with gaps."""
        if not queue.gaps or seq >= queue.last_seq:
            return 0
        if seq < queue.first_seq:
            return queue.gaps
        return queue.last_seq - seq - self.messages_between(queue, seq, queue.last_seq)

    def messages_between(self, queue: QueueRow, after_seq: int, last_seq: int) -> int:
        """How many messages are beyond ``after_seq``, up to ``last_seq``."""
        return int(self.one(SQL["messages_between"], (queue.base | after_seq, queue.base | last_seq))[0])

    def drop_group(self, queue: QueueRow, group: GroupRow) -> None:
        """Remove a deleted group from the cache."""
        self.groups(queue).pop(group.name, None)
        self._changed_groups.pop(group.id, None)

    def touch_group(self, group: GroupRow) -> None:
        """Note that the group's progress or counters changed."""
        self._changed_groups[group.id] = group

    def mark_active(self, group: GroupRow, now: Instant) -> None:
        """Note the use of a group, at most once a minute."""
        if wants_mark(group.active_at, bool(group.idle), now):
            group.active_at, group.idle = max(group.active_at, now), 0
            self.touch_group(group)

    def holding_groups(self, queue: QueueRow) -> list[GroupRow]:
        """The groups that retention and max_depth wait for: those that are not idle, or all if all are."""
        groups = list(self.groups(queue).values())
        return [group for group in groups if not group.idle] or groups

    def archived_seq(self, queue: QueueRow) -> int | None:
        """The seq up to which messages are safe in a lake, by the archives in use, or by all if none is; None without an archive."""
        archives = [
            (group.idle, group.archived_seq) for group in self.groups(queue).values() if group.archived_seq is not None
        ]
        in_use = [seq for idle, seq in archives if not idle]
        return min(in_use or (seq for _, seq in archives), default=None)

    def unsettled(self, queue: QueueRow) -> int:
        """How many messages the slowest group has not settled; without groups, all messages of the log."""
        groups = self.groups(queue)
        if not groups:
            return max(0, queue.last_seq - queue.first_seq + 1 - queue.gaps)
        return max(group.unsettled(queue.last_seq) for group in groups.values())

    def depth(self, queue: QueueRow) -> int:
        """The depth of the queue: unsettled messages of the slowest group in use, and scheduled ones."""
        groups = self.holding_groups(queue)
        unsettled = max(group.unsettled(queue.last_seq) for group in groups) if groups else self.unsettled(queue)
        return unsettled + queue.scheduled


def queue_of_row(row: Row) -> QueueRow:
    """A row in the order of `queue_by_key` as a struct; the end of its log is not read yet."""
    values = dict(zip(_SETTING_NAMES, row[_FIRST_SETTING:_AFTER_SETTINGS], strict=True))
    values["ordering"] = Ordering(values["ordering"])
    values |= {name: bool(values[name]) for name in _SWITCHES}  # SQLite knows numbers only
    holds, floor_seq, first_seq, scheduled, gaps, created_at, updated_at = row[_AFTER_SETTINGS:]
    queue = QueueRow(
        id=row[0],
        key=QueueKey(name=row[2], tenant=row[1]),
        settings=QueueSettings(**values),
        holds_dead_letters=bool(holds),
        floor_seq=floor_seq,
        first_seq=first_seq,
        scheduled=scheduled,
        gaps=gaps,
        created_at=created_at,
        updated_at=updated_at,
    )
    queue.apply(queue.settings)
    return queue
