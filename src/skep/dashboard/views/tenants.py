"""Tenants: choose whose queues to look at. The list has only tenants that the caller's key covers."""

from __future__ import annotations

from skep.dashboard.site import Action, Page, Site
from skep.http.request.call import Answer, Call
from skep.http.request.permission import KNOWN
from skep.http.tenant_scan import known_tenants

SHOWN = 500


async def tenants(site: Site, call: Call) -> Answer:
    """A list to choose from, page by page."""
    found = await known_tenants(site.engine, call, site.links(call).query.get("after", ""), SHOWN)
    return site.page(
        call, "tenants.html", screen=None, tenants=found, after=found[-1] if len(found) == SHOWN else None,
    )  # fmt: skip


PAGES: list[Page] = [Page("/tenants", ("after",), tenants, KNOWN)]
ACTIONS: list[tuple[str, Action]] = []
