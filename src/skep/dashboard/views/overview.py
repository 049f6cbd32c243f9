"""Overview: is all well, and if not, where to look. Red things come first."""

from __future__ import annotations

from typing import NamedTuple

from skep.dashboard.site import Deed, Site, View
from skep.dashboard.snapshots import Snapshot
from skep.http.concerns import concerns
from skep.http.exchange import Answer, Call
from skep.http.survey import Surveyed, totals
from skep.model import QUEUE_MODE_GROUP
from skep.wire.status import Concern

SHOWN_CONCERNS = 12
SHOWN_QUEUES = 8
_RED = {Concern.NEARLY_FULL, Concern.OLD}


class Worry(NamedTuple):
    """A line of what needs attention; ``red`` ones come first."""

    red: bool
    what: str
    queue: str
    message: str
    screen: str


async def overview(site: Site, call: Call) -> Answer:
    """The first page."""
    place = site.place(call)
    snapshot = await site.snapshots.of(place.tenant)
    worries = worries_of(snapshot)
    return site.page(
        call, "overview.html", screen="overview", snapshot=snapshot, totals=totals(snapshot.seen),
        worries=worries[:SHOWN_CONCERNS], more_worries=max(0, len(worries) - SHOWN_CONCERNS),
        red=sum(worry.red for worry in worries), busiest=busiest(snapshot), is_new=not snapshot.seen.queues,
    )  # fmt: skip


def worries_of(snapshot: Snapshot) -> list[Worry]:
    """What needs attention, red first, then by queue."""
    found = [
        Worry(warned.concern in _RED, warned.concern.replace("_", " "), warned.queue, warned.message, "queues")
        for warned in concerns(snapshot.seen)
    ]
    for queue, stats in snapshot.seen.queues:
        if stats.rates.dead > 0:
            message = (
                f"messages of {queue.key.name!r} are being given up: {stats.rates.dead * 60:.3g} in the last minute"
            )
            found.append(Worry(True, "dying", queue.key.name, message, "dead-letters"))
    return sorted(found, key=lambda worry: (not worry.red, worry.queue, worry.what))


def busiest(snapshot: Snapshot) -> list[Surveyed]:
    """The queues that have most to do, those that wait longest first."""
    working = [one for one in snapshot.seen.queues if not one.queue.holds_dead_letters]
    working.sort(
        key=lambda one: (-one.stats.oldest_age_seconds, -one.stats.depth, -one.stats.rates.pushed, one.queue.key)
    )
    return working[:SHOWN_QUEUES]


def group_label(group: str) -> str:
    """A group's name as people say it."""
    return "(no group)" if group == QUEUE_MODE_GROUP else group


PAGES: list[tuple[str, tuple[str, ...], View]] = [("/", (), overview)]
DEEDS: list[tuple[str, Deed]] = []
