"""Appending messages to the log.

A push opens the logs it needs: it takes their locks in ascending order, and reads each queue once. It decides everything in Python,
and writes all rows by COPY, which is faster than inserting arrays once there are hundreds. A small plain push, as most are, is one
statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec
from msgspec import Struct

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.ids import Id, minted_at
from skep.model import (
    DEFAULT_PARTITION,
    Depth,
    NewMessage,
    Ordering,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    Seq,
    StoredRange,
)
from skep.model.group import no_group
from skep.model.queue import no_queue
from skep.store.postgres import queues, receipts
from skep.store.postgres.connection import Connection
from skep.store.postgres.copy_format import MessageRow, append_rows
from skep.store.postgres.database import Database
from skep.store.rules import (
    ALL_PARTITIONS,
    PIECE_BYTES,
    SEQ_MAX,
    TRACE_SLACK_MICROS,
    are_sealed,
    holds,
    not_encrypted_reason,
    queue_full_reason,
    receipt_after,
    sought_of,
    stored_before,
    was_stored,
)
from skep.store.statements import load_statements

SQL = load_statements(__package__, "push")

SCHEDULED_COLUMNS = (
    "due_at", "id", "trace_id", "queue_id", "priority", "partition", "transaction_id", "content_type", "headers", "payload",
)  # fmt: skip
SMALL_PUSH = 200
"""Up to this many plain messages one INSERT in one round trip costs less, here and in PostgreSQL, than a transaction with COPY."""

DEDUP_COLUMNS = ("seq", "expires_at", "message_id", "queue_id", "transaction_id", "partition")

Place = tuple[QueueKey, str]
Row = tuple[object, ...]
Key = tuple[int, str, str]
Known = tuple[Id, Seq | None, Id | None]
"""The message that took a transaction id: its id, seq and trace id. One that is gone, or was cancelled, has no trace."""


async def push(
    db: Database, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True
) -> list[PushOutcome]:
    """Append every batch that is not refused."""
    if not batches:
        return []
    done = await db.pool.once(push_small, batches, now) if is_small(batches, now) else None
    if done is None:
        done = await db.pool.transaction(lambda c: push_batches(c, batches, now, create_queues))
    outcomes, watched = done
    db.news.announce(watched)
    return outcomes


class OpenLog(Struct):
    """A log opened for appending: its lock is ours until the transaction ends."""

    queue_id: int
    ordering: str
    max_depth: int
    dedup_window: int
    dedup_across: bool
    last_seq: int
    created_at: int
    depth: int
    watched: bool
    operations: bool
    encrypted: bool
    scheduled: int = 0

    @property
    def only_partition(self) -> str | None:
        """The one partition of a fifo queue, whatever its messages say; None for any other queue."""
        return DEFAULT_PARTITION if self.ordering == Ordering.FIFO else None

    def dedup_partition(self, partition: str) -> str:
        """The partition in which a transaction id counts."""
        return ALL_PARTITIONS if self.dedup_across else partition


async def open_logs(connection: Connection, keys: Sequence[QueueKey], now: Instant) -> dict[QueueKey, OpenLog]:
    """Lock the logs of these queues and read each queue once; a queue that does not exist is left out."""
    rows = await connection.fetch(SQL["open_logs"], [k.tenant for k in keys], [k.name for k in keys], now)
    return {
        keys[row["ord"] - 1]: OpenLog(
            queue_id=row["queue_id"],
            ordering=row["ordering"],
            max_depth=row["max_depth"],
            dedup_window=seconds(row["dedup_window_seconds"]),
            dedup_across=row["dedup_across_partitions"],
            last_seq=row["last_seq"],
            created_at=max(now, row["last_created_at"]),
            depth=row["depth"],
            watched=row["watched"],
            operations=row["operations"],
            encrypted=row["encrypted"],
        )
        for row in rows
    }


async def open_or_make_logs(
    connection: Connection, keys: Sequence[QueueKey], now: Instant, create_queues: bool, holds_logs: bool = False
) -> dict[QueueKey, OpenLog]:
    """As `open_logs`; queues that do not exist are made, if ``create_queues``. ``holds_logs``: other logs are locked already."""
    logs = await open_logs(connection, keys, now)
    missing = [key for key in keys if key not in logs]
    if missing and create_queues:
        for key in missing:
            await queues.ensure(connection, key, now, bool(logs) or holds_logs)
        logs = await open_logs(connection, keys, now)
    return logs


def is_small(batches: Sequence[PushBatch], now: Instant) -> bool:
    """Whether one statement is enough: a few messages to one queue, without transaction id, trace or time of delivery."""
    if sum(len(batch.messages) for batch in batches) > SMALL_PUSH or not all(batch.messages for batch in batches):
        return False
    keys = [batch.receipt.key for batch in batches if batch.receipt is not None]
    if len(keys) != len(set(keys)) or any(batch.tried is not None for batch in batches):
        return False
    if sum(len(m.payload) for batch in batches for m in batch.messages) > PIECE_BYTES:
        return False
    first = batches[0].messages[0].queue
    return all(
        m.queue == first
        and m.transaction_id is None
        and m.trace_id is None
        and m.deliver_at is None
        and not is_late(id_, now)
        for batch in batches
        for m, id_ in zip(batch.messages, batch.ids, strict=True)
    )


async def push_small(
    connection: Connection, batches: Sequence[PushBatch], now: Instant
) -> tuple[list[PushOutcome], list[int]] | None:
    """Append a few plain messages in one round trip; None when the queue needs the long way."""
    arguments = columns(batches, now)
    wanted = [batch.receipt for batch in batches if batch.receipt is not None]
    if not wanted:
        row = await connection.fetchrow(SQL["push_plain"], *arguments)
    else:
        row = await receipts.push_plain_once(connection, arguments, wanted)
    if row is None or row["queue_id"] is None:
        return None
    return stored(batches, row["last_seq"], row["depth"]), [row["queue_id"]] if row["watched"] else []


def columns(batches: Sequence[PushBatch], now: Instant) -> tuple[object, ...]:
    """The parameters of the statement `push_plain`."""
    messages = [m for batch in batches for m in batch.messages]
    key = messages[0].queue
    return (
        key.tenant, key.name, now, [id_ for batch in batches for id_ in batch.ids],
        [m.partition for m in messages], [m.priority for m in messages], [m.content_type for m in messages],
        [m.headers for m in messages], [m.payload for m in messages],
    )  # fmt: skip


def stored(batches: Sequence[PushBatch], last_seq: int, messages_there: int) -> list[PushOutcome]:
    """The outcomes of batches that were stored with consecutive seqs, the last one ``last_seq``."""
    depth = {batches[0].messages[0].queue: Depth(messages_there, None)}
    ends = accumulate((len(batch.ids) for batch in batches), initial=last_seq + 1 - sum(len(b.ids) for b in batches))
    return [PushOutcome(StoredRange(Seq(seq), batch.ids), depth) for batch, seq in zip(batches, ends, strict=False)]


async def push_batches(
    connection: Connection,
    batches: Sequence[PushBatch],
    now: Instant,
    create_queues: bool,
    in_turn: bool = False,
    holds_logs: bool = False,
) -> tuple[list[PushOutcome], list[int]]:
    """Append all batches that are neither refused nor held; also returns the ids of queues that other servers watch.

    ``in_turn``: the batches are operations whose turn it is, so none of them is held. ``holds_logs`` is for calls that have locked
    other logs before.
    """
    wanted = [batch.receipt for batch in batches if batch.receipt is not None]
    taken = await receipts.take(connection, wanted, now) if wanted else None
    keys = list({message.queue: None for batch in batches for message in batch.messages})
    logs = await open_or_make_logs(connection, keys, now, create_queues, holds_logs)
    if any(log.ordering == Ordering.FIFO for log in logs.values()):
        batches = [_in_one_partition(batch, logs) for batch in batches]
    waiting = set[Place]() if in_turn else await waiting_partitions(connection, logs, batches)
    known = await _known_keys(connection, batches, logs, now)
    stored = await _stored_ids(connection, batches, logs, now)
    writer = _Appender(logs, known, now, waiting, await _audiences(connection, logs, batches))
    outcomes = [_add_once(writer, taken, stored, batch) for batch in batches]
    if taken is not None:
        await taken.write(connection)
    await writer.write(connection)
    return outcomes, [log.queue_id for log in logs.values() if log.watched]


def _add_once(writer: _Appender, taken: receipts.Taken | None, stored: set[Id], batch: PushBatch) -> PushOutcome:
    """Add one batch, unless its receipt or the log shows that it was stored before."""
    receipt = batch.receipt
    if taken is None or receipt is None:
        return stored_before(batch) if was_stored(batch, stored) else writer.add(batch)
    recorded = taken.recorded(receipt.key)
    if recorded is not None:
        return PushOutcome([], {}, recorded)
    if was_stored(batch, stored):
        taken.keep(receipt)
        return stored_before(batch)
    outcome = writer.add(batch)
    if not outcome.refused and not outcome.held:
        taken.keep(receipt_after(batch, outcome) or receipt)
    return outcome


def _in_one_partition(batch: PushBatch, logs: dict[QueueKey, OpenLog]) -> PushBatch:
    """The batch with the messages of fifo queues in their one partition."""
    fifo = {key for key, log in logs.items() if log.ordering == Ordering.FIFO}
    messages = [
        msgspec.structs.replace(m, partition=DEFAULT_PARTITION)
        if m.queue in fifo and m.partition != DEFAULT_PARTITION
        else m
        for m in batch.messages
    ]
    return msgspec.structs.replace(batch, messages=messages)


async def waiting_partitions(
    connection: Connection, logs: dict[QueueKey, OpenLog], batches: Iterable[PushBatch]
) -> set[Place]:
    """The partitions of these batches that have a queued push (operation). The batches are as they will be stored."""
    busy = {key for key, log in logs.items() if log.operations}
    if not busy:
        return set()
    return await live_operations(
        connection, {(m.queue, m.partition) for batch in batches for m in batch.messages if m.queue in busy}
    )


async def live_operations(connection: Connection, places: Iterable[Place]) -> set[Place]:
    """Which of these partitions have a queued push (operation). The caller holds the locks of their logs."""
    asked = list(places)
    rows = await connection.fetch(
        SQL["live_operations"], [k.tenant for k, _ in asked], [k.name for k, _ in asked], [p for _, p in asked]
    )
    return {asked[row["ord"] - 1] for row in rows}


async def _known_keys(
    connection: Connection, batches: Sequence[PushBatch], logs: dict[QueueKey, OpenLog], now: Instant
) -> dict[Key, Known]:
    wanted = [
        (logs[m.queue].queue_id, m.transaction_id, logs[m.queue].dedup_partition(m.partition))
        for batch in batches
        if batch.audience is None
        for m in batch.messages
        if m.transaction_id is not None and m.queue in logs and logs[m.queue].dedup_window
    ]
    if not wanted:
        return {}
    queue_ids, transaction_ids, partitions = zip(*wanted, strict=True)
    rows = await connection.fetch(SQL["known_keys"], queue_ids, transaction_ids, partitions, now)
    return {
        (r["queue_id"], r["transaction_id"], r["partition"]): (r["message_id"], r["seq"], r["trace_id"]) for r in rows
    }


async def _audiences(
    connection: Connection, logs: dict[QueueKey, OpenLog], batches: Sequence[PushBatch]
) -> dict[tuple[QueueKey, str], int]:
    """The groups that batches are for alone, by queue and name."""
    wanted = {(m.queue, batch.audience) for batch in batches if batch.audience is not None for m in batch.messages}
    found: dict[tuple[QueueKey, str], int] = {}
    for key, name in sorted(wanted):
        if key in logs:
            id_ = await connection.fetchval(SQL["group_id"], logs[key].queue_id, name)
            if id_ is None:
                raise no_group(key.name, name)
            found[key, name] = id_
    return found


async def _stored_ids(
    connection: Connection, batches: Sequence[PushBatch], logs: dict[QueueKey, OpenLog], now: Instant
) -> set[Id]:
    """Which messages of batches that were tried before are there. Their logs are locked, so the answer stays true."""
    found: set[Id] = set()
    for key, sought in sought_of(batches, now).items():
        log = logs.get(key)
        if log is not None:
            # After the clock was put back, the log may end in the future. New messages then get the time of its end.
            until = SEQ_MAX if log.created_at > now else sought.until
            rows = await connection.fetch(
                SQL["ids_between"], log.queue_id, log.last_seq, sought.since, until, list(sought.scheduled)
            )
            found |= sought.ids.intersection(row["id"] for row in rows)
    return found


def is_late(id_: Id, created_at: int) -> bool:
    """Whether the time in a message's id is too far from its creation to find the message by it: its trace id must be stored."""
    minted = minted_at(id_)
    return minted is None or abs(created_at - minted) > TRACE_SLACK_MICROS


class _Appender:
    """Decides batch by batch which messages are stored, and writes all rows at once."""

    def __init__(
        self,
        logs: dict[QueueKey, OpenLog],
        known: dict[Key, Known],
        now: Instant,
        waiting: set[Place],
        audiences: dict[tuple[QueueKey, str], int],
    ) -> None:
        self._logs = logs
        self._known = known
        self._now = now
        self._waiting = waiting
        self._audiences = audiences
        self._messages: list[MessageRow] = []
        self._scheduled: list[Row] = []
        self._keys: list[Row] = []

    def add(self, batch: PushBatch) -> PushOutcome:
        """Add one batch, whole or not at all."""
        if not batch.messages:
            return PushOutcome([], {})
        if self._waiting and holds(self._waiting, batch):
            return PushOutcome([], {}, held=True)
        refusals = self._refusals(batch)
        if refusals:
            results = [
                PushResult(
                    PushStatus.REFUSED, id_, None, m.transaction_id, m.trace_id or id_, *refusals.get(i, OTHERS_REFUSED)
                )
                for i, (m, id_) in enumerate(zip(batch.messages, batch.ids, strict=True))
            ]
        elif (log := self._plain(batch)) is not None:
            results = self._append_plain(batch, log)
        else:
            results = [self._append(m, id_, batch.audience) for m, id_ in zip(batch.messages, batch.ids, strict=True)]
        depths = {key: depth_of(log) for key in {m.queue for m in batch.messages} if (log := self._logs.get(key))}
        return PushOutcome(results, depths)

    def _plain(self, batch: PushBatch) -> OpenLog | None:
        """The log of a plain batch, as in `is_small`, but of any size; None for any other batch."""
        first = batch.messages[0].queue
        plain = batch.audience is None and all(
            m.queue is first and m.transaction_id is None and m.trace_id is None and m.deliver_at is None
            for m in batch.messages
        )
        log = self._logs[first]
        return (
            log if plain and not any(is_late(id_, log.created_at) for id_ in (min(batch.ids), max(batch.ids))) else None
        )

    def _append_plain(self, batch: PushBatch, log: OpenLog) -> list[PushResult]:
        first, queue_id, created_at = log.last_seq + 1, log.queue_id, log.created_at
        log.last_seq += len(batch.ids)
        log.depth += len(batch.ids)
        numbered = list(zip(range(first, log.last_seq + 1), batch.messages, batch.ids, strict=True))
        self._messages += [
            (
                seq,
                created_at,
                id_,
                None,
                queue_id,
                None,
                m.priority,
                m.partition,
                None,
                m.content_type,
                m.headers,
                m.payload,
            )
            for seq, m, id_ in numbered
        ]
        stored = PushStatus.STORED
        return [PushResult(stored, id_, Seq(seq), None, id_) for seq, _, id_ in numbered]

    def _append(self, message: NewMessage, id_: Id, audience: str | None) -> PushResult:
        log = self._logs[message.queue]
        trace_id = message.trace_id or id_
        named = message.transaction_id is not None and log.dedup_window > 0 and audience is None
        key = (log.queue_id, message.transaction_id or "", log.dedup_partition(message.partition)) if named else None
        if key is not None and (first := self._known.get(key)) is not None:
            return PushResult(PushStatus.DUPLICATE, first[0], first[1], message.transaction_id, first[2])
        seq: Seq | None = None
        log.depth += 1
        if message.deliver_at is not None and message.deliver_at > self._now:
            log.scheduled += 1
            self._scheduled.append((
                message.deliver_at, id_, trace_id, log.queue_id, message.priority, message.partition, message.transaction_id,
                message.content_type, message.headers, message.payload,
            ))  # fmt: skip
        else:
            log.last_seq += 1
            seq = Seq(log.last_seq)
            written = message.trace_id or (id_ if is_late(id_, log.created_at) else None)
            self._messages.append((
                seq, log.created_at, id_, written, log.queue_id,
                None if audience is None else self._audiences[message.queue, audience], message.priority, message.partition,
                message.transaction_id, message.content_type, message.headers, message.payload,
            ))  # fmt: skip
        if key is not None:
            self._known[key] = (id_, seq, trace_id)
            self._keys.append((seq, self._now + log.dedup_window, id_, *key))
        status = PushStatus.SCHEDULED if seq is None else PushStatus.STORED
        return PushResult(status, id_, seq, message.transaction_id, trace_id)

    def _refusals(self, batch: PushBatch) -> dict[int, tuple[Code, str]]:
        """The messages that make the batch refused, by index, and why."""
        refused: dict[int, tuple[Code, str]] = {}
        limited: dict[QueueKey, list[int]] = {}
        for i, message in enumerate(batch.messages):
            log = self._logs.get(message.queue)
            if log is None:
                refused[i] = (Code.QUEUE_NOT_FOUND, no_queue(message.queue.name, makes_queues=False).message)
            elif log.encrypted and not are_sealed((message,)):
                refused[i] = (Code.NOT_ENCRYPTED, not_encrypted_reason(message.queue.name))
            elif log.max_depth:
                limited.setdefault(message.queue, []).append(i)
        for key, indexes in limited.items():
            log = self._logs[key]
            messages = [batch.messages[i] for i in indexes]
            fresh = self._fresh(log, messages) if batch.audience is None else len(messages)
            if log.depth + fresh > log.max_depth:
                reason = queue_full_reason(key.name, log.depth, log.max_depth, fresh)
                refused |= dict.fromkeys(indexes, (Code.QUEUE_FULL, reason))
        return refused

    def _fresh(self, log: OpenLog, messages: Iterable[NewMessage]) -> int:
        """How many of these are no duplicates, neither of stored messages nor of each other."""
        keys = [(log.queue_id, m.transaction_id, log.dedup_partition(m.partition)) for m in messages]
        if not log.dedup_window:
            return len(keys)
        named = {key for key in keys if key[1] is not None and key not in self._known}
        return len(named) + sum(key[1] is None for key in keys)

    async def write(self, connection: Connection) -> None:
        """Write all rows that were decided on."""
        if self._messages:
            await append_rows(connection, self._messages)
        if self._keys:
            await connection.execute(
                SQL["forget_expired_keys"], *map(list, zip(*(row[3:] for row in self._keys), strict=True))
            )
            await _copy(connection, "dedup", DEDUP_COLUMNS, self._keys)
        if self._scheduled:
            await _copy(connection, "scheduled", SCHEDULED_COLUMNS, self._scheduled)
            for log in self._logs.values():
                if log.scheduled:
                    await connection.execute(SQL["count_scheduled"], log.queue_id, log.scheduled)


OTHERS_REFUSED = (Code.BATCH_REFUSED, "another message of this batch was refused, so nothing of it was stored")


def depth_of(log: OpenLog) -> Depth:
    """How full a queue is."""
    return Depth(log.depth, max(0, log.max_depth - log.depth) if log.max_depth else None)


async def _copy(connection: Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    await connection.copy_records_to_table(table, schema_name="skep", columns=list(columns), records=rows)
