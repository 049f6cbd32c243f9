"""The findings that both stores have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import NamedTuple

from skep.errors import SkepError
from skep.runtime.fitness import Finding
from skep.store.migrate import load_migrations, missing_migrations

UNUSED_SECONDS = 7 * 86_400
UNUSED_NAMED = 5
LATE_SECONDS = 86_400
"""An archive that runs every night is never so late."""


def unused_groups(found: Sequence[tuple[str, str, int]]) -> Finding:
    """The finding about unused groups, with the number of messages each has not settled, the largest first."""
    holding = [(queue, group, held) for queue, group, held in found if held > 0]
    if not holding:
        return Finding("groups", "ok", "none that nobody uses holds back its queue")
    named = ", ".join(f"{group!r} of {queue!r} ({held:,} messages)" for queue, group, held in holding[:UNUSED_NAMED])
    more = f" and {len(holding) - UNUSED_NAMED} more" if len(holding) > UNUSED_NAMED else ""
    return Finding(
        "groups",
        "warn",
        f"nobody has used {named}{more} for {UNUSED_SECONDS // 86_400} days; retention and max_depth wait for them",
        "skep group delete QUEUE GROUP if nobody needs it, or set group_idle_seconds",
    )


class WaitingRetention(NamedTuple):
    """A queue whose retention waits for the archive, and since when: the time its oldest message in no lake was due to go."""

    queue: str
    has_archive: bool
    waits_seconds: float


def late_archives(found: Sequence[WaitingRetention]) -> Iterator[Finding]:
    """The finding about retention that waits for the archive; none when no queue has that setting."""
    if not found:
        return
    late = [one for one in found if one.waits_seconds > LATE_SECONDS]
    if not late:
        yield Finding("archive", "ok", "retention waits for no archive, or not for long")
        return
    late.sort(key=lambda one: -one.waits_seconds)
    named = ", ".join(
        f"{one.queue!r} ({one.waits_seconds / 86_400:,.0f} days{'' if one.has_archive else ', no archive has reported yet'})"
        for one in late[:UNUSED_NAMED]
    )
    more = f" and {len(late) - UNUSED_NAMED} more" if len(late) > UNUSED_NAMED else ""
    yield Finding(
        "archive",
        "warn",
        f"retention of {named}{more} waits for the archive",
        "skep pipeline run archive with these queues, or set retention_requires_archive to false",
    )


def schema(package: str, applied: Mapping[int, str], place: str) -> Finding:
    """How the schema of a store (number and checksum of each migration) compares with what this program knows."""
    known = load_migrations(resources.files(package).joinpath("migrations"))
    try:
        missing = missing_migrations(known, applied, place)
    except SkepError as error:
        return Finding("store", "fail", place, error.message)
    if missing:
        found = f"{place}: schema {len(known) - len(missing)} of {len(known)}"
        return Finding("store", "info", found, "the next start brings it up to date")
    return Finding("store", "ok", f"{place}: schema {len(known)} is current")
