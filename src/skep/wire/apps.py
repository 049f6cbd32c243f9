"""Applied apps on the wire: the document is the spec as JSON, with the names of `skep.spec.ir`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct

from skep.model import QueueChanges


class AppDocument(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A spec as JSON, as `skep spec export` prints it: its declarations by name."""

    name: str
    queues: dict[str, dict[str, Any]] = {}
    webhooks: dict[str, dict[str, Any]] = {}
    entities: dict[str, dict[str, Any]] = {}
    schedules: dict[str, dict[str, Any]] = {}


class AppSummary(Struct, rename="camel"):
    """An applied app. It is not ``usable`` when this server cannot use it and goes on with the version before."""

    app: str
    revision: int
    applied_at: datetime
    usable: bool
    queues: list[str]
    webhooks: list[str]
    entities: list[str]
    schedules: list[str]


class AppsResponse(Struct):
    """All applied apps by name, and the revision that counts every change of any of them."""

    apps: list[AppSummary]
    revision: int


class AppDetail(Struct, rename="camel"):
    """An applied app with its whole spec."""

    app: str
    revision: int
    applied_at: datetime
    usable: bool
    document: Raw


class ChangedSetting(Struct):
    """A setting before and after. ``danger`` says what the change could lose; empty when nothing."""

    setting: str
    before: str | float | bool | None
    after: str | float | bool | None
    danger: str


class QueueChange(Struct):
    """The change of a queue: created (create), changed (update), or no longer declared and left as it is (leave)."""

    action: str
    queue: str
    settings: QueueChanges
    changes: list[ChangedSetting]
    destructive: bool


class PartView(Struct):
    """A queue's type, a webhook, an entity or a schedule that comes (add), changes (change) or goes (remove)."""

    kind: str
    name: str
    action: str
    danger: str


class Applied(Struct, rename="camel"):
    """The changes by applying an app or, with ``dryRun``, the planned ones; ``revision`` is null while nothing is stored."""

    app: str
    revision: int | None
    dry_run: bool
    destructive: bool
    changes: list[QueueChange]
    parts: list[PartView]


class AppRemoved(Struct, rename="camel"):
    """The parts that were removed with an app, or would be. Its queues stay, with all their messages."""

    app: str
    dry_run: bool
    parts: list[PartView]
