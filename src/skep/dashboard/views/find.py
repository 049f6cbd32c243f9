"""Find: one search box for a name, a filter or an id. It leads to the page of a queue, of messages, or of a trace."""

from __future__ import annotations

from skep.dashboard import filters
from skep.dashboard.site import Action, Page, Site
from skep.errors import SkepError
from skep.http.request.call import Answer, Call
from skep.http.tenant_scan import Scanned


async def find(site: Site, call: Call) -> Answer:
    """Go on to a queue by its name or a part of it, to messages by a filter, else to the trace of an id."""
    links = site.links(call)
    what = links.query.get("what", "").strip()
    queues = (await site.snapshot(call)).seen.queues
    if not what:
        return site.see(links.url())
    named = [one for one in queues if one.queue.key.name == what] or _with_part(queues, what.lower())
    if len(named) == 1:
        return site.see(links.url("queues", named[0].queue.key.name))
    if named:
        return site.see(links.url("queues", filter=what))
    if _is_filter(what):
        return site.see(links.url("messages", q=what))
    return site.see(links.url("traces", id=what))


def _with_part(queues: list[Scanned], part: str) -> list[Scanned]:
    """Queues whose name has a part, as the list of queues finds them: it leaves dead-letter queues out."""
    return [one for one in queues if part in one.queue.key.name.lower() and not one.queue.holds_dead_letters]


def _is_filter(text: str) -> bool:
    try:
        filters.parse(text)
    except SkepError:
        return False
    return True


PAGES: list[Page] = [Page("/find", ("what",), find)]
ACTIONS: list[tuple[str, Action]] = []
