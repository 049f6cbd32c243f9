"""The ranges of a queue's settings. The engine checks by the same table, so it accepts every spec that passes here."""

from __future__ import annotations

from msgspec import UNSET

from skep.model import Ordering, QueueChanges
from skep.model.queue_settings import SETTINGS, SettingKind
from skep.spec.checking import Checking
from skep.spec.problems import Path


def check_ranges(checking: Checking, settings: QueueChanges, path: Path) -> None:
    """Check the range of every setting, and the settings that depend on each other."""
    for name, value in settings.given().items():
        setting = SETTINGS[name]
        at = (*path, name)
        if setting.above_zero and isinstance(value, int | float):
            checking.duration(at, name, value, setting.most)
        elif setting.kind in (SettingKind.WHOLE, SettingKind.SECONDS) and isinstance(value, int | float):
            if not setting.least <= value <= setting.most:
                checking.problem(at, f"{name} is out of range", f"{setting.least} to {setting.most}")
        elif setting.kind is SettingKind.NAME and isinstance(value, str):
            checking.fit_name(at, name.replace("_", " "), value)
    _check_pairs(checking, settings, path)


def _check_pairs(checking: Checking, settings: QueueChanges, path: Path) -> None:
    initial, longest = settings.initial_backoff_ms, settings.max_backoff_ms
    if initial is not UNSET and longest is not UNSET and initial > longest:
        checking.warning(
            (*path, "initial_backoff_ms"), "the first backoff is cut to max_backoff_ms", f"at most {longest}"
        )
    if settings.window_buffer_seconds and settings.ordering is Ordering.UNORDERED:
        checking.warning((*path, "window_buffer_seconds"), "a window buffer means nothing when nothing is in order")
