"""Conflicts between apps: two apps may not declare the same queue, webhook or entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skep.errors import Code, SkepError
from skep.spec import App


def conflict_between(app: App, others: Iterable[App]) -> SkepError | None:
    """INVALID_SPEC with everything that both apps declare; None when there is nothing."""
    found = [
        f"{kind} {name!r} of {other.name!r}"
        for other in others
        if other.name != app.name
        for kind, names in _shared(app, other)
        for name in names
    ]
    if not found:
        return None
    return SkepError(
        Code.INVALID_SPEC, f"{app.name!r} declares what another app does: {', '.join(found[:20])}", conflicts=found
    )


def _shared(one: App, other: App) -> Iterable[tuple[str, list[str]]]:
    kinds: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
        ("the queue", one.queues, other.queues),
        ("the webhook", one.webhooks, other.webhooks),
        ("the entity", one.entities, other.entities),
    )
    return [(kind, sorted(mine.keys() & theirs.keys())) for kind, mine, theirs in kinds]
