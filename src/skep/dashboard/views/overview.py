"""Overview: is all well, and if not, where to look. Red things come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skep.clock import seconds
from skep.dashboard import formats
from skep.dashboard.charts import charts, since
from skep.dashboard.site import Action, Page, Site
from skep.dashboard.snapshots import QueuesSnapshot
from skep.dashboard.views.operations import failing, thresholds
from skep.dashboard.views.queue import dead_letter_queue
from skep.engine import Engine
from skep.engine.push.spool.spool import SpoolFigures
from skep.errors import Code, SkepError
from skep.http.concerns import concerns
from skep.http.request.call import Answer, Call
from skep.http.tenant_scan import Scanned, totals
from skep.model import QueueKey
from skep.wire.status import Concern, FailedCalls

SHOWN_CONCERNS = 12
SHOWN_QUEUES = 8
A_MINUTE = 60.0
COUNTED_DEATHS = 1_000
"""The newest dead letters of a queue that are counted: beyond that an alarm says "at least"."""
COUNTED_QUEUES = 50
_RED = {Concern.NEARLY_FULL, Concern.OLD}
_CONCERNS = {Concern.OLD: "backlog stale", Concern.PAUSED: "paused", Concern.NEARLY_FULL: "nearly full"}


class Worry(NamedTuple):
    """A line of what needs attention; ``red`` ones come first."""

    red: bool
    what: str
    queue: str
    message: str


async def overview(site: Site, call: Call) -> Answer:
    """The first page."""
    links = site.links(call)
    snapshot = await site.snapshot(call)
    worries = worries_of(snapshot, await given_up(site.engine, snapshot))
    failed = site.failed_calls(call)
    worries[:0] = [Worry(True, "calls failing", "", failing(one)) for one in failed]
    if call.sees_server and site.engine.operations.stuck:
        worries.insert(
            0,
            Worry(
                True,
                "stuck",
                "",
                f"{site.engine.operations.stuck:,} operations have waited longer than twice their timeout",
            ),
        )
    if call.sees_server and site.engine.operations.blocked:
        blocked = f"{site.engine.operations.blocked:,} operations are blocked: they failed and will be retried"
        worries.insert(0, Worry(True, "stuck", "", blocked))
    if site.engine.store_away:  # anyone may know: `/ready` says so, too
        worries.insert(
            0,
            Worry(True, "store unreachable", "", "the store is unreachable: pushes are spooled to this server's disk"),
        )
    span = links.query.get("range", "1h")
    moments = await site.engine.history.figures(since(site.engine.now(), span), links.tenant) if call.sees_all else None
    return site.page(
        call, "overview.html", screen="overview", snapshot=snapshot, totals=totals(snapshot.seen),
        worries=worries[:SHOWN_CONCERNS], more_worries=max(0, len(worries) - SHOWN_CONCERNS),
        red=sum(worry.red for worry in worries), is_dead_lettering=any(worry.what == "dead-lettering" for worry in worries), busiest=busiest(snapshot), is_new=not snapshot.seen.queues,
        charts=None if moments is None else charts(moments), range=span, server=bearing(site.engine, failed) if call.sees_server else None,
    )  # fmt: skip


class Bearing(NamedTuple):
    """The load of the server by all tenants."""

    admission: tuple[str, str]
    operations: int
    spool: SpoolFigures | None


def bearing(engine: Engine, failed: Sequence[FailedCalls]) -> Bearing:
    """The load of this server. Show it only to callers who may read the queues of all tenants."""
    spool = None if engine.spool is None else engine.spool.figures()
    return Bearing(("refusing", "red") if failed else admission_state(engine), engine.operations.depth, spool)


def admission_state(engine: Engine) -> tuple[str, str]:
    """Whether calls are executed as they come, in a word and its tone."""
    passed = [one for one in thresholds(engine) if one.tone == "red"]
    if not engine.settings.admission.enabled:
        return "off", ""
    if any("refused" in one.then for one in passed):
        return "refusing", "red"
    return ("queueing", "amber") if passed or engine.operations.depth else ("open", "green")


async def given_up(engine: Engine, snapshot: QueuesSnapshot) -> dict[str, int]:
    """How many messages of each queue became dead letters in the last minute: counted where they lie, never a rate times sixty."""
    found: dict[str, int] = {}
    for queue, stats in snapshot.seen.queues:
        grave = dead_letter_queue(queue)
        if stats.rates.dead > 0 and grave is not None and len(found) < COUNTED_QUEUES:
            found[queue.key.name] = await _dead_lettered(engine, queue.key, QueueKey(grave, queue.key.tenant))
    return found


async def _dead_lettered(engine: Engine, key: QueueKey, grave: QueueKey) -> int:
    since = engine.now() - seconds(A_MINUTE)
    try:
        deaths = await engine.history.deaths(grave, limit=COUNTED_DEATHS)
    except SkepError as error:  # deleted meanwhile
        if error.code not in (Code.QUEUE_NOT_FOUND, Code.NOT_A_DEAD_LETTER_QUEUE):
            raise
        return 0
    return sum(one.source_queue == key.name and one.failed_at > since for one in deaths)


def _says_given_up(number: int) -> str:
    least = "at least " if number >= COUNTED_DEATHS else ""
    return f"{least}{number:,} message{'' if number == 1 else 's'} dead-lettered in the last minute"


def worries_of(snapshot: QueuesSnapshot, dead_lettered: Mapping[str, int]) -> list[Worry]:
    """The warnings of the overview, red first, then by queue."""
    by_name = {one.queue.key.name: one for one in snapshot.seen.queues}
    found = [
        Worry(
            warned.concern in _RED,
            _CONCERNS[warned.concern],
            warned.queue,
            _says(warned.concern, by_name[warned.queue]),
        )
        for warned in concerns(snapshot.seen)
    ]
    for queue, stats in snapshot.seen.queues:
        number = dead_lettered.get(queue.key.name)
        if number:
            found.append(Worry(True, "dead-lettering", queue.key.name, _says_given_up(number)))
        elif number is None and stats.rates.dead > 0 and not queue.holds_dead_letters:
            found.append(Worry(True, "discarding", queue.key.name, "messages are dropped after their last attempt"))
    return sorted(found, key=lambda worry: (not worry.red, worry.queue, worry.what))


def _says(concern: Concern, one: Scanned) -> str:
    depth, most = one.stats.depth, one.queue.settings.max_depth
    match concern:
        case Concern.PAUSED:
            return f"{depth:,} message{'' if depth == 1 else 's'} pending"
        case Concern.OLD:
            return f"the oldest message has waited {formats.duration(one.stats.oldest_age_seconds)}"
        case Concern.NEARLY_FULL:
            return f"{depth:,} of at most {most:,} messages"


def busiest(snapshot: QueuesSnapshot) -> list[Scanned]:
    """The queues with the largest backlog, the deepest first."""
    working = [one for one in snapshot.seen.queues if not one.queue.holds_dead_letters]
    working.sort(
        key=lambda one: (-one.stats.depth, -one.stats.oldest_age_seconds, -one.stats.rates.pushed, one.queue.key)
    )
    return working[:SHOWN_QUEUES]


PAGES: list[Page] = [Page("/", ("range",), overview)]
ACTIONS: list[tuple[str, Action]] = []
