"""A run tells the server of itself, so that `GET /api/v1/pipelines` and the dashboard know of it. A server that is away is no reason to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from skep.client import Client
from skep.client.exchange import Call, Request
from skep.client.reading import nothing
from skep.errors import SkepError
from skep.spark.running.record import Run, Stage

BETWEEN_SECONDS = 2.0


def document(run: Run, links: dict[str, str] | None = None) -> dict[str, object]:
    """What the server is told of a run."""
    seconds = sum(stage.seconds for stage in run.stages)
    return {
        "name": run.name,
        "status": run.status,
        "startedAt": run.started_at,
        "endedAt": run.ended_at,
        "queues": run.queues,
        "rowsIn": run.rows_in,
        "rowsOut": run.rows_out,
        "rowsRejected": sum(stage.rejected for stage in run.stages),
        "rowsPerSecond": round(run.rows_in / seconds, 1) if seconds else 0.0,
        "lag": max((stage.lag for stage in run.stages if stage.lag is not None), default=None),
        "stages": [
            {
                "name": stage.name, "status": stage.status, "seconds": round(stage.seconds, 3), "rowsIn": stage.rows_in,
                "rowsOut": stage.rows_out, "rowsRejected": stage.rejected, "note": stage.note,
            }
            for stage in run.stages
        ],
        "checks": [{"name": check.name, "held": check.held, "severity": check.severity, "figures": check.figures} for check in run.checks],
        "links": links or {},
        "error": run.error,
    }  # fmt: skip


class Teller:
    """Tells the server when a stage begins or ends, and now and then between."""

    def __init__(self, client: Client, run: Run, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._run = run
        self._now = now
        self._told = -BETWEEN_SECONDS
        self.unheard: str | None = None
        """Why the server does not know of the run, if it does not."""

    def stage(self, stage: Stage) -> None:
        """Something of a stage has changed."""
        if stage.status != "running" or self._now() - self._told >= BETWEEN_SECONDS:
            self.tell()

    def tell(self, links: dict[str, str] | None = None) -> None:
        """Tell how the run stands."""
        self._told = self._now()
        body = msgspec.json.encode(document(self._run, links))
        try:
            self._client.run(Call(Request("PUT", f"/api/v1/pipelines/{self._run.id}", body), nothing))
            self.unheard = None
        except SkepError as error:
            self.unheard = error.message
