"""Queues: all of them in one table that can be filtered and sorted, with a switch to pause each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from skep.dashboard.charts import sparks
from skep.dashboard.site import Action, Fields, Page, Site
from skep.http.auditing import note_settings, settings_before
from skep.http.concerns import OLD_SECONDS
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.tenant_scan import Scanned

PAGE_ROWS = 50
SHOWN = ("working", "paused", "waiting", "dead", "all")
"""Which queues the table has; dead-letter queues are among all only."""


class Column(NamedTuple):
    """A column that the table may be sorted by: numbers from the greatest down, names from A."""

    name: str
    title: str
    value: Callable[[Scanned], Any]


COLUMNS = (
    Column("name", "Queue", lambda one: one.queue.key.name),
    Column("depth", "Depth", lambda one: -one.stats.depth),
    Column("in_flight", "In flight", lambda one: -one.stats.in_flight),
    Column("oldest", "Oldest", lambda one: -one.stats.oldest_age_seconds),
    Column("lag", "Worst lag", lambda one: -worst_lag(one)),
    Column("pushed", "In /s", lambda one: -one.stats.rates.pushed),
    Column("completed", "Out /s", lambda one: -one.stats.rates.completed),
    Column("dead", "Dead", lambda one: -one.stats.dead_letters),
)


async def queues(site: Site, call: Call) -> Answer:
    """The table."""
    links = site.links(call)
    snapshot = await site.snapshot(call)
    show = links.query.get("show", "working")
    sort = links.query.get("sort", "name")
    text = links.query.get("filter", "").strip().lower()
    column = next((column for column in COLUMNS if column.name == sort), COLUMNS[0])
    found = [one for one in snapshot.seen.queues if _is_shown(one, show) and _matches(one, text)]
    found.sort(key=lambda one: (column.value(one), one.queue.key.name))
    page = max(1, parameters.whole(links.query, "page", 1))
    first = (page - 1) * PAGE_ROWS
    shown = found[first : first + PAGE_ROWS]
    lines = await sparks(site.engine, [one.queue.key.name for one in shown], links.tenant)
    return site.page(
        call, "queues.html", screen="queues", snapshot=snapshot, columns=COLUMNS, sort=column.name, show=show, filter=text,
        rows=[(one, worst_lag(one), lines[one.queue.key.name]) for one in shown], found=len(found), page=page,
        pages=max(1, -(-len(found) // PAGE_ROWS)), old_seconds=OLD_SECONDS,
        counts={name: sum(_is_shown(one, name) for one in snapshot.seen.queues) for name in SHOWN},
    )  # fmt: skip


def worst_lag(one: Scanned) -> int:
    """How many messages the group that is furthest behind has yet to settle."""
    return max((group.lag_messages for group in one.stats.groups), default=0)


def _is_shown(one: Scanned, show: str) -> bool:
    match show:
        case "all":
            return True
        case "paused":
            return one.queue.settings.paused
        case "waiting":
            return not one.queue.holds_dead_letters and one.stats.oldest_age_seconds > OLD_SECONDS
        case "dead":
            return not one.queue.holds_dead_letters and one.stats.dead_letters > 0
        case _:
            return not one.queue.holds_dead_letters


def _matches(one: Scanned, text: str) -> bool:
    settings = one.queue.settings
    return not text or any(
        text in (name or "").lower() for name in (one.queue.key.name, settings.namespace, settings.task)
    )


async def pause(site: Site, call: Call, fields: Fields) -> str:
    """Pause or resume a queue; then go back to the page of the form."""
    links = site.links(call)
    key = call.queue(call.path("queue"))
    paused = fields.get("paused") == "yes"
    before = await settings_before(site.engine, key)
    changed = await (site.engine.pause_queue(key) if paused else site.engine.resume_queue(key))
    note_settings(call, before, changed.settings, verb="pause queue" if paused else "resume queue")
    notice = "paused" if paused else "resumed"
    if fields.get("from") == "queues":
        kept = {name: fields.get(name) for name in ("filter", "sort", "show", "page")}
        return links.url("queues", **kept, notice=notice)
    return links.url("queues", key.name, notice=notice)


PAGES: list[Page] = [Page("/queues", ("filter", "sort", "show", "page"), queues)]
ACTIONS: list[tuple[str, Action]] = [("/queues/{queue}/pause", pause)]
