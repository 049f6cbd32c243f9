"""Runs of pipelines on the wire: what a run tells of itself while it goes on, and at its end."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct


class RunStatus(StrEnum):
    """How a run, a stage or a check stands."""

    RUNNING = "running"
    OK = "ok"
    WARN = "warn"
    FAILED = "failed"
    SKIPPED = "skipped"


class RunStage(Struct, rename="camel", forbid_unknown_fields=True):
    """A step of a run: what went in, came out, and was rejected."""

    name: str
    status: RunStatus
    rows_in: int = 0
    rows_out: int = 0
    rows_rejected: int = 0
    rows_per_second: float = 0.0
    seconds: float = 0.0
    message: str | None = None


class RunCheck(Struct, rename="camel", forbid_unknown_fields=True):
    """Something that a run made sure of: how many rows did not hold to it."""

    name: str
    status: RunStatus
    rows: int = 0
    message: str | None = None


class RunReport(Struct, rename="camel", forbid_unknown_fields=True):
    """What a run tells of itself. ``lag`` is in messages, by queue; ``links`` lead to reports and tables."""

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
    """A run, and when it first and last told of itself."""

    id: str
    started_at: datetime
    updated_at: datetime
    report: RunReport


class RunsResponse(Struct, rename="camel"):
    """Runs, newest first."""

    pipelines: list[RunView]
