"""Consumers: those that wait for messages, popped lately, or hold leases, with their queues and groups."""

from __future__ import annotations

from skep.dashboard.site import Action, Page, Site
from skep.http.request.call import Answer, Call
from skep.http.routes.pace import connected

SHOWN = 500


async def consumers(site: Site, call: Call) -> Answer:
    """The table, of a queue or of all."""
    links = site.links(call)
    named = links.query.get("queue", "").strip()
    found = await connected(site.engine, call, call.queue(named) if named else None)
    found.sort(key=lambda one: (not one.leases, not one.waiting))  # consumers that hold leases come first
    return site.page(
        call, "consumers.html", screen="consumers", consumers=found[:SHOWN], cut=len(found) > SHOWN, named=named,
        is_shared=site.engine.settings.shared,
    )  # fmt: skip


PAGES: list[Page] = [Page("/consumers", ("queue",), consumers)]
ACTIONS: list[tuple[str, Action]] = []
