"""Pipelines: runs of Spark pipelines by their own reports: stages, rows, rates, lag, checks, reports."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from skep.clock import Instant
from skep.dashboard.site import Action, Page, Site
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ_TENANT
from skep.model.record import PipelineRun
from skep.wire.pipelines import RunReport, RunStatus
from skep.wire.times import to_instant

RUNS = 100
SILENT_SECONDS = 600.0
"""A running run without a report for this long may be dead."""

_decode = msgspec.json.Decoder(RunReport)


class RunWithReport(NamedTuple):
    """A run and its report."""

    run: PipelineRun
    report: RunReport
    seconds: float
    is_silent: bool

    @property
    def tone(self) -> str:
        """How urgent it is to look at."""
        if self.report.status is RunStatus.FAILED or self.is_silent:
            return "red"
        if self.report.status is RunStatus.WARN or self.report.rows_rejected or self.failed_checks:
            return "amber"
        return "green" if self.report.status is RunStatus.OK else ""

    @property
    def failed_checks(self) -> int:
        """Checks that did not hold."""
        return sum(check.status in (RunStatus.FAILED, RunStatus.WARN) for check in self.report.checks)

    @property
    def lag(self) -> int:
        """Messages that it is behind, over all its queues."""
        return sum(self.report.lag.values())


def _run(run: PipelineRun, now: Instant) -> RunWithReport:
    report = _decode.decode(run.document)
    goes_on = report.status is RunStatus.RUNNING
    end = to_instant(report.finished_at) if report.finished_at is not None else now if goes_on else run.updated_at
    return RunWithReport(
        run, report, max(0, end - run.started_at) / 1e6, goes_on and now - run.updated_at > SILENT_SECONDS * 1e6
    )


async def pipelines(site: Site, call: Call) -> Answer:
    """The latest runs."""
    links = site.links(call)
    now = site.engine.now()
    runs = [_run(run, now) for run in await site.engine.records.runs(links.tenant, limit=RUNS)]
    name = links.query.get("name", "")
    names = sorted({run.report.name for run in runs})
    return site.page(
        call, "pipelines.html", screen="pipelines", runs=[run for run in runs if name in ("", run.report.name)], names=names,
        name=name,
    )  # fmt: skip


async def pipeline(site: Site, call: Call) -> Answer:
    """One run."""
    links = site.links(call)
    run = _run(await site.engine.records.run(call.path("run"), links.tenant), site.engine.now())
    reports = [(name, link, _is_safe(link)) for name, link in run.report.links.items()]
    details = (
        msgspec.json.format(msgspec.json.encode(run.report.details), indent=2).decode() if run.report.details else ""
    )
    return site.page(call, "pipeline.html", screen="pipelines", one=run, reports=reports, details=details)


def _is_safe(link: str) -> bool:
    """Whether a page may link there. A run may have told anything, a script among others."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


PAGES: list[Page] = [
    Page("/pipelines", ("name",), pipelines, READ_TENANT),
    Page("/pipelines/{run}", (), pipeline, READ_TENANT),
]
ACTIONS: list[tuple[str, Action]] = []
