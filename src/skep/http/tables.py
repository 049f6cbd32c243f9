"""Tables about queues beside their logs, as Arrow: lease history, dead letters, queues and groups.

Imported only when a request asks for a table, since it needs the extra. A table is read page by page, each page by a short call of the
store that begins after the last row of the page before. So a slow reader keeps no transaction open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

import pyarrow as pa

from skep.clock import Instant
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http import dead_letter_requests
from skep.http.arrow import StreamEncoder
from skep.http.pieces import Pieces
from skep.http.tenant_scan import Sees, figures, listed
from skep.model import DeadLetter, DeadLetterFilter, QueueKey, Seq
from skep.model.history import FinishedLease

TIME = pa.timestamp("us", tz="UTC")
LEASE_ROWS = 1_000
LETTER_ROWS = 100
"""Few rows per page, as each letter may have a large payload."""
QUEUE_ROWS = 100

Row = tuple[Any, ...]
Pages = AsyncGenerator[list[Row], None]


class TableWish(NamedTuple):
    """The wanted rows of a table: after one position, up to another, since a time, and at most ``limit``."""

    tenant: str
    queue: str | None
    after: str | None
    until: int | None
    since: Instant | None
    limit: int
    sees: Sees

    @property
    def key(self) -> QueueKey:
        """The queue of the wanted rows; INVALID_REQUEST when none is named."""
        if self.queue is None:
            raise SkepError(Code.INVALID_REQUEST, "the parameter queue is missing")
        return QueueKey(self.queue, self.tenant)

    @property
    def after_number(self) -> int:
        """``after`` as a number, for tables whose rows have numbers."""
        if self.after is None:
            return 0
        if not self.after.isdecimal() or len(self.after) > 19 or not self.after.isascii():
            raise SkepError(Code.INVALID_REQUEST, f"after must be a number, not {self.after[:100]!r}")
        return min(int(self.after), 2**63 - 1)


class Table(NamedTuple):
    """The columns of a table, and the function that reads its rows."""

    schema: pa.Schema
    pages: Callable[[Engine, TableWish], Pages]


async def stream(table: Table, pages: Pages, first: list[Row], limit: int) -> Pieces:
    """A table as an Arrow stream; its first page was read already, so that what cannot be is told in time."""
    encoder = StreamEncoder(table.schema)
    try:
        yield [encoder.head]
        page: list[Row] | None = first
        while page is not None and limit > 0:
            if rows := page[:limit]:  # the groups of some queues may be none
                columns = zip(zip(*rows, strict=True), table.schema, strict=True)
                arrays = [pa.array(values, field.type) for values, field in columns]
                yield encoder.encoded(pa.record_batch(arrays, schema=table.schema))
            limit -= len(rows)
            page = await anext(pages, None)
        yield [encoder.end]
    finally:
        await pages.aclose()


async def _leases(engine: Engine, wish: TableWish) -> Pages:
    after, key, left = wish.after_number, wish.key, wish.limit
    while left > 0:
        found = await engine.browse.lease_history(key, after=after, limit=min(LEASE_ROWS, left), since=wish.since)
        rows = [_lease(*one) for one in found if wish.until is None or one[0] <= wish.until]
        yield rows
        if len(rows) < LEASE_ROWS:
            return
        after, left = found[-1][0], left - len(rows)


def _lease(position: int, one: FinishedLease) -> Row:
    return (
        position, one.queue.name, one.group, one.partition, one.first_seq, one.last_seq, one.messages, one.completed,
        one.attempt, one.leased_at, one.settled_at, one.outcome,
    )  # fmt: skip


async def _dead_letters(engine: Engine, wish: TableWish) -> Pages:
    meant = await dead_letter_requests.resolved(engine, DeadLetterFilter(queue=wish.key, since=wish.since))
    after, left = wish.after_number, wish.limit
    if meant is not None and wish.since is not None:
        # A letter enters its log when it dies, so letters that died before are skipped.
        died = await engine.log.first_seqs_at(meant.queue.tenant, [meant.queue.name], wish.since)
        after = max(after, died.get(meant.queue.name, Seq(1)) - 1)
    while meant is not None and left > 0:
        found = await engine.dead_letters.page(meant, after=Seq(after), limit=min(LETTER_ROWS, left))
        rows = [_letter(letter) for letter in found if wish.until is None or letter.seq <= wish.until]
        yield rows
        if len(rows) < LETTER_ROWS:
            return
        after, left = found[-1].seq, left - len(rows)


def _letter(one: DeadLetter) -> Row:
    return (
        one.seq, one.queue.name, one.source_queue, one.source_seq, one.partition, one.group, one.reason.value, one.error,
        one.attempts, one.id, one.transaction_id, one.trace_id, one.payload, one.content_type,
        None if one.headers is None else one.headers.decode(), one.created_at, one.failed_at,
    )  # fmt: skip


async def _queues(engine: Engine, wish: TableWish) -> Pages:
    after = wish.after or ""
    while True:
        queues = await listed(engine, wish.tenant, after=after, limit=QUEUE_ROWS, sees=wish.sees)
        yield [
            (
                queue.key.name, queue.settings.namespace, queue.settings.task, queue.settings.ordering.value,
                queue.settings.paused, queue.holds_dead_letters, stats.first_seq, stats.last_seq, stats.depth,
                stats.scheduled, stats.in_flight, stats.dead_letters, stats.oldest_age_seconds, queue.created_at,
                queue.updated_at,
            )
            for queue, stats in await figures(engine, queues)
        ]  # fmt: skip
        if len(queues) < QUEUE_ROWS:
            return
        after = queues[-1].key.name


async def _groups(engine: Engine, wish: TableWish) -> Pages:
    after = wish.after or ""
    while True:
        if wish.queue is None:
            queues = await listed(engine, wish.tenant, after=after, limit=QUEUE_ROWS, sees=wish.sees)
        else:
            queues = [await engine.get_queue(wish.key)]
        yield [
            (
                one.queue.name, one.group, one.external, one.progress_seq, one.pushed, one.completed, one.pending,
                one.in_flight, one.dead, one.expired, one.retried, one.lag_messages, one.lag_seconds, one.oldest_at,
                one.created_at,
            )
            for _, stats in await figures(engine, queues)
            for one in stats.groups
        ]  # fmt: skip
        if len(queues) < QUEUE_ROWS:
            return
        after = queues[-1].key.name


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_TEXT, _COUNT, _ID, _FLAG = pa.string(), pa.int64(), pa.binary(16), pa.bool_()

TABLES = {
    "leases": Table(
        _schema(
            position=_COUNT, queue=_TEXT, group=_TEXT, partition=_TEXT, first_seq=_COUNT, last_seq=_COUNT,
            messages=_COUNT, completed=_COUNT, attempt=_COUNT, leased_at=TIME, settled_at=TIME, outcome=_TEXT,
        ),
        _leases,
    ),
    "dead_letters": Table(
        _schema(
            seq=_COUNT, queue=_TEXT, source_queue=_TEXT, source_seq=_COUNT, partition=_TEXT, group=_TEXT, reason=_TEXT,
            error=_TEXT, attempts=_COUNT, message_id=_ID, transaction_id=_TEXT, trace_id=_ID, payload=pa.binary(),
            content_type=_TEXT, headers=_TEXT, created_at=TIME, failed_at=TIME,
        ),
        _dead_letters,
    ),
    "queues": Table(
        _schema(
            queue=_TEXT, namespace=_TEXT, task=_TEXT, ordering=_TEXT, paused=_FLAG, holds_dead_letters=_FLAG,
            first_seq=_COUNT, last_seq=_COUNT, depth=_COUNT, scheduled=_COUNT, in_flight=_COUNT, dead_letters=_COUNT,
            oldest_age_seconds=pa.float64(), created_at=TIME, updated_at=TIME,
        ),
        _queues,
    ),
    "groups": Table(
        _schema(
            queue=_TEXT, group=_TEXT, external=_FLAG, progress_seq=_COUNT, pushed=_COUNT, completed=_COUNT,
            pending=_COUNT, in_flight=_COUNT, dead=_COUNT, expired=_COUNT, retried=_COUNT, lag=_COUNT,
            lag_seconds=pa.float64(), oldest_at=TIME, created_at=TIME,
        ),
        _groups,
    ),
}  # fmt: skip
