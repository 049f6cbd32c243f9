"""Report a run to the server, for `GET /api/v1/pipelines` and the dashboard. A run goes on when the server is away."""

from __future__ import annotations

import time
from contextlib import suppress

from skep.client import Client
from skep.errors import SkepError
from skep.spark.running.record import Run, Stage, StageCheck
from skep.wire.pipelines import RunCheck, RunReport, RunStage, RunStatus

BETWEEN_SECONDS = 2.0


def told(run: Run, links: dict[str, str] | None = None) -> RunReport:
    """The report of a run for the server."""
    seconds = sum(stage.seconds for stage in run.stages)
    return RunReport(
        name=run.name,
        status=RunStatus(run.status),
        rows_in=run.rows_in,
        rows_out=run.rows_out,
        rows_rejected=sum(stage.rejected for stage in run.stages),
        rows_per_second=round(run.rows_in / seconds, 1) if seconds else 0.0,
        lag=dict(run.lag),
        stages=[_stage(stage) for stage in run.stages],
        checks=[_check(check) for check in run.checks],
        links=links or {},
        message=run.error,
        finished_at=run.ended_at,
        details={"queues": run.queues, "lake": run.lake, "master": run.master},
    )


def _stage(stage: Stage) -> RunStage:
    return RunStage(
        name=stage.name, status=RunStatus(stage.status), rows_in=stage.rows_in, rows_out=stage.rows_out,
        rows_rejected=stage.rejected, rows_per_second=round(stage.rows_per_second, 1), seconds=round(stage.seconds, 3),
        message=stage.note or None,
    )  # fmt: skip


def _check(check: StageCheck) -> RunCheck:
    status = RunStatus(check.status)
    return RunCheck(name=f"{check.stage}: {check.name}", status=status, message=check.figures or None)


class Teller:
    """Reports to the server when a stage ends, and before that at most every two seconds."""

    def __init__(self, client: Client, run: Run) -> None:
        self._client = client
        self._run = run
        self._told = -BETWEEN_SECONDS

    def stage(self, stage: Stage) -> None:
        if stage.status != "running" or time.monotonic() - self._told >= BETWEEN_SECONDS:
            self.tell()

    def tell(self, links: dict[str, str] | None = None) -> None:
        """Send the present state of the run."""
        self._told = time.monotonic()
        with suppress(SkepError):
            self._client.put_run(self._run.id, told(self._run, links))
