"""The record of a run: its stages, checks, tables and plots. It becomes `run.json`, the report and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct, field

from skep.errors import Code

Status = Literal["running", "ok", "warn", "failed"]
Severity = Literal["warn", "fail"]
Cell = str | int | float | bool | None
WORST: tuple[Status, ...] = ("ok", "running", "warn", "failed")


class Stage(Struct, kw_only=True):
    """A part of a run: a pipeline."""

    name: str
    status: Status = "running"
    seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    batches: int = 0
    lag: int | None = None
    """How many messages of the server are not read yet."""
    note: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows that were read per second."""
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0


class StageCheck(Struct, frozen=True, kw_only=True):
    """A condition that must hold, and whether it did."""

    stage: str
    name: str
    held: bool
    figures: str = ""
    severity: Severity = "fail"

    @property
    def status(self) -> Status:
        """The status that it gives to its stage."""
        if self.held:
            return "ok"
        return "warn" if self.severity == "warn" else "failed"


class ReportTable(Struct, frozen=True, kw_only=True):
    """A table of the report, with at most some dozens of rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


class Plot(Struct, frozen=True, kw_only=True):
    """Lines over time, or bars."""

    title: str
    kind: Literal["lines", "bars"]
    unit: str
    series: dict[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """The points of each line: seconds since 1970, and a value."""
    step: float | None = None
    """The seconds between two points. A longer gap means that nothing happened, and gets no line."""
    note: str = ""
    bars: Sequence[tuple[str, float]] = ()


class Dataset(Struct, frozen=True, kw_only=True):
    """An input or output of a stage, as lineage names it."""

    namespace: str
    name: str
    columns: dict[str, str] = field(default_factory=dict)
    rows: int | None = None
    stage: str = ""
    """The stage that read or wrote it."""


class Run(Struct, kw_only=True):
    """One run, from its start to now."""

    id: str
    name: str
    """The pipelines, in the order they run in."""
    status: Status = "running"
    started_at: datetime
    ended_at: datetime | None = None
    server: str
    tenant: str
    master: str
    lake: str
    queues: list[str] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    checks: list[StageCheck] = field(default_factory=list)
    tables: list[ReportTable] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    inputs: list[Dataset] = field(default_factory=list)
    outputs: list[Dataset] = field(default_factory=list)
    lag: dict[str, int] = field(default_factory=dict)
    """How many messages of each queue are not in the lake yet."""
    error: str | None = None
    error_code: Code | None = None

    @property
    def rows_in(self) -> int:
        """Rows that all stages read."""
        return sum(stage.rows_in for stage in self.stages)

    @property
    def rows_out(self) -> int:
        """Rows that all stages wrote."""
        return sum(stage.rows_out for stage in self.stages)

    def failed_checks(self) -> list[StageCheck]:
        """The failed checks, without warnings."""
        return [check for check in self.checks if not check.held and check.severity == "fail"]

    def settle(self, at: datetime) -> None:
        """End the run. Its status is the worst status of its stages and checks."""
        self.ended_at = at
        for stage in self.stages:
            stage.status = worst([stage.status, *(one.status for one in self.checks if one.stage == stage.name)])
        self.status = worst([stage.status for stage in self.stages])
        if self.error is not None:
            self.status = "failed"


def worst(found: Sequence[Status]) -> Status:
    """The worst of several statuses."""
    return max(found, key=WORST.index, default="ok")
