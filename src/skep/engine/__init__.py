"""The engine between those who call and the store: merges requests, parks polls, runs timers."""

from skep.engine.engine import Engine
from skep.engine.replaying import Replay
from skep.engine.settings import parse_changes, parse_settings

__all__ = ["Engine", "Replay", "parse_changes", "parse_settings"]
