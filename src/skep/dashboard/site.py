"""The frame around all pages: templates, what a browser may do with them, forms, notices, errors.

A page is allowed nothing (`default-src 'none'`) but this server's own style and scripts, each by a nonce; payloads and names
reach it as escaped text only. A form's answer is a redirect to a page, so that reloading repeats nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import jinja2
import structlog

import skep
from skep.access.gate import Gate
from skep.dashboard import assets, formats
from skep.dashboard.notices import noticed, told_of
from skep.dashboard.place import Place, prefix_of
from skep.dashboard.screens import SCREENS
from skep.dashboard.snapshots import Snapshot, Snapshots, StillLooking
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.concerns import failed_calls
from skep.http.errors import error_answer, status_of
from skep.http.exchange import Answer, Call
from skep.http.need import ADMIN, OPEN, READ_LIST, Need
from skep.http.operation import Media, Operation, Parameter
from skep.model import QUEUE_MODE_GROUP, QueueKey
from skep.model.key import Verb
from skep.observe.metrics import Meter
from skep.wire.status import FailedCalls

HTML = b"text/html; charset=utf-8"
FORM = b"application/x-www-form-urlencoded"
FORM_FIELDS = 2_000
FORM_BYTES = 4 * 1024 * 1024
TAG = "Dashboard"
TENANT = "tenant"
COMMON = (Parameter(TENANT, str, "whose queues"),)

Form = Mapping[str, str]
View = Callable[["Site", Call], Awaitable[Answer]]
Deed = Callable[["Site", Call, "Fields"], Awaitable[str]]


class Page(NamedTuple):
    """A page: its path, the parameters of its query, what makes it, and what it needs of whoever looks.

    Most need no more than to read something, and leave out what may not be read.
    """

    path: str
    parameters: tuple[str, ...]
    view: View
    needs: Need = READ_LIST


log = structlog.get_logger("skep.dashboard")
_MISTAKES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""How errors end that whoever filled in a form can mend there."""
T = TypeVar("T")


class InvalidFormError(SkepError):
    """An error that is told in the form it comes from, with what was typed into it."""

    def __init__(self, error: SkepError, page: Answer) -> None:
        super().__init__(error.code, error.message, **error.details)
        self.page = page


async def in_form(work: Awaitable[T], again: Callable[[SkepError], Awaitable[Answer]]) -> T:
    """Do what a form asks for; a mistake in it is told by the same form, which ``again`` makes."""
    try:
        return await work
    except SkepError as error:
        if status_of(error.code) not in _MISTAKES:
            raise
        raise InvalidFormError(error, await again(error)) from error


class Fields:
    """The fields of a form."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def get(self, name: str, default: str = "") -> str:
        """The first of this name."""
        return next((value for given, value in self._pairs if given == name), default)

    def all(self, name: str) -> list[str]:
        """All of this name."""
        return [value for given, value in self._pairs if given == name]


class Site:
    """What every page is made with."""

    def __init__(self, engine: Engine, prefix: str = "") -> None:
        self.engine = engine
        self.snapshots = Snapshots(engine)
        self.counters: Callable[[], Meter] = Meter
        self._prefix = prefix
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("skep.dashboard"), autoescape=True, undefined=jinja2.StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False, extensions=["jinja2.ext.do"],
        )  # fmt: skip
        self._templates.filters.update(formats.FILTERS)
        self._templates.globals.update(
            screens=SCREENS, version=skep.__version__, assets=assets.assets(), queue_mode=QUEUE_MODE_GROUP
        )

    def read_templates(self) -> None:
        """Compile them all: each takes longer than the pages it is for."""
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def place(self, call: Call) -> Place:
        """Where a request stands."""
        return Place(call, self._prefix)

    def root(self, call: Call) -> str:
        """The path under which a browser sees the pages. It does not look at the tenant, which is not known before somebody is let in."""
        return prefix_of(call, self._prefix) + "/"

    async def snapshot(self, call: Call) -> Snapshot:
        """The tenant's queues that may be read. What refreshes itself can wait, and whoever sees the page meanwhile sees the last
        one.
        """
        sees, principal = call.visible, call.principal
        scope = () if principal is None or call.sees_all else principal.grants
        return await self.snapshots.of(call.tenant, scope, sees, patient=call.header(b"hx-request") is not None)

    def failed_calls(self, call: Call) -> list[FailedCalls]:
        """Calls of the last minute that were refused for now, or failed."""
        return failed_calls(self.counters(), call, self.engine.now())

    def page(self, call: Call, template: str, http_status: int = HTTPStatus.OK, **values: Any) -> Answer:
        """A page."""
        nonce = secrets.token_urlsafe(16)
        place = self.place(call)
        notice, headers = told_of(call, self.root(call))
        html = self._templates.get_template(template).render(
            place=place, url=place.url, here=place.here, nonce=nonce, tenant=place.tenant, now=self.engine.now(),
            notice=notice, may=may_by(call, place.tenant),
            who=None if call.principal is None else call.principal.name, **values,
        )  # fmt: skip
        return Answer(http_status, html.encode(), HTML, [*_guards(nonce), *headers])

    def see(self, address: str, *headers: tuple[bytes, bytes]) -> Answer:
        """A redirect to a page."""
        return Answer(HTTPStatus.SEE_OTHER, b"", HTML, [(b"location", address.encode("ascii")), *headers])


def may_by(call: Call, tenant: str) -> Callable[[str, str], bool]:
    """Whether whoever looks may do something with a queue: a page shows no control that would be refused."""
    principal = call.principal

    def may(verb: str, queue: str) -> bool:
        return principal is None or principal.may(Verb(verb), tenant, queue)

    return may


def check_shown_again(call: Call, queue: QueueKey, problem: SkepError | None) -> None:
    """A form that is shown again was sent by an admin's verb: who may not read the queue is told of the problem alone."""
    if problem is not None and not may_by(call, queue.tenant)(Verb.READ, queue.name):
        raise problem


def _guards(nonce: str) -> list[tuple[bytes, bytes]]:
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return [
        (b"content-security-policy", policy.encode()),
        # Not no-referrer: forms would then come from the origin `null`, which is refused.
        (b"referrer-policy", b"same-origin"),
    ]  # fmt: skip


class Dashboard:
    """All pages, as operations that the application serves beside those of the API."""

    def __init__(self, engine: Engine, prefix: str = "", gate: Gate | None = None) -> None:
        from skep.dashboard.login import login_operations
        from skep.dashboard.views import deeds, views

        self.site = Site(engine, prefix)
        self.operations = [
            *(_shown(self.site, page) for page in views()),
            *(_done(self.site, path, deed) for path, deed in deeds()),
            *login_operations(self.site, gate),
            Operation(
                method="GET", path="/assets/{asset}", handler=assets.serve, summary="A style or script", tag=TAG,
                access=OPEN, answers={200: Media("text/css")},
            ),
        ]  # fmt: skip

    async def prepare(self) -> None:
        """Have ready what the first page of a server would wait for. A store that is away is waited for then."""
        try:
            await asyncio.to_thread(self.site.read_templates)
            await self.site.snapshots.prepare()
        except SkepError as error:
            log.info("no look at all queues was taken yet", error=str(error))

    def root(self, call: Call) -> str:
        """The path under which a browser sees the pages."""
        return self.site.root(call)

    def read_counters(self, total: Callable[[], Meter]) -> None:
        """Where the counters of all processes on the port are."""
        self.site.counters = total

    def tell(self, error: SkepError, call: Call) -> Answer:
        """The page that tells of an error."""
        from skep.dashboard.login import login_page

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


def _shown(site: Site, page: Page) -> Operation:
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
    return Operation(
        method="GET", path=page.path, handler=handler, summary="A page", tag=TAG, parameters=known,
        answers={200: Media("text/html")}, access=page.needs, tenant_in=TENANT,
    )  # fmt: skip


def _done(site: Site, path: str, deed: Deed) -> Operation:
    """Something that is done by a form. The deed checks what it is done to, and says where to go next."""

    async def handler(call: Call) -> Answer:
        kind = (call.header(b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind != FORM:
            raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "this takes a form of the dashboard")
        body = await call.body(FORM_BYTES)
        try:
            text = body.decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS)
        except ValueError:
            raise SkepError(Code.INVALID_REQUEST, "the form is not what a browser sends") from None
        place = site.place(call)
        try:
            address = await deed(site, call, Fields(pairs))
        finally:
            site.snapshots.forget(place.tenant, call.path("queue") if "{queue}" in path else None)
        log.info("done from the dashboard", path=call.scope["raw_path"].decode("ascii"), tenant=place.tenant)
        return site.see(*noticed(call, address, site.root(call)))

    return Operation(
        method="POST", path=path, handler=handler, summary="A form", tag=TAG, parameters=COMMON,
        answers={303: None}, access=ADMIN, tenant_in=TENANT,
    )  # fmt: skip
