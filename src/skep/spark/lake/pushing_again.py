"""Push messages of a queue again, those of the log and those that the lake alone has: all of them, in order and once, or none.

First the messages are found: their seqs, without their payloads. Then they are staged on the server, and each portion is published in one
transaction. The name under which they are staged is made of their seqs, so a replay that is repeated changes nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.old_messages import OldMessages, Wanted, is_json, raw_bytes
from skep.spark.lake.rows import FIRST
from skep.spark.link import Log, link
from skep.spark.options import ServerConnection
from skep.spark.portions import STAGE_BYTES, encoded, gathered
from skep.spark.schema import rows_of, schema_of
from skep.wire.log import LogBoundsResponse as Bounds
from skep.wire.staging import Attempt

STAGE_ROWS = 10_000
EPOCH_ROWS = 50_000
"""The most messages that are published in one transaction."""
FETCH_ROWS = 250_000
FOUND = schema_of(("seq",))
PUSHED = schema_of(("seq", "partition", "transaction_id", "trace_id", "payload", "headers", "content_type"))


class ReplayWish(Struct, frozen=True, kw_only=True):
    """What comes again, and for whom."""

    queue: str
    to: str | None = None
    """Another queue."""
    group: str | None = None
    """The only group that gets the messages; None for all."""
    label: str = "replay"
    content_type: str | None = None
    """The content type of payloads of the lake that are no JSON."""


class Found(Struct, frozen=True):
    """The seqs of the messages that fit, in order."""

    seqs: Sequence[int]
    in_lake: int
    """How many of them the lake alone has. They are the first ones."""


class PushingAgain:
    """A replay of messages of the log, as it was when this was made, and of the lake."""

    def __init__(self, connection: ServerConnection, replay: ReplayWish, old: OldMessages | None) -> None:
        self._server = link(connection)
        self._replay = replay
        self._old = old
        self.bounds: Bounds = self._server.bounds(replay.queue) if old is None else old.bounds

    def found(self, wanted: Sequence[Wanted]) -> Found:
        """The messages that fit one of several wishes, which are in the order of their seqs."""
        lake = [seq for one in wanted for rows in self._of_lake(one, FOUND) for seq in rows.column("seq").to_pylist()]
        log = [seq for one in wanted for rows in self._of_log(one, FOUND) for seq in rows.column("seq").to_pylist()]
        return Found([*lake, *log], len(lake))

    def push(self, wanted: Sequence[Wanted], found: Found) -> int:
        """Push what was found; return how many messages are new. A portion that an earlier call has pushed stays as it is."""
        rows = self._pushed(wanted)
        name = self._name(found)
        new = 0
        for epoch, first in enumerate(range(0, len(found.seqs), EPOCH_ROWS)):
            new += self._push_epoch(name, epoch, rows, list(found.seqs[first : first + EPOCH_ROWS]))
        return new

    def _push_epoch(self, name: str, epoch: int, rows: _Rows, seqs: list[int]) -> int:
        calls = self._server.about(name, epoch)
        portion = rows.next(len(seqs))
        if [seq for one in portion for seq in one.column("seq").to_pylist()] != seqs:
            raise SkepError(
                Code.MESSAGE_NOT_FOUND,
                f"messages of {self._replay.queue} were removed while they were read; what was not pushed is as it was. Try again",
            )
        if self._server.patiently(lambda: calls.staging(name, epoch)).published:
            return 0
        attempt, target = random.getrandbits(31), self._replay.to or self._replay.queue
        for chunk, some in enumerate(gathered(iter(portion), STAGE_ROWS, STAGE_BYTES)):
            body = encoded([_sent(one) for one in some])
            stage = partial(calls.stage, name, epoch, 0, attempt, body, chunk=chunk, queue=target)
            self._server.patiently(partial(stage, group=self._replay.group))
        return self._server.patiently(lambda: calls.publish(name, epoch, [Attempt(0, attempt, len(seqs))])).messages

    def _name(self, found: Found) -> str:
        """The name under which these messages are staged: the same for the same replay."""
        about = msgspec.json.encode([self._replay, self.bounds.log, found.seqs])
        return f"replay-{hashlib.sha256(about).hexdigest()[:32]}"

    def _pushed(self, wanted: Sequence[Wanted]) -> _Rows:
        def rows() -> Iterator[pa.RecordBatch]:
            for one in wanted:
                for batch in self._of_lake(one, PUSHED):
                    yield self._named(self._typed(batch))
            for one in wanted:
                for batch in self._of_log(one, PUSHED):
                    yield self._named(batch)

        return _Rows(rows())

    def _of_lake(self, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self._old is not None:
            yield from self._old.rows(wanted, schema)

    def _of_log(self, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        queue, bounds = self._replay.queue, self.bounds
        first = max(bounds.first_seq, wanted.first)
        last = bounds.last_seq if wanted.last is None else min(bounds.last_seq, wanted.last)
        if wanted.since is not None:
            first = max(first, self._server.first_seqs_at([queue], wanted.since)[queue])
        if wanted.until is not None:
            last = min(last, self._server.first_seqs_at([queue], wanted.until)[queue] - 1)
        for start in range(first, last + 1, FETCH_ROWS):
            end = min(last, start + FETCH_ROWS - 1)
            log = Log(
                queue=queue, first=start, last=end, columns=tuple(schema.names), partitions=wanted.partitions,
                transaction_ids=wanted.transaction_ids, trace_ids=wanted.trace_ids,
            )  # fmt: skip
            for batch in self._server.read(log):
                yield rows_of(batch, queue, schema)

    def _typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the lake with their content type: it keeps none, and only JSON needs none."""
        types = []
        for seq, content in zip(
            rows.column("seq").to_pylist(), raw_bytes(rows.column("payload")).to_pylist(), strict=True
        ):
            if content is None:
                raise SkepError(
                    Code.CANNOT_DECRYPT,
                    f"the message with seq {seq} is sealed in the lake, and cannot be opened: its key was destroyed (skep encryption "
                    "shred). Leave it out",
                )
            is_text = is_json(content)
            if not is_text and self._replay.content_type is None:
                raise SkepError(
                    Code.INVALID_PAYLOAD,
                    f"the message with seq {seq} is no JSON, and the lake keeps no content types: name it with --content-type, or leave "
                    "the message out",
                )
            types.append(None if is_text else self._replay.content_type)
        place = rows.schema.get_field_index("content_type")
        return rows.set_column(place, rows.schema.field(place), pa.array(types, pa.string()))

    def _named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the transaction ids of the new messages. For one group alone, messages keep theirs."""
        if self._replay.group is not None:
            return rows
        generation = FIRST if self._old is None else self._old.generation
        origin = [
            self._replay.label, self._replay.queue, *([f"generation {generation}"] if generation != FIRST else []),
        ]  # fmt: skip
        seqs = rows.column("seq").cast(pa.string())
        ids = pc.binary_join_element_wise("/".join(origin), seqs, "/")
        place = rows.schema.get_field_index("transaction_id")
        return rows.set_column(place, rows.schema.field(place), ids)


def _sent(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they are staged: their payloads may be any bytes."""
    place = rows.schema.get_field_index("payload")
    return rows.set_column(place, "payload", raw_bytes(rows.column("payload"))).drop_columns(["seq"])


class _Rows:
    """Batches, of which so many rows are taken at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def next(self, rows: int) -> list[pa.RecordBatch]:
        """The next rows, fewer at the end."""
        taken: list[pa.RecordBatch] = []
        while rows:
            batch = self._left or next(self._batches, None)
            if batch is None:
                break
            taken.append(batch.slice(0, rows))
            self._left = batch.slice(rows) if batch.num_rows > rows else None
            rows -= taken[-1].num_rows
        return taken
