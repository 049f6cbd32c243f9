"""Warnings about queues, the same in the API and on the dashboard."""

from __future__ import annotations

from skep.clock import Instant
from skep.http.request.call import Call
from skep.http.tenant_scan import TenantScan
from skep.observe.metrics import Meter
from skep.wire.status import Concern, FailedCalls, Warned

OLD_SECONDS = 300.0
"""A message that waits for longer than this is worth a look, unless the caller says otherwise."""
NEARLY_FULL_SHARE = 0.9


def failed_calls(meter: Meter, call: Call, now: Instant) -> list[FailedCalls]:
    """Calls that were refused for now or failed in the last minute: of the tenant, or of all tenants for a caller who may read them all."""
    found = meter.failures.lately(now, None if call.sees_server else call.tenant)
    return [FailedCalls(code, calls) for code, calls in found]


def concerns(seen: TenantScan, old_seconds: float = OLD_SECONDS) -> list[Warned]:
    """The warnings about queues. Dead-letter queues give none: their messages wait by nature."""
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
