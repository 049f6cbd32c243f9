"""Runs of pipelines, and the reports they send."""

from __future__ import annotations

from skep.clock import Instant
from skep.model.record import PipelineRun
from skep.store.rules import PIPELINE_RUNS
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "pipelines")


def put_run(session: Session, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
    """Store the report of a run; the oldest runs beyond `PIPELINE_RUNS` are deleted."""
    started_at = session.one(SQL["put"], (tenant, id_, now, document))[0]
    session.db.execute(SQL["forget"], (tenant, PIPELINE_RUNS))
    return PipelineRun(id_, started_at, now, document, tenant)


def runs(session: Session, tenant: str, limit: int = 100) -> list[PipelineRun]:
    """The latest runs, newest first."""
    return [PipelineRun(*row) for row in session.rows(SQL["list"], (tenant, limit))]


def run(session: Session, tenant: str, id_: str) -> PipelineRun | None:
    row = session.row(SQL["find"], (tenant, id_))
    return None if row is None else PipelineRun(*row)
