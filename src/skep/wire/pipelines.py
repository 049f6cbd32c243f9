"""Runs of pipelines on the wire: the reports of a run, while it goes on and at its end."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct


class RunStatus(StrEnum):
    """The state of a run, a stage or a check."""

    RUNNING = "running"
    OK = "ok"
    WARN = "warn"
    FAILED = "failed"
    SKIPPED = "skipped"


class RunStage(Struct, rename="camel", forbid_unknown_fields=True):
    """A stage of a run: the rows in, out, and rejected."""

    name: str
    status: RunStatus
    rows_in: int = 0
    rows_out: int = 0
    rows_rejected: int = 0
    rows_per_second: float = 0.0
    seconds: float = 0.0
    message: str | None = None


class RunCheck(Struct, rename="camel", forbid_unknown_fields=True):
    """A check of a run, and the number of rows that failed it."""

    name: str
    status: RunStatus
    rows: int = 0
    message: str | None = None


class RunReport(Struct, rename="camel", forbid_unknown_fields=True):
    """The report of a run. ``lag`` is in messages, by queue; ``links`` lead to reports and tables."""

    name: str
    status: RunStatus
    rows_in: int = 0
    rows_out: int = 0
    rows_rejected: int = 0
    rows_per_second: float = 0.0
    lag: dict[str, int] = {}
    stages: list[RunStage] = []
    checks: list[RunCheck] = []
    links: dict[str, str] = {}
    message: str | None = None
    finished_at: datetime | None = None
    details: dict[str, Any] = {}


class RunView(Struct, rename="camel"):
    """A run, and the times of its first and last report."""

    id: str
    started_at: datetime
    updated_at: datetime
    report: RunReport


class RunsResponse(Struct, rename="camel"):
    """Runs, newest first."""

    pipelines: list[RunView]
