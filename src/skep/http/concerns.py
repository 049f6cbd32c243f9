"""What may need someone's attention: the same for the API and for the dashboard."""

from __future__ import annotations

from skep.http.survey import Survey
from skep.wire.status import Concern, Warned

OLD_SECONDS = 300.0
"""A message that waits for longer than this is worth a look, unless the caller says otherwise."""
NEARLY_FULL_SHARE = 0.9


def concerns(seen: Survey, old_seconds: float = OLD_SECONDS) -> list[Warned]:
    """What may need attention. Dead letters lie still by nature, so their queues give no warning."""
    found = []
    for queue, stats in seen.queues:
        if queue.holds_dead_letters:
            continue
        name, most = queue.key.name, queue.settings.max_depth
        if queue.settings.paused:
            found.append(Warned(name, Concern.PAUSED, f"queue {name!r} is paused with {stats.depth} messages to do"))
        if stats.oldest_age_seconds > old_seconds:
            age = f"{stats.oldest_age_seconds:.0f}"
            found.append(Warned(name, Concern.OLD, f"the oldest message of {name!r} has waited for {age} seconds"))
        if most and stats.depth >= NEARLY_FULL_SHARE * most:
            message = f"queue {name!r} holds {stats.depth} of at most {most} messages"
            found.append(Warned(name, Concern.NEARLY_FULL, message))
    return found
