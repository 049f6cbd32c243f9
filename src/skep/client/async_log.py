"""The raw log, for asyncio: the part of the client for those who read without leasing, such as Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from skep.client import log_calls
from skep.client.admin_calls import PAGE_ROWS
from skep.client.async_sender import AsyncSender
from skep.client.log_calls import Compression, TableName
from skep.wire.groups import GroupFigures
from skep.wire.log import LogBoundsResponse
from skep.wire.pipelines import RunReport, RunView
from skep.wire.staging import Attempt, PublishedAnswer, StagingAborted, StagingResponse, StagingView

T = TypeVar("T")


class AsyncLog(AsyncSender):
    """What a client can read of logs, tell of its reading, and stage."""

    async def read_log(
        self,
        queue: str,
        first: int = 1,
        last: int | None = None,
        *,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[str] | None = None,
        compression: Compression = "none",
    ) -> bytes:
        """A range of the log, both ends included, as an Arrow IPC stream: whole, or an error.

        The columns are those of `skep.arrow.log.LOG_SCHEMA`, or only the ones that are named; ids are the 16 bytes of a UUID.
        """
        return await self.run(log_calls.read_log(queue, first, last, limit, columns, partitions, compression))

    async def log_bounds(
        self,
        queue: str,
        *,
        after: int | None = None,
        wait_seconds: float = 0.0,
        at: datetime | None = None,
        first: int | None = None,
        max_bytes: int | None = None,
    ) -> LogBoundsResponse:
        """Which seqs a log holds.

        With ``after`` and ``wait_seconds`` it waits for one beyond that. ``at_seq`` is the first seq at or after the time ``at``,
        ``through_seq`` the last one such that payloads from ``first`` on have at most ``max_bytes`` (at least one in any case).
        """
        return await self.run(log_calls.log_bounds(queue, after, wait_seconds, at, first, max_bytes))

    async def report_progress(self, queue: str, group: str, seq: int) -> GroupFigures:
        """Tell that an external group, a reader of the raw log, is done with all up to a seq; it never goes back."""
        return await self.run(log_calls.report_progress(queue, group, seq))

    # staging

    async def stage(
        self,
        query: str,
        epoch: int,
        partition: int,
        attempt: int,
        stream: bytes,
        *,
        chunk: int = 0,
        queue: str | None = None,
    ) -> StagingResponse:
        """Stage an Arrow IPC stream of messages under (query, epoch, partition, attempt), in no log until it is published.

        An attempt may come in chunks, numbered in their order; one that is sent again takes the place of the first.
        """
        return await self.run(log_calls.stage(query, epoch, partition, attempt, stream, chunk, queue))

    async def publish(self, query: str, epoch: int, attempts: Iterable[Attempt]) -> PublishedAnswer:
        """Let one attempt of each partition enter its logs, all at once and once; a repeat gets the same answer.

        Each `Attempt` says how many messages it staged, so that it is noticed when some are gone.
        """
        return await self.run(log_calls.publish(query, epoch, attempts))

    async def staging(self, query: str, epoch: int) -> StagingView:
        """Whether an epoch is published, and what is staged of it."""
        return await self.run(log_calls.staging(query, epoch))

    async def abort_staging(
        self, query: str, epoch: int, *, partition: int | None = None, attempt: int | None = None
    ) -> StagingAborted:
        """Forget what is staged of an epoch, or of one attempt of a partition; what is published stays."""
        return await self.run(log_calls.abort_staging(query, epoch, partition, attempt))

    # runs of pipelines

    async def put_run(self, run: str, report: RunReport) -> RunView:
        """Tell how a run of a pipeline stands, in place of what it told before."""
        return await self.run(log_calls.put_run(run, report))

    async def pipeline_run(self, run: str) -> RunView:
        """A run of a pipeline."""
        return await self.run(log_calls.pipeline_run(run))

    async def pipeline_runs(self, *, limit: int = PAGE_ROWS) -> list[RunView]:
        """The runs of pipelines that began last, newest first."""
        return (await self.run(log_calls.pipeline_runs(limit))).pipelines

    # tables

    async def read_table(
        self,
        table: TableName,
        queue: str | None = None,
        *,
        after: int | str | None = None,
        until: int | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> bytes:
        """Lease history, dead letters (both of a queue), queues or groups, as an Arrow IPC stream: whole, or an error.

        ``after`` and ``until`` are positions of the history, seqs of dead letters, or for the others the name of a queue.
        ``since`` leaves out leases that ended, and letters that died, before it.
        """
        return await self.run(log_calls.read_table(table, queue, after, until, since, limit))
