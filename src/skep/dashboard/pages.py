"""All pages and forms of the dashboard as routes of the application: what a view shows, and what a form's action does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import structlog

from skep.access.gate import Gate
from skep.dashboard import assets
from skep.dashboard.login import login_page, login_routes
from skep.dashboard.notices import noticed
from skep.dashboard.site import COMMON, TAG, TENANT, Action, InvalidFormError, Page, Site, form_fields, read_templates
from skep.dashboard.snapshots import StillLooking
from skep.dashboard.views import actions, views
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call
from skep.http.request.permission import ADMIN, OPEN
from skep.http.request.route import Media, Parameter, Route
from skep.http.request.statuses import error_answer
from skep.observe.metrics import Meter

log = structlog.get_logger("skep.dashboard")


class Dashboard:
    """All pages, as routes that the application serves beside those of the API."""

    def __init__(self, engine: Engine, prefix: str = "", gate: Gate | None = None) -> None:
        self.site = Site(engine, prefix)
        self.routes = [
            *(_shown(self.site, page) for page in views()),
            *(_done(self.site, path, action) for path, action in actions()),
            *login_routes(self.site, gate),
            Route(
                method="GET", path="/assets/{asset}", handler=assets.serve, summary="A style or script", tag=TAG,
                access=OPEN, answers={200: Media("text/css")},
            ),
        ]  # fmt: skip

    async def prepare(self) -> None:
        """Have ready what the first page of a server would wait for. A store that is away is waited for then."""
        try:
            await asyncio.to_thread(read_templates)
            await self.site.snapshots.prepare()
        except SkepError as error:
            log.info("no look at all queues was taken yet", error=str(error))

    def root(self, call: Call) -> str:
        """The path under which a browser sees the pages."""
        return self.site.root(call)

    def read_counters(self, total: Callable[[], Meter]) -> None:
        """Take the function that adds up the counters of all processes on the port."""
        self.site.counters = total

    def tell(self, error: SkepError, call: Call) -> Answer:
        """The page that tells of an error."""
        if isinstance(error, InvalidFormError):
            return error.page
        told = error_answer(error)
        if call.header(b"hx-request") is not None:
            return told
        if error.code is Code.UNAUTHENTICATED:
            return login_page(self.site, call, error)
        page = self.site.page(call, "error.html", told.status, error=error, status=HTTPStatus(told.status), screen=None)
        page.headers.extend(header for header in told.headers if header[0] == b"retry-after")
        return page


def _shown(site: Site, page: Page) -> Route:
    async def handler(call: Call) -> Answer:
        try:
            return await page.view(site, call)
        except StillLooking:
            waiting = site.page(call, "waiting.html", screen=None)
            waiting.headers.append((b"refresh", b"1"))
            return waiting

    known = (
        *COMMON,
        *(
            Parameter(name.rstrip("*"), list[str] if name.endswith("*") else str, "what it shows")
            for name in page.parameters
        ),
    )
    return Route(
        method="GET", path=page.path, handler=handler, summary="A page", tag=TAG, parameters=known,
        answers={200: Media("text/html")}, access=page.needs, tenant_in=TENANT,
    )  # fmt: skip


def _done(site: Site, path: str, action: Action) -> Route:
    """The route of a form. Its action checks the queue that it changes, and returns the address of the next page."""

    async def handler(call: Call) -> Answer:
        fields = await form_fields(call)
        links = site.links(call)
        try:
            address = await action(site, call, fields)
        finally:
            site.snapshots.forget(links.tenant, call.path("queue") if "{queue}" in path else None)
        log.info("done from the dashboard", path=call.scope["raw_path"].decode("ascii"), tenant=links.tenant)
        return site.see(*noticed(call, address, site.root(call)))

    return Route(
        method="POST", path=path, handler=handler, summary="A form", tag=TAG, parameters=COMMON,
        answers={303: None}, access=ADMIN, tenant_in=TENANT,
    )  # fmt: skip
