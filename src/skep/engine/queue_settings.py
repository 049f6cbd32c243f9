"""Checks of queue settings: every value is in its range, and an unknown name gets a helpful error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET

from skep.engine.validate import is_name
from skep.errors import Code, SkepError
from skep.model import Ordering, QueueChanges, QueueSettings
from skep.model.queue_settings import SETTINGS, Setting, SettingKind
from skep.model.setting_names import meant_setting

SettingsOrChanges = TypeVar("SettingsOrChanges", QueueSettings, QueueChanges)


def parse_settings(given: Mapping[str, object]) -> QueueSettings:
    """Settings from names and values, the others at their defaults."""
    return _parse(given, QueueSettings)


def parse_changes(given: Mapping[str, object]) -> QueueChanges:
    """Changes from names and values."""
    return _parse(given, QueueChanges)


def check_settings(settings: QueueSettings | QueueChanges) -> None:
    """Raise INVALID_SETTING for the first value that is out of range; unset values are skipped."""
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
        raise SkepError(Code.INVALID_SETTING, f"'ordering' is one of {', '.join(Ordering)}, not {ordering[:100]!r}")
    try:
        settings = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise SkepError(Code.INVALID_SETTING, f"a setting has a wrong value: {error}") from None
    check_settings(settings)
    return settings


def _check_value(name: str, value: object) -> None:
    setting = SETTINGS[name]
    match setting.kind:
        case SettingKind.WHOLE:
            if type(value) is not int or not setting.least <= value <= setting.most:
                raise _wrong(name, f"a whole number from {setting.least} to {setting.most}")
        case SettingKind.SECONDS:
            _check_seconds(setting, value)
        case SettingKind.NAME:
            if value is not None and not (isinstance(value, str) and is_name(value)):
                raise _wrong(name, "a name of 1 to 255 characters without control characters, or nothing")
        case SettingKind.SWITCH:
            if type(value) is not bool:
                raise _wrong(name, "true or false")
        case SettingKind.ORDERING:
            if not isinstance(value, Ordering):
                raise _wrong(name, "one of " + ", ".join(Ordering))


def _check_seconds(setting: Setting, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= setting.most:  # type: ignore[operator] # a number; NaN is within nothing
        raise _wrong(setting.name, f"a number of seconds from 0 to {setting.most}")
    if setting.above_zero and not value:
        raise _wrong(setting.name, "above 0")


def _wrong(name: str, wanted: str) -> SkepError:
    return SkepError(Code.INVALID_SETTING, f"{name} must be {wanted}", setting=name)
