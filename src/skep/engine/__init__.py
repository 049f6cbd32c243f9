"""The engine between the callers and the store: merges requests, parks polls, runs timers."""

from skep.engine.engine import Engine
from skep.engine.queue_settings import parse_changes, parse_settings
from skep.engine.replaying import Replay

__all__ = ["Engine", "Replay", "parse_changes", "parse_settings"]
