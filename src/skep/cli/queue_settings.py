"""The settings of a queue as command-line options, made from the table of settings."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from skep.errors import Code, SkepError
from skep.model.queue_settings import SETTINGS, Ordering, Setting, SettingKind

_GROUP = Group("Settings of the queue", sort_key=50)
_TYPES: dict[SettingKind, Any] = {
    SettingKind.NAME: str, SettingKind.WHOLE: int, SettingKind.SECONDS: float, SettingKind.SWITCH: bool,
    SettingKind.ORDERING: Literal[*map(str, Ordering)],
}  # fmt: skip


def _flag(setting: Setting) -> tuple[str, Any, None]:
    return setting.name, Annotated[_TYPES[setting.kind] | None, Parameter(help=setting.help_text)], None


_Flags: Any = make_dataclass("_Flags", map(_flag, SETTINGS.values()), frozen=True, kw_only=True)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class QueueFlags(_Flags):  # type: ignore[misc] # its fields are the rows of the table
    """Settings of a queue. A missing option keeps the value, or the default when the queue is created."""

    reset: Annotated[list[str] | None, Parameter(negative="")] = None
    """Put this setting back to its default; may be given several times."""


def changes(flags: QueueFlags) -> dict[str, Any]:
    """The changes, by the name of the setting."""
    given = {name: value for name in SETTINGS if (value := getattr(flags, name)) is not None}
    for written in flags.reset or []:
        name = written.replace("-", "_")
        if name not in SETTINGS:
            raise SkepError(Code.INVALID_SETTING, f"there is no setting {written!r} of a queue")
        given[name] = SETTINGS[name].default
    return given
