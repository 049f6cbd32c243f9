"""Runs of pipelines, as the pipelines report them."""

from __future__ import annotations

from skep.clock import Instant
from skep.model.record import PipelineRun
from skep.store.postgres.connection import Connection
from skep.store.rules import PIPELINE_RUNS
from skep.store.statements import load_statements

SQL = load_statements(__package__, "pipelines")


async def put_run(connection: Connection, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
    """Store the report of a run, and delete the oldest runs beyond `PIPELINE_RUNS`."""
    started_at = await connection.fetchval(SQL["put"], tenant, id_, now, document)
    await connection.execute(SQL["forget"], tenant, PIPELINE_RUNS)
    return PipelineRun(id_, started_at, now, document, tenant)


async def runs(connection: Connection, tenant: str, limit: int = 100) -> list[PipelineRun]:
    """The latest runs, newest first."""
    return [PipelineRun(*row) for row in await connection.fetch(SQL["list"], tenant, limit)]


async def run(connection: Connection, tenant: str, id_: str) -> PipelineRun | None:
    """A run, or None."""
    row = await connection.fetchrow(SQL["find"], tenant, id_)
    return None if row is None else PipelineRun(*row)
