"""The findings that both stores have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from skep.errors import SkepError
from skep.runtime.fitness import Finding
from skep.store.migrate import load_migrations, missing_migrations

UNUSED_SECONDS = 7 * 86_400
UNUSED_NAMED = 5


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
