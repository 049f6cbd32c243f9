"""The settings of a queue as options of the command line; their names are those of docs/settings.md."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

_GROUP = Group("Settings of the queue", sort_key=50)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class QueueFlags:
    """What can be set; what is not given stays as it is, or is the default when the queue is made."""

    namespace: str | None = None
    """What a pop over several queues finds it by."""
    task: str | None = None
    """The same, for a kind of work."""
    priority: int | None = None
    """Which queue a pop over several empties first; higher is earlier."""
    ordering: Literal["per_key", "fifo", "unordered"] | None = None
    """What is kept in order: each partition, the whole queue, or nothing."""
    lease_seconds: float | None = None
    """How long a consumer has for what it popped."""
    max_attempts: int | None = None
    """Deliveries before a message becomes a dead letter; 0 is no limit."""
    initial_backoff_ms: int | None = None
    """The wait after the first failed attempt; it doubles with each."""
    max_backoff_ms: int | None = None
    """The longest wait between attempts."""
    dead_letter_queue: str | None = None
    """Where messages go that were given up on; none discards them."""
    max_depth: int | None = None
    """How many messages may be unsettled; 0 is no limit."""
    max_age_seconds: float | None = None
    """An older unsettled message becomes a dead letter; 0 is off."""
    retention_seconds: float | None = None
    """Older messages are deleted once every group has settled them; 0 keeps them."""
    completed_retention_seconds: float | None = None
    """Messages are deleted so long after every group has settled them; 0 keeps them."""
    retention_ignores_groups: bool | None = None
    """Retention deletes what groups have not settled, too."""
    group_idle_seconds: float | None = None
    """A group that nobody used for so long holds back neither retention nor max_depth; 0 is never."""
    delayed_processing_seconds: float | None = None
    """Every message rests so long after it was pushed."""
    window_buffer_seconds: float | None = None
    """A partition rests until it was quiet for so long."""
    max_wait_seconds: float | None = None
    """An older unsettled message is skipped, without a dead letter; 0 is off."""
    dedup_window_seconds: float | None = None
    """How long a transaction id is remembered."""
    paused: bool | None = None
    """A pop gives nothing; pushes and acks go on."""
    encryption_enabled: bool | None = None
    """Payloads are sealed before they are stored; the server needs a master key."""
    reset: Annotated[list[str] | None, Parameter(negative="")] = None
    """Put this setting back to its default; may come several times."""


def changes(flags: QueueFlags | None) -> dict[str, Any]:
    """What is to change, by the names of the settings."""
    from skep.errors import Code, SkepError
    from skep.model import QueueSettings

    flags = flags or QueueFlags()
    given = {
        field.name: value
        for field in fields(flags)
        if field.name != "reset" and (value := getattr(flags, field.name)) is not None
    }
    defaults = QueueSettings()
    for written in flags.reset or []:
        name = written.replace("-", "_")
        if name not in QueueSettings.__struct_fields__:
            raise SkepError(Code.INVALID_SETTING, f"there is no setting {written!r} of a queue")
        given[name] = getattr(defaults, name)
    return given
