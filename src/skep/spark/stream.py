"""`spark.readStream.format("skep")`: a queue as a stream. Offsets are one number per queue.

Spark asks for the latest offset again and again. When there was nothing new twice in a row, the answer waits on the server for the
next push (a long poll). So an idle query costs a few requests every two seconds, and a new message is seen at once.
With minOffsetsPerTrigger, a batch is held back until there are so many messages, or until maxTriggerDelay has passed since the batch before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from skep.errors import SkepError
from skep.spark import offset_ranges
from skep.spark.lake.united import LakeIndex
from skep.spark.link import Link, link
from skep.spark.offsets import Offsets, in_order, noted, parted, shares, stretches
from skep.spark.options import SourceOptions
from skep.spark.source import Portion, lake_index, portions, rows, widened
from skep.spark.watching import Watch
from skep.wire.log import LogBoundsResponse as Bounds

if TYPE_CHECKING:
    from skep.spark.typed.rows import TypedRows

WATCHED_QUEUES = 16
"""The most queues that are waited for at once. Messages in further queues are seen when the wait is over."""
LAKE_SECONDS = 10.0
"""How often a stream looks how far the archive has come. What retention removes meanwhile, tasks find in the lake all the same."""
PATTERN_SECONDS = 10.0
"""How often new queues are matched with the pattern."""


class MessageStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs batch by batch. One object lives beside the driver. The tasks have copies, which use none of its state."""

    def __init__(
        self,
        options: SourceOptions,
        schema: pa.Schema,
        typed: TypedRows | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._schema = schema
        self._typed = typed
        self._now = now
        self._sleep = sleep
        self._batch_at = float("-inf")
        """When the last batch of this run was planned. The first one is not held back: messages may have waited for the start."""
        self._seen: dict[str, Bounds] = {}
        self._target: Offsets | None = None
        self._idle = False
        self._queues: tuple[str, ...] = ()
        self._queues_at = float("-inf")
        self._watch: Watch | None = None
        self._reported: dict[str, tuple[int, int]] = {}
        self._lake: LakeIndex | None = None
        self._lake_at = float("-inf")

    @property
    def _server(self) -> Link:
        return link(self._options.connection)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the stream begins when there is no checkpoint yet."""
        found = self._look()
        self._check_there({}, found)
        return self._noted(offset_ranges.starting(self._server, self._options, found, self._lake), {})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the stream: it ends with the messages that are there now."""
        self._target = {queue: bounds.last_seq for queue, bounds in self._look().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit that Spark passes to `latestOffset`, unless it wants all rows at once."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch."""
        done, logs = parted(start)
        offset_ranges.check_checkpoint(self._options, done)
        begin, end = self._ends(done, logs)
        self._report(start)
        held_seconds = self._held_seconds(begin, end, limit)
        if self._idle and self._target is None and (held_seconds or self._noted(end, logs) == start):
            if held_seconds:
                self._sleep(min(held_seconds, self._options.wait_seconds))
            else:
                self._wait(done)
            begin, end = self._ends(done, logs)
            held_seconds = self._held_seconds(begin, end, limit)
        if held_seconds:
            end = begin
        elif not isinstance(limit, ReadAllAvailable):
            end = self._limited(begin, end)
        self._idle = self._noted(end, logs) == start
        if any(end[queue] > begin[queue] for queue in end):
            self._batch_at = self._now()
        return self._noted(end, logs)

    def _held_seconds(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> float:
        """How long the batch is still held back because it has too few messages. Zero when it is not, or when there are none."""
        least = self._options.min_offsets
        if least is None or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return 0.0
        if not 0 < sum(end[queue] - begin[queue] for queue in end) < least:
            return 0.0
        return max(0.0, self._batch_at + self._options.trigger_delay_seconds - self._now())

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name
        """The last seen end of each log, for Spark's own figures."""
        return in_order({queue: bounds.last_seq for queue, bounds in self._seen.items()}) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Even portions of a batch. After a restart another process had planned the batch, so the bounds are read first."""
        done, logs = parted(start)
        last, last_logs = parted(end)
        offset_ranges.check_checkpoint(self._options, last)
        if not self._seen:
            self._look()
        self._check_there(last, self._seen)
        # The rest of a log that was deleted cannot be read; the next batch goes on with the new log.
        last = {
            queue: seq for queue, seq in last.items() if queue in self._seen and self._is_same(queue, seq, last_logs)
        }
        begin = self._begin({queue: done[queue] for queue in last if queue in done}, logs)
        # A queue without a start is new. In this batch it also ends where its log begins.
        begin |= {queue: self._seen[queue].first_seq - 1 for queue in last if queue not in begin}
        return portions(stretches(begin, last), self._options.min_partitions, self._seen, self._lake)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a portion; this runs in a task."""
        assert isinstance(partition, Portion)
        return rows(self._server, self._options, self._schema, self._typed, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls this when it begins the next batch: everything up to this offset is done."""
        self._report(end)

    def stop(self) -> None:
        """There is nothing to release."""

    def _report(self, done: Mapping[str, Any]) -> None:
        """Move the group on the server. Spark never calls `commit` for its last batch. But the start of a new batch is done, too:
        Spark asks for a batch only after the previous one is in its commit log.
        """
        if self._options.group is None:
            return
        offsets, logs = parted(done)
        moved: dict[str, tuple[int, int]] = {}
        for queue, seq in offsets.items():
            seen = self._seen.get(queue)
            # An offset of a deleted log says nothing about the new one.
            if seen is None or seq > seen.last_seq or logs.get(queue, seen.log) != seen.log:
                continue
            if self._reported.get(queue) != (seen.log, seq):
                moved[queue] = (seen.log, seq)
        self._server.report_progress(self._options.group, {queue: seq for queue, (_, seq) in moved.items()})
        self._reported |= moved

    def _look(self) -> dict[str, Bounds]:
        """The bounds of the subscribed queues that exist now."""
        if self._options.pattern is None or time.monotonic() >= self._queues_at + PATTERN_SECONDS:
            self._queues = offset_ranges.subscribed(self._server, self._options)
            self._queues_at = time.monotonic()
        found = self._server.bounds_of(self._queues)
        known = self._lake
        is_old = self._now() >= self._lake_at + LAKE_SECONDS
        # Retention may have removed what an archive has taken since then.
        if is_old or (known is not None and any(map(known.is_behind, found.values()))):
            self._lake = lake_index(self._options)
            self._lake_at = self._now()
        self._seen = widened(self._server, found, self._lake)
        return self._seen

    def _noted(self, offsets: Offsets, logs: Mapping[str, int]) -> dict[str, Any]:
        """Offsets with the logs they belong to, also logs that are gone."""
        return noted(offsets, {**logs, **{queue: bounds.log for queue, bounds in self._seen.items()}})

    def _check_there(self, known: Mapping[str, int], found: Mapping[str, Bounds]) -> None:
        """Check that the queues exist. A missing queue that was read before is a loss; any other is a mistake in the options."""
        for queue in sorted(known.keys() - found.keys()):
            offset_ranges.lose(self._options, offset_ranges.deleted(queue))
        if self._options.pattern is None:
            for queue in sorted(set(self._options.queues) - known.keys() - found.keys()):
                raise offset_ranges.gone(queue)

    def _ends(self, done: Offsets, logs: Mapping[str, int]) -> tuple[Offsets, Offsets]:
        """Where the next batch begins, and where the logs end; a deleted queue keeps its offset.

        For a new queue this batch only notes where its log begins, and the next batch reads it. So the checkpoint has a start for
        every read. Without it, nobody would notice what retention removes from a new queue before a batch is run again.
        """
        found = self._look()
        self._check_there(done, found)
        target = self._target
        new = {queue for queue in found if queue not in done and (target is None or queue in target)}
        begin = self._begin(done, logs) | {queue: found[queue].first_seq - 1 for queue in new}
        end = dict(begin)
        for queue in done.keys() & found.keys():
            last = found[queue].last_seq
            end[queue] = max(begin[queue], last if target is None else min(last, target.get(queue, 0)))
        return begin, end

    def _begin(self, done: Mapping[str, int], logs: Mapping[str, int]) -> Offsets:
        """Where to go on: after the offset, or at the log's beginning if that is later or the log is a new one."""
        return {
            queue: offset_ranges.check_kept(self._options, queue, offset, self._seen[queue], logs.get(queue))
            if queue in self._seen
            else offset
            for queue, offset in done.items()
        }

    def _is_same(self, queue: str, seq: int, logs: Mapping[str, int]) -> bool:
        if logs.get(queue, self._seen[queue].log) == self._seen[queue].log:
            return True
        offset_ranges.lose(self._options, offset_ranges.remade(queue, seq))
        return False

    def _limited(self, begin: Offsets, end: Offsets) -> Offsets:
        """Cut a batch to the limits of messages and bytes; each queue gets its share."""
        wanted = {queue: end[queue] - begin[queue] for queue in end if end[queue] > begin[queue]}
        if not wanted:
            return end
        if self._options.max_offsets is not None:
            wanted = shares(wanted, self._options.max_offsets)
        if self._options.max_bytes is not None:
            most = max(1, self._options.max_bytes // len(wanted))
            firsts = {queue: begin[queue] + 1 for queue, count in wanted.items() if count}
            for queue, last in self._lasts_within(firsts, most).items():
                wanted[queue] = min(wanted[queue], last - begin[queue])
        return {**end, **{queue: begin[queue] + count for queue, count in wanted.items()}}

    def _lasts_within(self, firsts: Mapping[str, int], most_bytes: int) -> Offsets:
        """The last seqs up to which the messages have so many bytes: in the lake those of its files, in the log those of payloads."""
        lasts: Offsets = {}
        for queue, first in firsts.items():
            in_lake = None if self._lake is None else self._lake.last_seq_within(self._seen[queue], first, most_bytes)
            if in_lake is not None:
                lasts[queue] = in_lake
        return lasts | self._server.last_seqs_within(
            {queue: first for queue, first in firsts.items() if queue not in lasts}, most_bytes
        )

    def _wait(self, start: Mapping[str, int]) -> None:
        """Return when one of the queues has a new message, or after `waitSeconds`."""
        seconds = self._options.wait_seconds
        watched = sorted(self._seen)[:WATCHED_QUEUES]
        if not watched:
            time.sleep(min(1.0, seconds))  # no queue matches yet
            return
        if not seconds:
            return
        if len(watched) == 1:
            self._news(watched[0], start.get(watched[0], 0))
            return
        self._watch = self._watch or Watch(self._news, WATCHED_QUEUES)
        self._watch.news(start, watched, seconds)

    def _news(self, queue: str, offset: int) -> int:
        """Wait for a message after an offset; return the last seq. On an error return the offset: the next call deals with it."""
        try:
            return self._server.next_bounds(queue, offset, self._options.wait_seconds).last_seq
        except SkepError:
            time.sleep(min(1.0, self._options.wait_seconds))
            return offset
