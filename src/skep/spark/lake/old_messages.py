"""Messages of a queue that its log does not have any more, found in the lake: without Spark, for commands that show or replay them.

The log is asked first, so a message comes from the lake only if its seq is below those of the log. The lake keeps neither content types
nor priorities: a payload that is no JSON is shown as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw, Struct

from skep.errors import Code, SkepError
from skep.model import SEALED_TYPE
from skep.spark.lake.rows import FIRST
from skep.spark.lake.united import LakeIndex, lake_messages
from skep.spark.link import link
from skep.spark.options import LakeOptions, ServerConnection, source_options
from skep.spark.schema import MESSAGES
from skep.wire.browsing import BrowsedMessage
from skep.wire.log import LogBoundsResponse as Bounds

BYTES_TYPE = "application/octet-stream"
"""The content type of a payload that is no JSON."""
PREVIEW_BYTES = 1_024
"""The longest payload that a list has whole, as in a list of the server."""
NULL = Raw(b"null")
SEQS = pa.schema([MESSAGES.field("seq")])


class Wanted(Struct, frozen=True, kw_only=True):
    """Which messages: those that match everything given, and have one of the values of each kind."""

    first: int = 1
    last: int | None = None
    partitions: tuple[str, ...] = ()
    transaction_ids: tuple[str, ...] = ()
    trace_ids: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class OldMessages:
    """The messages of a queue's present log that retention took, and the lake has. They are fixed when this is made."""

    def __init__(
        self, lake: LakeOptions, connection: ServerConnection, queue: str, index: LakeIndex | None = None
    ) -> None:
        self.bounds: Bounds = link(connection).bounds(queue)
        given = {"subscribe": msgspec.json.encode([queue]).decode(), "lake": lake.uri, "catalog": lake.catalog or ""}
        base = source_options(given, {})
        self._options = msgspec.structs.replace(base, connection=connection, fail_on_shredded=False)
        self._index = index or index_of(lake, connection)
        archived = self._index.archived(self.bounds)
        self.generation = FIRST if archived is None else archived.generation
        self._files = [] if archived is None else self._index.files(queue, archived.generation)
        self.last = 0 if archived is None or not self._files else min(archived.through, self.bounds.first_seq - 1)
        """The last seq that is in the lake and not in the log; 0 when there is none."""
        self.first = min((file.first_seq for file in self._files), default=1)

    @property
    def gap(self) -> tuple[int, int] | None:
        """The first and the last seq between lake and log, which neither has."""
        first, last = self.last + 1, self.bounds.first_seq - 1
        return (first, last) if first <= last else None

    def newest(self, wanted: Wanted) -> BrowsedMessage | None:
        """The newest message that fits, with its whole payload."""
        found = next(self.messages(wanted, newest_first=True, most=1, preview_bytes=None), None)
        if found is not None and found.content_type == SEALED_TYPE:
            raise SkepError(
                Code.CANNOT_DECRYPT,
                f"the message with seq {found.seq} of queue {found.queue!r} is sealed in the lake, and cannot be opened: its key was "
                "destroyed (skep encryption shred), or the message was changed",
            )
        return found

    def messages(
        self, wanted: Wanted, *, newest_first: bool = False, most: int | None = None, preview_bytes: int | None
    ) -> Iterator[BrowsedMessage]:
        """Messages in the order of their seqs, or the newest ones first; longer payloads only as a preview."""
        if not newest_first:
            for rows in self.rows(wanted, MESSAGES):
                yield from _browsed(rows, preview_bytes)
            return
        left = most
        for file in reversed(self._files):
            if left == 0:
                return
            of_file = msgspec.structs.replace(
                wanted, first=max(wanted.first, file.first_seq),
                last=file.last_seq if wanted.last is None else min(wanted.last, file.last_seq),
            )  # fmt: skip
            seqs = [seq for rows in self.rows(of_file, SEQS) for seq in rows.column("seq").to_pylist()]
            kept = seqs if left is None else seqs[-left:]
            if kept:
                last_ones = msgspec.structs.replace(of_file, first=kept[0])
                found = [one for rows in self.rows(last_ones, MESSAGES) for one in _browsed(rows, preview_bytes)]
                yield from reversed(found)
            left = None if left is None else left - len(kept)

    def rows(self, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Messages as columns, in the order of their seqs."""
        first, last = self._span(wanted)
        if first > last:
            return
        options = msgspec.structs.replace(
            self._options,
            partitions=wanted.partitions,
            transaction_ids=wanted.transaction_ids,
            trace_ids=wanted.trace_ids,
        )
        yield from lake_messages(options, schema, self._index.part(self.bounds, self.generation, first, last))

    def first_since(self, at: datetime) -> int | None:
        """The seq of the first of these messages that was pushed at or after a time; None when there is none."""
        found = self._index.first_seq_at(self.bounds, at)
        return found if found is not None and found <= self.last else None

    def _span(self, wanted: Wanted) -> tuple[int, int]:
        first = max(self.first, wanted.first)
        last = self.last if wanted.last is None else min(self.last, wanted.last)
        if wanted.since is not None:
            since = self.first_since(wanted.since)
            first = last + 1 if since is None else max(first, since)
        if wanted.until is not None and (until := self.first_since(wanted.until)) is not None:
            last = min(last, until - 1)
        return first, last


def index_of(lake: LakeOptions, connection: ServerConnection) -> LakeIndex:
    """The lake as it is now."""
    return LakeIndex(lake, connection.tenant, link(connection).forgotten)


def of_trace(lake: LakeOptions, connection: ServerConnection, trace_id: str) -> Iterator[BrowsedMessage]:
    """The messages of a trace that logs of the server do not have any more."""
    index = index_of(lake, connection)
    for queue in link(connection).bounds_of(sorted(index.queues)):
        found = OldMessages(lake, connection, queue, index)
        yield from found.messages(Wanted(trace_ids=(trace_id,)), preview_bytes=PREVIEW_BYTES)


def _browsed(rows: pa.RecordBatch, preview_bytes: int | None) -> Iterator[BrowsedMessage]:
    payloads = raw_bytes(rows.column("payload")).to_pylist()
    for row, content in zip(rows.drop_columns(["payload"]).to_pylist(), payloads, strict=True):
        yield _message(row, content, preview_bytes)


def _message(row: dict[str, Any], content: bytes | None, preview_bytes: int | None) -> BrowsedMessage:
    headers = row["headers"]
    if content is None:
        content_type, payload, preview = SEALED_TYPE, NULL, ""
    elif is_json(content):
        content_type, payload, preview = None, Raw(content), None
    else:
        content_type, payload, preview = BYTES_TYPE, Raw(msgspec.json.encode(content)), None
    if content is not None and preview_bytes is not None and len(content) > preview_bytes:
        cut = content[:preview_bytes]
        shown = cut.decode(errors="ignore") if content_type is None else msgspec.json.encode(cut).decode().strip('"')
        payload, preview = NULL, shown
    return BrowsedMessage(
        queue=row["queue"], partition=row["partition"], seq=row["seq"], id=row["message_id"],
        transaction_id=row["transaction_id"], trace_id=row["trace_id"], created_at=row["created_at"], priority=0, state=None,
        headers=NULL if headers is None else Raw(msgspec.json.encode(dict(headers))), content_type=content_type,
        payload_bytes=0 if content is None else len(content), payload=payload, preview=preview,
    )  # fmt: skip


def raw_bytes(payload: pa.StringArray) -> pa.BinaryArray:
    """Payloads as bytes: they may be any, also in a column of strings."""
    return pa.Array.from_buffers(pa.binary(), len(payload), payload.buffers(), payload.null_count, payload.offset)


def is_json(content: bytes) -> bool:
    """Whether a payload is JSON."""
    try:
        msgspec.json.decode(content, type=Raw)
        content.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
