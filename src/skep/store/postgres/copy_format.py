"""Message rows in PostgreSQL's binary COPY format.

The driver can write any table, with a codec per value. This file knows only the message table, and takes a third of the time.
The format is PostgreSQL's documented one: per row the number of fields, per field its length (-1 for NULL) and its bytes, numbers
big-endian.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from struct import Struct as Layout

from skep.store.postgres.connection import Connection
from skep.store.rules import PIECE_BYTES

MESSAGE_COLUMNS = (
    "seq", "created_at", "id", "trace_id", "queue_id", "audience", "priority", "partition", "transaction_id",
    "content_type", "headers", "payload",
)  # fmt: skip
MessageRow = tuple[
    int, int, bytes, bytes | None, int, int | None, int, str, str | None, str | None, bytes | None, bytes
]
"""The values of `MESSAGE_COLUMNS`."""

PIECE_ROWS = 200
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_LENGTH = Layout(">i").pack
_INTEGER = Layout(">ii").pack
_START = Layout(">hiqiqi").pack
_FIELDS = len(MESSAGE_COLUMNS)


async def append_rows(connection: Connection, rows: Sequence[MessageRow]) -> None:
    """Write message rows. The caller holds the lock of their log."""
    await append_stream(connection, _pieces(rows))


async def append_stream(connection: Connection, rows: AsyncIterator[bytes]) -> None:
    """Write message rows that are in the COPY format already."""
    await connection.copy_to_table(
        "message", schema_name="skep", columns=list(MESSAGE_COLUMNS), source=_framed(rows), format="binary"
    )


async def _framed(rows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield _HEADER
    async for piece in rows:
        yield piece
    yield _TRAILER


async def _pieces(rows: Sequence[MessageRow]) -> AsyncIterator[bytes]:
    """Rows in pieces: PostgreSQL stores one while we encode the next, and neither needs much memory."""
    for piece in pieces(rows):
        yield encode(piece)


def pieces(rows: Sequence[MessageRow]) -> Iterator[Sequence[MessageRow]]:
    """Rows in order, in pieces of at most `PIECE_ROWS` rows and, if more than one, `PIECE_BYTES`."""
    start = size = 0
    for number, row in enumerate(rows):
        own = len(row[11]) + len(row[10] or b"")
        if number - start >= PIECE_ROWS or (number > start and size + own > PIECE_BYTES):
            yield rows[start:number]
            start, size = number, 0
        size += own
    if start < len(rows):
        yield rows[start:]


def encode(rows: Sequence[MessageRow]) -> bytes:
    """Rows of a COPY stream."""
    parts: list[bytes] = []
    partitions: dict[str, bytes] = {}
    for (
        seq, created_at, id_, trace_id, queue_id, audience, priority, partition, transaction_id, content_type, headers,
        payload,
    ) in rows:  # fmt: skip
        name = partitions.get(partition)
        if name is None:
            name = partitions[partition] = _text(partition)
        parts += (
            _START(_FIELDS, 8, seq, 8, created_at, 16),
            id_,
            _NULL if trace_id is None else _bytes(trace_id),
            _INTEGER(4, queue_id),
            _NULL if audience is None else _INTEGER(4, audience),
            _INTEGER(4, priority),
            name,
            _NULL if transaction_id is None else _text(transaction_id),
            _NULL if content_type is None else _text(content_type),
            _NULL if headers is None else _bytes(headers),
            _LENGTH(len(payload)),
            payload,
        )
    return b"".join(parts)


def _bytes(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())
