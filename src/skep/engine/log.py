"""Reading the raw log by seq (offset), without leases. A reader may report its progress as an external group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from skep.clock import Clock, Instant
from skep.config import MEBIBYTE, Limits
from skep.engine import validate
from skep.engine.chores import Chores
from skep.engine.inflight import InFlight
from skep.engine.pop.dispenser import Dispenser
from skep.errors import Code, SkepError
from skep.model import LOG_CHUNK, GroupStats, LogBounds, QueueKey, SealedPayloads, Seq
from skep.store.protocol.groups import GroupVerbs
from skep.store.protocol.log import LogReadVerbs, LogVerbs

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogIds, LogPiece, LogRange

CHUNK_BYTES = 8 * MEBIBYTE
WALK_ROWS = 1_000_000
"""How many seqs one call of `last_seqs_within` looks at to sum up payload bytes; each log has its share."""


class LogsAndGroups(LogVerbs, GroupVerbs, Protocol):
    """The store's verbs for logs and groups."""


@dataclass(eq=False)
class Logs:
    """The logs of all queues, for readers without leases."""

    _store: LogsAndGroups
    _opened: LogReadVerbs
    _clock: Clock
    _in_flight: InFlight
    _limits: Limits
    _dispenser: Dispenser
    _chores: Chores

    async def read(
        self,
        key: QueueKey,
        first: Seq,
        last: Seq,
        *,
        max_rows: int = LOG_CHUNK,
        max_bytes: int = CHUNK_BYTES,
        columns: Sequence[str] | None = None,
        partitions: Sequence[str] | None = None,
        ids: LogIds | None = None,
        sealed: SealedPayloads = "open",
    ) -> LogPiece:
        """As much of a range as fits, as columns. `skep.arrow.log.LogPiece` says where the next piece begins.

        With ``ids``, only the messages that have them; ``sealed`` says how payloads of encrypted queues are read.
        """
        from skep.arrow.log import LogRange

        with self._in_flight:
            validate.check_key(key)
            validate.check_count(max_rows, self._limits.bulk_messages, "the number of rows")
            self.check_wanted(columns, partitions)
            last = min(last, Seq(validate.SEQ_MAX))
            wanted = LogRange(
                first=Seq(max(first, 0)), last=last, max_rows=max_rows, max_bytes=max_bytes,
                columns=None if columns is None else tuple(columns),
                partitions=None if partitions is None else tuple(dict.fromkeys(partitions)), sealed=sealed,
            )  # fmt: skip
            if ids is None or not ids.columns:
                return await self._opened.read_log(key, wanted)
            return await self._read_some(key, wanted, ids)

    async def _read_some(self, key: QueueKey, wanted: LogRange, ids: LogIds) -> LogPiece:
        """The messages of a piece that have some ids. First only the ids are read, then the messages between the first and the last match."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from skep.arrow.log import LogPiece

        names = wanted.schema.names
        looked = await self._opened.read_log(key, structs.replace(wanted, columns=("seq", *ids.columns)))
        seqs = looked.batch.column("seq").filter(ids.among(looked.batch))
        if not len(seqs):
            return LogPiece(pa.RecordBatch.from_pylist([], schema=wanted.schema), looked.through)
        first, last = Seq(seqs[0].as_py()), Seq(seqs[-1].as_py())
        columns = tuple(dict.fromkeys((*names, "seq")))
        found = await self._opened.read_log(key, structs.replace(wanted, first=first, last=last, columns=columns))
        batch = found.batch.filter(pc.is_in(found.batch.column("seq"), value_set=seqs)).select(names)
        return LogPiece(batch, looked.through if found.through >= last else found.through)

    def check_wanted(self, columns: Sequence[str] | None, partitions: Sequence[str] | None) -> None:
        """Refuse columns that the log does not have and partitions that cannot be."""
        from skep.arrow.log import check_columns

        if columns is not None:
            check_columns(columns)
        if partitions is not None:
            validate.check_texts(partitions)
            validate.check_count(len(partitions), self._limits.page, "the number of partitions")

    async def bounds(self, key: QueueKey, *, after: Seq | None = None, wait_seconds: float = 0) -> LogBounds:
        """The seqs that the log holds; with ``wait_seconds`` wait that long for a seq beyond ``after``."""
        with self._in_flight:
            validate.check_key(key)
            if after is None or not wait_seconds:
                return await self._store.log_bounds(key)
            validate.check_wait_seconds(wait_seconds, self._limits)
            return await self._dispenser.follow(key, after, wait_seconds)

    async def bounds_of(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        """The seqs that the logs of some queues hold, without queues that do not exist."""
        with self._in_flight:
            self._check_queues(tenant, queues)
            return await self._store.bounds_of_logs(tenant, queues)

    def _check_queues(self, tenant: str, queues: Collection[str]) -> None:
        validate.check_count(len(queues), self._limits.page, "the number of queues")
        for queue in queues:
            validate.check_key(QueueKey(queue, tenant))

    async def first_seqs_at(self, tenant: str, queues: Sequence[str], at: Instant) -> dict[str, Seq]:
        """Of each log, the first seq whose message was created at or after an instant; last seq + 1 when there is none."""
        with self._in_flight:
            self._check_queues(tenant, queues)
            return await self._store.first_seqs_at(tenant, queues, at)

    async def last_seqs_within(self, tenant: str, firsts: Mapping[str, Seq], max_bytes: int) -> dict[str, Seq]:
        """Of each log, the last seq of a range from its first seq whose payloads fit; at least that first seq. The ranges together are bounded."""
        with self._in_flight:
            self._check_queues(tenant, firsts)
            if max_bytes < 1 or not all(0 <= first <= validate.SEQ_MAX for first in firsts.values()):
                raise SkepError(Code.INVALID_REQUEST, "a number of bytes is positive, a seq is 0 or more")
            rows = max(1, WALK_ROWS // len(firsts))
            return await self._store.last_seqs_within(tenant, firsts, min(max_bytes, validate.SEQ_MAX), rows)

    async def progress_of(self, tenant: str, queues: Sequence[str], group: str) -> dict[str, Seq]:
        """The progress of a group in some logs, without logs that it does not read."""
        with self._in_flight:
            self._check_queues(tenant, queues)
            validate.check_name(group, "group")
            return await self._store.progress_of_logs(tenant, queues, group)

    async def report_progress(self, key: QueueKey, group: str, seq: Seq, *, archived: bool = False) -> GroupStats:
        """Note that an external group, a reader of the raw log, has done all messages up to ``seq``. Progress never goes back.

        With ``archived`` the group is an archive, and these messages are safe in its lake.
        """
        with self._in_flight:
            validate.check_key(key)
            validate.check_name(group, "group")
            if not 0 <= seq <= validate.SEQ_MAX:
                raise SkepError(Code.INVALID_REQUEST, "a seq is 0 or a positive number")
            stats = await self._store.report_progress(key, group, seq, self._clock.now(), archived)
            self._chores.settled(key, self._clock.now())
            if archived:
                self._chores.archived(key, self._clock.now())
            return stats

    async def report_progress_of(
        self, tenant: str, group: str, seqs: Mapping[str, Seq], *, archived: bool = False
    ) -> dict[str, Seq]:
        """The same for a group in many logs, by queue; its progress in each, without queues that do not exist."""
        with self._in_flight:
            self._check_queues(tenant, seqs)
            validate.check_name(group, "group")
            if not all(0 <= seq <= validate.SEQ_MAX for seq in seqs.values()):
                raise SkepError(Code.INVALID_REQUEST, "a seq is 0 or a positive number")
            now = self._clock.now()
            progress = await self._store.report_progress_of_logs(tenant, group, seqs, now, archived)
            for queue in progress:
                self._chores.settled(QueueKey(queue, tenant), now)
                if archived:
                    self._chores.archived(QueueKey(queue, tenant), now)
            return progress
