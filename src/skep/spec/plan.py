"""The plan of applying a spec: queues to create, settings to change, and the dangers of each change.

The plan compares only the settings that the spec names; the others stay as the operator set them. A queue that is not in the spec is
reported, and never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec import UNSET, Struct

from skep.model import NO_DEAD_LETTER_QUEUE, QueueChanges, QueueSettings
from skep.model.queue_settings import SETTINGS, Setting, SettingKind
from skep.spec.ir import App, IdempotencySource
from skep.spec.validate import dead_letter_queues


class Action(StrEnum):
    """The action on a queue."""

    CREATE = "create"
    UPDATE = "update"
    LEAVE = "leave"


class SettingChange(Struct, frozen=True):
    """One setting, before and after. ``danger`` tells what the change could lose; empty when nothing."""

    setting: str
    before: object
    after: object
    danger: str = ""


class PlannedChange(Struct, frozen=True):
    """The planned change of one queue: ``settings`` are the settings to send."""

    action: Action
    queue: str
    settings: QueueChanges = QueueChanges()
    changes: list[SettingChange] = []

    @property
    def destructive(self) -> bool:
        """Whether something could be lost."""
        return any(change.danger for change in self.changes)


def plan(app: App, known: Mapping[str, QueueSettings]) -> list[PlannedChange]:
    """All changes, in the order in which they can be made. A queue that is as the spec says has no change."""
    holders = set(dead_letter_queues(app).values())
    # Dead-letter queues come first, so that the queues that name them find them with their own settings.
    names = sorted(app.queues, key=lambda name: name not in holders)
    changes = [
        change
        for name in names
        if (change := _change(_settings(app, name, holders), name, known.get(name))) is not None
    ]
    strangers = sorted(name for name in known if name not in app.queues and name not in holders)
    return changes + [PlannedChange(Action.LEAVE, name) for name in strangers]


def settings_of(app: App, name: str) -> QueueChanges:
    """The settings of a queue by the spec: those it names, and those that follow from its other parts."""
    return _settings(app, name, set(dead_letter_queues(app).values()))


def _settings(app: App, name: str, holders: set[str]) -> QueueChanges:
    queue = app.queues[name]
    settings = queue.settings
    if name in holders:
        settings = _filled(settings, dead_letter_queue=NO_DEAD_LETTER_QUEUE, max_attempts=0)
    idempotency = queue.idempotency
    if idempotency is not None and idempotency.source is IdempotencySource.KEY:
        settings = _filled(settings, dedup_window_seconds=idempotency.window_seconds)
    return settings


def render_plan(changes: Iterable[PlannedChange]) -> str:
    """A plan as text: + creates, ~ changes, ! could lose something."""
    lines: list[str] = []
    for change in changes:
        if change.action is Action.LEAVE:
            lines.append(f"  {change.queue} is not in the spec and stays as it is")
            continue
        sign = "+" if change.action is Action.CREATE else "!" if change.destructive else "~"
        lines.append(f"{sign} {change.action} {change.queue}")
        lines += [_rendered(setting, change.action) for setting in change.changes]
    return "\n".join(lines) + "\n" if lines else "nothing to change\n"


def _rendered(change: SettingChange, action: Action) -> str:
    if action is Action.CREATE:
        return f"    {change.setting}: {_shown(change.after)}"
    danger = f"  ! {change.danger}" if change.danger else ""
    return f"    {change.setting}: {_shown(change.before)} → {_shown(change.after)}{danger}"


def _shown(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "not set" if value is None else str(value)


def _filled(settings: QueueChanges, **values: object) -> QueueChanges:
    missing = {name: value for name, value in values.items() if getattr(settings, name) is UNSET}
    return msgspec.structs.replace(settings, **missing)


def _change(wanted: QueueChanges, name: str, known: QueueSettings | None) -> PlannedChange | None:
    given = wanted.given()
    if known is None:
        defaults = QueueSettings()
        changes = [SettingChange(field, getattr(defaults, field), value) for field, value in given.items()]
        return PlannedChange(Action.CREATE, name, wanted, changes)
    differing = {field: value for field, value in given.items() if value != getattr(known, field)}
    if not differing:
        return None
    changes = [
        SettingChange(field, getattr(known, field), value, _danger(field, getattr(known, field), value))
        for field, value in differing.items()
    ]
    return PlannedChange(Action.UPDATE, name, msgspec.structs.replace(QueueChanges(), **differing), changes)


def _danger(name: str, before: object, after: object) -> str:
    setting = SETTINGS[name]
    if setting.kind is SettingKind.SWITCH:
        return setting.danger if after else setting.danger_when_off
    return setting.danger if _may_hurt(setting, before, after) else ""


def _may_hurt(setting: Setting, before: object, after: object) -> bool:
    match setting.kind:
        case SettingKind.NAME:
            return after == NO_DEAD_LETTER_QUEUE
        case SettingKind.ORDERING:
            return True
    assert isinstance(before, int | float)
    assert isinstance(after, int | float)
    if setting.zero and 0 in (before, after):
        return before == 0
    return after < before
