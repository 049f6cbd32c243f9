"""The calls of readers of the raw log: read, report progress, and stage messages. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from skep.client.exchange import ApiCall, ApiResponse, Request, path_part
from skep.client.failures import unexpected
from skep.client.method import PAGE_ROWS, call, delete, get, part, post, put, texts, with_time
from skep.client.queue_calls import GROUPS
from skep.model import SealedPayloads
from skep.wire.groups import GroupFigures, ProgressOfMany, ProgressOfManyResponse, ProgressRequest
from skep.wire.log import ARROW, LogBoundsResponse, LogsBoundsRequest, LogsBoundsResponse
from skep.wire.pipelines import RunReport, RunsResponse, RunView
from skep.wire.staging import (
    Attempt,
    PublishedAnswer,
    PublishRequest,
    StagingAborted,
    StagingResponse,
    StagingView,
)

LOG = "/api/v1/log"
BOUNDS_OF_LOGS = f"{LOG}s/bounds"
PIPELINES = "/api/v1/pipelines"
ARROW_END = b"\xff\xff\xff\xff\0\0\0\0"
"""How an Arrow stream ends; one that was cut off does not."""

PUBLISH_SECONDS = 600.0
"""How long publishing may take, on top of the usual time."""

Compression = Literal["none", "lz4", "zstd"]
TableName = Literal["leases", "dead_letters", "queues", "groups"]


class LogCalls:
    """The client's calls for readers without leases, such as Spark: logs, progress, staging."""

    @call
    def read_log(
        self,
        queue: str,
        first: int = 1,
        last: int | None = None,
        *,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[str] | None = None,
        compression: Compression = "none",
        sealed: SealedPayloads = "open",
    ) -> ApiCall[bytes]:
        """A range of the log, both ends included, as an Arrow IPC stream: whole, or an error.

        ``sealed`` is for encrypted queues: with ``keep`` payloads come as they are stored, and `open_sealed` opens them; with ``blank``
        a payload that cannot be opened is empty, which is an error otherwise.

        The columns are those of `skep.arrow.log.LOG_SCHEMA`, or only the ones that are named; ids are the 16 bytes of a UUID.
        """
        query: dict[str, str | Sequence[str]] = {**texts({"from": first, "to": last, "limit": limit})}
        if columns is not None:
            query["columns"] = ",".join(columns)
        if partitions is not None:
            query["partition"] = list(partitions)
        if compression != "none":
            query["compression"] = compression
        if sealed != "open":
            query["sealed"] = sealed
        return _arrow(f"{LOG}/{path_part(queue)}", query)

    @call
    def open_sealed(self, queue: str, stream: bytes) -> ApiCall[bytes]:
        """Open sealed messages that were copied out of a log: an Arrow IPC stream of partition, message_id, trace_id and payload.

        The answer is a stream of payloads in the same order, null where one cannot be opened.
        """
        path = f"{LOG}/{path_part(queue)}/open"
        return ApiCall(Request("POST", path, stream, headers={"Content-Type": ARROW}), arrow_stream)

    @call
    def log_bounds(
        self,
        queue: str,
        *,
        after: int | None = None,
        wait_seconds: float = 0.0,
        at: datetime | None = None,
        first: int | None = None,
        max_bytes: int | None = None,
    ) -> ApiCall[LogBoundsResponse]:
        """Which seqs a log holds.

        With ``after`` and ``wait_seconds`` it waits for one beyond that. ``at_seq`` is the first seq at or after the time ``at``,
        ``through_seq`` the last one such that payloads from ``first`` on have at most ``max_bytes`` (at least one in any case).
        """
        waits = max(0.0, wait_seconds) if after is not None else 0.0
        query: dict[str, Any] = {"at": at}
        if waits > 0:
            query |= {"after": after, "wait": True, "timeout": float(waits)}
        if first is not None and max_bytes is not None:
            query |= {"from": first, "maxBytes": max_bytes}
        return with_time(get(f"{LOG}/{path_part(queue)}/bounds", LogBoundsResponse, query), waits)

    @call
    def report_progress(self, queue: str, group: str, seq: int, *, archived: bool = False) -> ApiCall[GroupFigures]:
        """Report that an external group (a reader of the raw log) is done with all messages up to a seq. It never goes back.

        With ``archived`` the group is an archive, and these messages are safe in its lake: retention that requires an archive may
        delete them.
        """
        return post(f"{GROUPS}/{path_part(group)}/progress", GroupFigures, ProgressRequest(queue, seq, archived))

    # staging

    @call
    def stage(
        self,
        query: str,
        epoch: int,
        partition: int,
        attempt: int,
        stream: bytes,
        *,
        chunk: int = 0,
        queue: str | None = None,
        group: str | None = None,
    ) -> ApiCall[StagingResponse]:
        """Stage an Arrow IPC stream of messages under (query, epoch, partition, attempt), in no log until it is published.

        An attempt may come in numbered chunks. A chunk that is sent again replaces the first. With ``group`` messages that were
        pushed before come once more, to this group alone.
        """
        path = f"{_epoch(query, epoch)}/{partition}/{attempt}"
        parameters = texts({"chunk": chunk, "queue": queue, "group": group})
        request = Request("POST", path, stream, query=parameters, headers={"Content-Type": ARROW})
        return ApiCall(request, post(path, StagingResponse).read)

    @call
    def publish(self, query: str, epoch: int, attempts: Iterable[Attempt]) -> ApiCall[PublishedAnswer]:
        """Let one attempt of each partition enter its logs, all at once and once; a repeat gets the same answer.

        Each `Attempt` says how many messages it staged, so that it is noticed when some are gone.
        """
        # It is one transaction, which may be millions of messages long.
        body = PublishRequest(list(attempts))
        return with_time(post(f"{_epoch(query, epoch)}/publish", PublishedAnswer, body), PUBLISH_SECONDS)

    @call
    def staging(self, query: str, epoch: int) -> ApiCall[StagingView]:
        """Whether an epoch is published, and its staged messages."""
        return get(_epoch(query, epoch), StagingView)

    @call
    def abort_staging(
        self, query: str, epoch: int, *, partition: int | None = None, attempt: int | None = None
    ) -> ApiCall[StagingAborted]:
        """Forget the staged messages of an epoch, or of one attempt of a partition; published messages stay."""
        return delete(_epoch(query, epoch), StagingAborted, {"partition": partition, "attempt": attempt})

    # runs of pipelines

    @call
    def put_run(self, run: str, report: RunReport) -> ApiCall[RunView]:
        """Report the state of a pipeline's run. It replaces the run's last report."""
        return put(f"{PIPELINES}/{path_part(run)}", RunView, report)

    @call
    def pipeline_run(self, run: str) -> ApiCall[RunView]:
        """A run of a pipeline."""
        return get(f"{PIPELINES}/{path_part(run)}", RunView)

    @call
    def pipeline_runs(self, *, limit: int = PAGE_ROWS) -> ApiCall[list[RunView]]:
        """The runs of pipelines that began last, newest first."""
        return part(get(PIPELINES, RunsResponse, {"limit": limit}), lambda answer: answer.pipelines)

    # tables

    @call
    def read_table(
        self,
        table: TableName,
        queue: str | None = None,
        *,
        after: int | str | None = None,
        until: int | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> ApiCall[bytes]:
        """Lease history, dead letters (both of a queue), queues or groups, as an Arrow IPC stream: whole, or an error.

        ``after`` and ``until`` are positions of the history, seqs of dead letters, or for the others the name of a queue.
        ``since`` leaves out leases that ended, and letters that died, before it.
        """
        query = texts({"queue": queue, "after": after, "until": until, "since": since, "limit": limit})
        return _arrow(f"/api/v1/tables/{table}", query)


def bounds_of_logs(
    queues: Sequence[str],
    *,
    at: datetime | None = None,
    first: Mapping[str, int] | None = None,
    max_bytes: int | None = None,
    group: str | None = None,
) -> ApiCall[list[LogBoundsResponse]]:
    """Which seqs the logs of many queues hold; `LogCalls.log_bounds` explains the rest, which is asked of each queue.

    ``progress_seq`` is the progress of ``group``.
    """
    asked = LogsBoundsRequest(
        queues=list(queues), at=at, first=dict(first or {}), max_bytes=max_bytes, consumer_group=group
    )
    return part(post(BOUNDS_OF_LOGS, LogsBoundsResponse, asked), lambda answer: answer.logs)


def report_progress_of_logs(group: str, seqs: Mapping[str, int], *, archived: bool = False) -> ApiCall[dict[str, int]]:
    """Report the progress of an external group in many queues; its progress in each then, without queues that do not exist.

    With ``archived`` the group is an archive, and these messages are safe in its lake.
    """
    path = f"{GROUPS}/{path_part(group)}/progress/batch"
    return part(
        post(path, ProgressOfManyResponse, ProgressOfMany(dict(seqs), archived)), lambda answer: answer.progress
    )


def arrow_stream(answer: ApiResponse) -> bytes:
    """The whole stream, if it is whole."""
    body = bytes(answer.body)
    if not body.endswith(ARROW_END):
        raise unexpected(answer, ValueError("the Arrow stream was cut off"))
    return body


def _arrow(path: str, query: Mapping[str, str | Sequence[str]]) -> ApiCall[bytes]:
    return ApiCall(Request("GET", path, query=query, headers={"Accept": ARROW}), arrow_stream)


def _epoch(query: str, epoch: int) -> str:
    return f"/api/v1/staging/{path_part(query)}/{epoch}"
