"""The calls of those who read the raw log, tell how far they have come, and stage messages. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from skep.client.admin_calls import GROUPS, delete, get, post
from skep.client.exchange import ApiCall, ApiResponse, Request, path_part
from skep.client.failures import unexpected
from skep.client.outgoing import encode
from skep.client.reading import reader
from skep.wire.groups import GroupFigures, ProgressRequest
from skep.wire.log import ARROW, LogBoundsResponse, LogsBoundsRequest, LogsBoundsResponse
from skep.wire.pipelines import RunReport, RunsResponse, RunView
from skep.wire.staging import Attempt, PublishedAnswer, PublishRequest, StagingAborted, StagingResponse, StagingView

LOG = "/api/v1/log"
PIPELINES = "/api/v1/pipelines"
ARROW_END = b"\xff\xff\xff\xff\0\0\0\0"
"""How an Arrow stream ends; one that was cut off does not."""

PUBLISH_SECONDS = 600.0
"""How long publishing may take, on top of the usual time."""

Compression = Literal["none", "lz4", "zstd"]


def read_log(
    queue: str,
    first: int,
    last: int | None,
    limit: int | None,
    columns: Sequence[str] | None,
    partitions: Sequence[str] | None,
    compression: Compression,
) -> ApiCall[bytes]:
    """A range of the log as an Arrow stream."""
    query: dict[str, str | Sequence[str]] = {"from": str(first)}
    if last is not None:
        query["to"] = str(last)
    if limit is not None:
        query["limit"] = str(limit)
    if columns is not None:
        query["columns"] = ",".join(columns)
    if partitions is not None:
        query["partition"] = list(partitions)
    if compression != "none":
        query["compression"] = compression
    return ApiCall(Request("GET", f"{LOG}/{path_part(queue)}", query=query, headers={"Accept": ARROW}), arrow_stream)


def arrow_stream(answer: ApiResponse) -> bytes:
    """The whole stream, if it is whole."""
    body = bytes(answer.body)
    if not body.endswith(ARROW_END):
        raise unexpected(answer, ValueError("the Arrow stream was cut off"))
    return body


def log_bounds(
    queue: str,
    after: int | None,
    wait_seconds: float,
    at: datetime | None,
    first: int | None,
    max_bytes: int | None,
) -> ApiCall[LogBoundsResponse]:
    """Which seqs a log holds."""
    query: dict[str, str | Sequence[str]] = {}
    if after is not None and wait_seconds > 0:
        query |= {"after": str(after), "wait": "true", "timeout": repr(float(wait_seconds))}
    if at is not None:
        query["at"] = at.isoformat()
    if first is not None and max_bytes is not None:
        query |= {"from": str(first), "maxBytes": str(max_bytes)}
    waits = max(0.0, wait_seconds) if after is not None else 0.0
    return ApiCall(Request("GET", f"{LOG}/{path_part(queue)}/bounds", query=query, wait_seconds=waits), _bounds)


_bounds = reader(LogBoundsResponse)


def bounds_of_logs(queues: Sequence[str]) -> ApiCall[LogsBoundsResponse]:
    """Which seqs the logs of many queues hold."""
    return ApiCall(Request("POST", f"{LOG}s/bounds", encode(LogsBoundsRequest(list(queues)))), _many_bounds)


_many_bounds = reader(LogsBoundsResponse)


def report_progress(queue: str, group: str, seq: int) -> ApiCall[GroupFigures]:
    """Tell how far an external group has come."""
    return post(f"{GROUPS}/{path_part(group)}/progress", GroupFigures, ProgressRequest(queue, seq))


# staging


def stage(
    query: str, epoch: int, partition: int, attempt: int, stream: bytes, chunk: int, queue: str | None
) -> ApiCall[StagingResponse]:
    """Stage an Arrow stream of messages. It may be repeated: the chunk takes the place of the first."""
    parameters = {"chunk": str(chunk)} if queue is None else {"chunk": str(chunk), "queue": queue}
    path = f"{_epoch(query, epoch)}/{partition}/{attempt}"
    return ApiCall(Request("POST", path, stream, query=parameters, headers={"Content-Type": ARROW}), _staged)


_staged = reader(StagingResponse)


def publish(query: str, epoch: int, attempts: Iterable[Attempt]) -> ApiCall[PublishedAnswer]:
    """Publish an epoch. It may be repeated: it happens once. It is one transaction, which may be millions of messages long."""
    body = encode(PublishRequest(list(attempts)))
    request = Request("POST", f"{_epoch(query, epoch)}/publish", body, wait_seconds=PUBLISH_SECONDS)
    return ApiCall(request, _published)


_published = reader(PublishedAnswer)


def staging(query: str, epoch: int) -> ApiCall[StagingView]:
    """What is known of an epoch."""
    return get(_epoch(query, epoch), StagingView)


def abort_staging(query: str, epoch: int, partition: int | None, attempt: int | None) -> ApiCall[StagingAborted]:
    """Forget what is staged."""
    return delete(_epoch(query, epoch), StagingAborted, {"partition": partition, "attempt": attempt})


def _epoch(query: str, epoch: int) -> str:
    return f"/api/v1/staging/{path_part(query)}/{epoch}"


# runs of pipelines


def put_run(run: str, report: RunReport) -> ApiCall[RunView]:
    """Tell how a run of a pipeline stands."""
    path = f"{PIPELINES}/{path_part(run)}"
    return ApiCall(Request("PUT", path, encode(report)), _run)


_run = reader(RunView)


def pipeline_run(run: str) -> ApiCall[RunView]:
    """A run of a pipeline."""
    return get(f"{PIPELINES}/{path_part(run)}", RunView)


def pipeline_runs(limit: int) -> ApiCall[RunsResponse]:
    """The latest runs of pipelines."""
    return get(PIPELINES, RunsResponse, {"limit": limit})


# tables

TableName = Literal["leases", "dead_letters", "queues", "groups"]


def read_table(
    table: TableName,
    queue: str | None,
    after: int | str | None,
    until: int | None,
    since: datetime | None,
    limit: int | None,
) -> ApiCall[bytes]:
    """A table as an Arrow stream."""
    at = None if since is None else since.isoformat()
    given = {"queue": queue, "after": after, "until": until, "since": at, "limit": limit}
    query: dict[str, str | Sequence[str]] = {name: str(value) for name, value in given.items() if value is not None}
    return ApiCall(Request("GET", f"/api/v1/tables/{table}", query=query, headers={"Accept": ARROW}), arrow_stream)
