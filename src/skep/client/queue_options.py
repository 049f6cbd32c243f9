"""The settings of a queue as keyword arguments; docs/settings.md says what each means."""

from __future__ import annotations

from skep.model.queue_settings import SETTINGS, QueueOptions

__all__ = ["QUEUE_DEFAULTS", "QueueOptions"]

QUEUE_DEFAULTS = {setting.name: setting.default for setting in SETTINGS.values()}
