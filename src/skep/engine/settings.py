"""Queue settings at the edge: every field within its range, and a helpful word about those nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET

from skep.engine.validate import LEASE_SECONDS_MAX, PRIORITY_MAX, PRIORITY_MIN, is_name
from skep.errors import Code, SkepError
from skep.model import Ordering, QueueChanges, QueueSettings
from skep.model.setting_names import meant_setting

SettingsOrChanges = TypeVar("SettingsOrChanges", QueueSettings, QueueChanges)

DURATION_SECONDS_MAX = 100 * 365 * 86_400.0
BACKOFF_MS_MAX = 30 * 86_400_000
ATTEMPTS_MAX = 1_000_000
DEPTH_MAX = 10**15

# OpenAPI states these tables, too.
WHOLE: dict[str, tuple[int, int]] = {
    "priority": (PRIORITY_MIN, PRIORITY_MAX),
    "max_attempts": (0, ATTEMPTS_MAX),
    "initial_backoff_ms": (0, BACKOFF_MS_MAX),
    "max_backoff_ms": (0, BACKOFF_MS_MAX),
    "max_depth": (0, DEPTH_MAX),
}
SECONDS: dict[str, float] = {
    "lease_seconds": LEASE_SECONDS_MAX,
    "max_age_seconds": DURATION_SECONDS_MAX,
    "retention_seconds": DURATION_SECONDS_MAX,
    "completed_retention_seconds": DURATION_SECONDS_MAX,
    "group_idle_seconds": DURATION_SECONDS_MAX,
    "delayed_processing_seconds": DURATION_SECONDS_MAX,
    "window_buffer_seconds": DURATION_SECONDS_MAX,
    "max_wait_seconds": DURATION_SECONDS_MAX,
    "dedup_window_seconds": DURATION_SECONDS_MAX,
}
NAMES = ("namespace", "task", "dead_letter_queue")
_SWITCHES = ("retention_ignores_groups", "paused", "encryption_enabled")


def parse_settings(given: Mapping[str, object]) -> QueueSettings:
    """Settings from names and values, the others at their defaults."""
    return _parse(given, QueueSettings)


def parse_changes(given: Mapping[str, object]) -> QueueChanges:
    """Changes from names and values."""
    return _parse(given, QueueChanges)


def check_settings(settings: QueueSettings | QueueChanges) -> None:
    """Raise INVALID_SETTING for the first value that is out of range; what is unset is fine."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if value is not UNSET:
            _check_value(name, value)


def _parse(given: Mapping[str, object], kind: type[SettingsOrChanges]) -> SettingsOrChanges:
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            meant = meant_setting(str(name))
            hint = f"; did you mean {meant}?" if meant else ""
            raise SkepError(
                Code.INVALID_SETTING, f"there is no setting {str(name)[:100]!r}{hint}", setting=str(name)[:100]
            )
    ordering = given.get("ordering")
    if isinstance(ordering, str) and ordering not in set(Ordering):
        raise SkepError(Code.INVALID_SETTING, f"ordering is one of {', '.join(Ordering)}, not {ordering[:100]!r}")
    try:
        settings = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise SkepError(Code.INVALID_SETTING, f"a setting has a wrong value: {error}") from None
    check_settings(settings)
    return settings


def _check_value(name: str, value: object) -> None:
    if name in WHOLE:
        least, most = WHOLE[name]
        if type(value) is not int or not least <= value <= most:
            raise _wrong(name, f"a whole number from {least} to {most}")
    elif name in SECONDS:
        _check_seconds(name, value)
    elif name in NAMES:
        if value is not None and not (isinstance(value, str) and is_name(value)):
            raise _wrong(name, "a name of 1 to 255 characters without control characters, or nothing")
    elif name in _SWITCHES:
        if type(value) is not bool:
            raise _wrong(name, "true or false")
    elif not isinstance(value, Ordering):
        raise _wrong(name, "one of " + ", ".join(Ordering))


def _check_seconds(name: str, value: object) -> None:
    most = SECONDS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:  # NaN is within nothing
        raise _wrong(name, f"a number of seconds from 0 to {most:.0f}")
    if name == "lease_seconds" and not value:
        raise _wrong(name, "above 0")


def _wrong(name: str, wanted: str) -> SkepError:
    return SkepError(Code.INVALID_SETTING, f"{name} must be {wanted}", setting=name)
