"""A cache of log chunks as columns: the next reader of the same messages costs PostgreSQL next to nothing.

As a rule several queries read one queue, one behind the other. The cache keeps whole chunks, which begin at the same seqs for all
readers. A log is append-only: messages do not change, and are removed from its beginning. A deleted message is the exception. So each
read asks PostgreSQL whether all messages of the chunk are still there; a chunk is cached only if they were after it was read. (Dead
letters are often removed from the middle, so dead-letter queues are not cached.)
The read also compares the last message: after a failover or a restored backup, the same seqs may name other messages. If the same
transaction stored the last message, the messages before it are the same. Its id alone is no proof: a scheduled, queued or spooled
message may be stored again under the same id.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from skep.model import LOG_CHUNK, QueueKey, Seq
from skep.store.postgres.connection import Connection, Pool
from skep.store.postgres.log_chunks import comes_in_chunks
from skep.store.statements import load_statements

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

    from skep.arrow.log import LogPiece, LogRange
    from skep.store.postgres.log import RawRange

SQL = load_statements(__package__, "log_cache")
IDLE_SECONDS = 300.0
"""A chunk that was not read for this long is dropped."""
Place = tuple[QueueKey, int, tuple[str, ...] | None]


class ChunkMark(Struct, frozen=True):
    """The identity of a chunk's contents: other messages in its place have another mark."""

    queue_id: int
    last_id: bytes
    stored_at: int
    stored_by: str
    """The transaction that stored the last message."""


class Chunk(Struct):
    """A chunk: `LOG_CHUNK` consecutive messages of one log, from the seq ``first`` on."""

    mark: ChunkMark
    first: int
    batch: pa.RecordBatch
    read_at: float


class LogCache:
    """Chunks of logs, up to ``max_bytes``; the least recently read ones are dropped first (LRU)."""

    def __init__(self, max_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._now = now
        self._chunks: OrderedDict[Place, Chunk] = OrderedDict()
        self.bytes = 0

    async def read(self, pool: Pool, key: QueueKey, wanted: LogRange) -> LogPiece:
        """The first piece of a range: from the cache if its chunk is unchanged, else from PostgreSQL; then it is cached if possible."""
        from skep.store.postgres import log

        async with pool.connection() as connection:
            if (kept := await self._kept(connection, key, wanted)) is not None:
                return kept
            found = await log.read(connection, key, wanted)
            mark = await self._mark(connection, key, wanted, found)
        piece = await asyncio.to_thread(log.piece_of, wanted, found)
        if mark is not None:
            self.keep(key, wanted, mark, piece)
        return piece

    async def _kept(self, connection: Connection, key: QueueKey, wanted: LogRange) -> LogPiece | None:
        from skep.arrow.log import LogPiece

        chunk = self._chunks.get(place := _place(key, wanted))
        if chunk is None or not comes_in_chunks(wanted):
            return None
        last = Seq(min(wanted.last, wanted.first + wanted.max_rows - 1, chunk.first + LOG_CHUNK - 1))
        if last < wanted.first or chunk.batch.nbytes > wanted.max_bytes:
            return None
        if await _mark_of(connection, key, chunk.first) != chunk.mark:
            self._drop(place)
            return None
        if place in self._chunks:  # it was not dropped meanwhile
            chunk.read_at = self._now()
            self._chunks.move_to_end(place)
        return LogPiece(chunk.batch.slice(wanted.first - chunk.first, last - wanted.first + 1), last)

    async def _mark(
        self, connection: Connection, key: QueueKey, wanted: LogRange, found: Sequence[RawRange]
    ) -> ChunkMark | None:
        """The mark of a range that was just read over this connection; None when it is no whole chunk, or may change."""
        if not self._max_bytes or not comes_in_chunks(wanted) or not _is_chunk(wanted.first, found):
            return None
        mark = await _mark_of(connection, key, wanted.first)
        return None if mark is None or {mark.queue_id} != {part.queue_id for part in found} else mark

    def keep(self, key: QueueKey, wanted: LogRange, mark: ChunkMark, piece: LogPiece) -> None:
        """Keep a whole chunk for the next reader."""
        if piece.batch.nbytes > min(self._max_bytes, wanted.max_bytes):
            return
        self._drop(place := _place(key, wanted))
        self._chunks[place] = Chunk(mark, wanted.first, piece.batch, self._now())
        self.bytes += piece.batch.nbytes
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._chunks)))

    def drop_idle(self) -> None:
        """Drop chunks that were not read for `IDLE_SECONDS`."""
        oldest = self._now() - IDLE_SECONDS
        while self._chunks and next(iter(self._chunks.values())).read_at < oldest:
            self._drop(next(iter(self._chunks)))

    def drop(self, key: QueueKey) -> None:
        """Drop the chunks of a log: some of its messages are to be forgotten."""
        for place in [place for place in self._chunks if place[0] == key]:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        chunk = self._chunks.pop(place, None)
        if chunk is not None:
            self.bytes -= chunk.batch.nbytes


async def _mark_of(connection: Connection, key: QueueKey, first: int) -> ChunkMark | None:
    row = await connection.fetchrow(SQL["mark"], key.tenant, key.name, first, first + LOG_CHUNK - 1)
    return None if row is None else ChunkMark(*row)


def _is_chunk(first: Seq, found: Sequence[RawRange]) -> bool:
    """Whether these consecutive parts are a whole chunk that begins at this seq."""
    shapes = [part.shape for part in found if part.shape is not None]
    if first % LOG_CHUNK != 1 or not shapes or shapes[0].first != first:
        return False
    return sum(shape.messages for shape in shapes) == LOG_CHUNK == shapes[-1].last - first + 1


def _place(key: QueueKey, wanted: LogRange) -> Place:
    return key, (wanted.first - 1) // LOG_CHUNK, wanted.columns
