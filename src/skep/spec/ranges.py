"""The ranges of a queue's settings, as the engine has them: a spec that passes here is not refused there.

The engine checks again at its own edge, and a test holds the two to the same numbers; neither imports the other.
"""

from __future__ import annotations

from msgspec import UNSET

from skep.model import Ordering, QueueChanges
from skep.spec.checking import DURATION_SECONDS_MAX, Checking
from skep.spec.problems import Path

LEASE_SECONDS_MAX = 30 * 86_400.0
BACKOFF_MS_MAX = 30 * 86_400_000

NUMBERS: dict[str, tuple[float, float]] = {
    "priority": (-32_768, 32_767),
    "max_attempts": (0, 1_000_000),
    "initial_backoff_ms": (0, BACKOFF_MS_MAX),
    "max_backoff_ms": (0, BACKOFF_MS_MAX),
    "max_depth": (0, 10**15),
    "max_age_seconds": (0, DURATION_SECONDS_MAX),
    "retention_seconds": (0, DURATION_SECONDS_MAX),
    "completed_retention_seconds": (0, DURATION_SECONDS_MAX),
    "group_idle_seconds": (0, DURATION_SECONDS_MAX),
    "delayed_processing_seconds": (0, DURATION_SECONDS_MAX),
    "window_buffer_seconds": (0, DURATION_SECONDS_MAX),
    "max_wait_seconds": (0, DURATION_SECONDS_MAX),
    "dedup_window_seconds": (0, DURATION_SECONDS_MAX),
}
_NAMES = ("namespace", "task", "dead_letter_queue")


def check_ranges(checking: Checking, settings: QueueChanges, path: Path) -> None:
    """Every setting within its range, and those that depend on each other."""
    for name, (least, most) in NUMBERS.items():
        value = getattr(settings, name)
        if value is not UNSET and not least <= value <= most:
            checking.problem((*path, name), f"{name} is out of range", f"{least:.0f} to {most:.0f}")
    if settings.lease_seconds is not UNSET:
        checking.duration((*path, "lease_seconds"), "lease_seconds", settings.lease_seconds, LEASE_SECONDS_MAX)
    for name in _NAMES:
        value = getattr(settings, name)
        if isinstance(value, str):
            checking.fit_name((*path, name), name.replace("_", " "), value)
    _check_pairs(checking, settings, path)


def _check_pairs(checking: Checking, settings: QueueChanges, path: Path) -> None:
    initial, longest = settings.initial_backoff_ms, settings.max_backoff_ms
    if initial is not UNSET and longest is not UNSET and initial > longest:
        checking.warning(
            (*path, "initial_backoff_ms"), "the first backoff is cut to max_backoff_ms", f"at most {longest}"
        )
    if settings.window_buffer_seconds and settings.ordering is Ordering.UNORDERED:
        checking.warning((*path, "window_buffer_seconds"), "a window buffer means nothing when nothing is in order")
