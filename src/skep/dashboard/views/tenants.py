"""Tenants: whose queues to look at. Only those are listed that whoever asks has to do with."""

from __future__ import annotations

from skep.dashboard.site import Deed, Site, View
from skep.http.exchange import Answer, Call

SHOWN = 500


async def tenants(site: Site, call: Call) -> Answer:
    """A list to choose from, page by page."""
    place = site.place(call)
    found = await site.engine.tenants(after=place.query.get("after", ""), limit=SHOWN)
    principal = call.principal
    names = [name for name in found if principal is None or principal.knows(name)]
    return site.page(
        call, "tenants.html", screen=None, tenants=names, after=found[-1] if len(found) == SHOWN else None,
    )  # fmt: skip


PAGES: list[tuple[str, tuple[str, ...], View]] = [("/tenants", ("after",), tenants)]
DEEDS: list[tuple[str, Deed]] = []
