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
    """A part of a run that has an end of its own: a pipeline, most often."""

    name: str
    status: Status = "running"
    seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    batches: int = 0
    lag: int | None = None
    """The lag: how many messages of the server were not read yet."""
    note: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def rows_per_second(self) -> float:
        """How quick it was, by what it read."""
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0


class Check(Struct, frozen=True, kw_only=True):
    """Something that has to hold."""

    stage: str
    name: str
    held: bool
    figures: str = ""
    severity: Severity = "fail"

    @property
    def status(self) -> Status:
        """What it makes of its stage."""
        if self.held:
            return "ok"
        return "warn" if self.severity == "warn" else "failed"


class Table(Struct, frozen=True, kw_only=True):
    """Rows to look at, at most some dozens."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


class Plot(Struct, frozen=True, kw_only=True):
    """Lines over time, or bars; both axes are told their unit."""

    title: str
    kind: Literal["lines", "bars"]
    unit: str
    series: dict[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Lines: seconds since 1970 and a value."""
    step: float | None = None
    """So many seconds lie between two points; where there are more, nothing happened in between, and there is no line."""
    note: str = ""
    bars: Sequence[tuple[str, float]] = ()


class Dataset(Struct, frozen=True, kw_only=True):
    """Something that was read or written, as lineage names it."""

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
    checks: list[Check] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
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

    def failed_checks(self) -> list[Check]:
        """What had to hold and did not."""
        return [check for check in self.checks if not check.held and check.severity == "fail"]

    def settle(self, at: datetime) -> None:
        """The run is over: what became of it is the worst that became of a part of it."""
        self.ended_at = at
        for stage in self.stages:
            stage.status = worst([stage.status, *(one.status for one in self.checks if one.stage == stage.name)])
        self.status = worst([stage.status for stage in self.stages])
        if self.error is not None:
            self.status = "failed"


def worst(found: Sequence[Status]) -> Status:
    """The one that matters of several."""
    return max(found, key=WORST.index, default="ok")
