"""The frame around all pages: templates, security headers, forms, notices, errors.

A page is allowed nothing (`default-src 'none'`) but this server's own style and scripts, each by a nonce; payloads and names
reach it as escaped text only. A form's answer is a redirect to a page, so that reloading repeats nothing.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import jinja2

import skep
from skep.dashboard import assets, formats
from skep.dashboard.links import Links
from skep.dashboard.notices import told_of
from skep.dashboard.screens import SCREENS
from skep.dashboard.snapshots import QueuesSnapshot, Snapshots
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.concerns import failed_calls
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ_LIST, Permission
from skep.http.request.prefix import prefix_of
from skep.http.request.route import Parameter
from skep.http.request.statuses import status_of
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
View = Callable[["Site", Call], Awaitable[Answer]]
Action = Callable[["Site", Call, "Fields"], Awaitable[str]]


class Page(NamedTuple):
    """A page: its path, the parameters of its query, its view, and the permission that it needs.

    Most pages need only the right to read some queue, and leave out queues that the caller may not read.
    """

    path: str
    parameters: tuple[str, ...]
    view: View
    needs: Permission = READ_LIST


_MISTAKES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""The statuses of errors that a user can correct in the form."""
T = TypeVar("T")


class InvalidFormError(SkepError):
    """An error of a form. The same form shows it, with the values that were typed."""

    def __init__(self, error: SkepError, page: Answer) -> None:
        super().__init__(error.code, error.message, **error.details)
        self.page = page


async def in_form(work: Awaitable[T], again: Callable[[SkepError], Awaitable[Answer]]) -> T:
    """Run the action of a form. After a mistake, ``again`` makes the same form, with the error."""
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
        """The first value of this name."""
        return next((value for given, value in self._pairs if given == name), default)

    def all(self, name: str) -> list[str]:
        """All values of this name."""
        return [value for given, value in self._pairs if given == name]


@functools.cache
def templates() -> jinja2.Environment:
    """The templates of all pages. They are compiled once in a process."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("skep.dashboard"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False, extensions=["jinja2.ext.do"],
    )  # fmt: skip
    found.filters.update(formats.FILTERS)
    found.globals.update(screens=SCREENS, version=skep.__version__, assets=assets.assets(), queue_mode=QUEUE_MODE_GROUP)
    return found


def read_templates() -> None:
    """Compile them all: each takes longer than the pages it is for."""
    for name in templates().list_templates():
        templates().get_template(name)


async def form_fields(call: Call, most_bytes: int = FORM_BYTES, most_fields: int = FORM_FIELDS) -> Fields:
    """The fields of a form that a browser sent."""
    kind = (call.header(b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind != FORM:
        raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "this takes a form of the dashboard")
    body = await call.body(most_bytes)
    try:
        text = body.decode("ascii")
        return Fields(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=most_fields))
    except ValueError:
        raise SkepError(Code.INVALID_REQUEST, "the form is not what a browser sends") from None


class Site:
    """The parts that every page is made with."""

    def __init__(self, engine: Engine, prefix: str = "") -> None:
        self.engine = engine
        self.snapshots = Snapshots(engine)
        self.counters: Callable[[], Meter] = Meter
        self._prefix = prefix
        self._templates = templates()

    def links(self, call: Call) -> Links:
        """The links of a request: its tenant and its path prefix."""
        return Links(call, self._prefix)

    def root(self, call: Call) -> str:
        """The path under which a browser sees the pages. It does not look at the tenant, which is not known before somebody is let in."""
        return prefix_of(call, self._prefix) + "/"

    async def snapshot(self, call: Call) -> QueuesSnapshot:
        """The tenant's queues that may be read. A refresh of a shown page waits for a fresh look: the user still sees the last one."""
        sees, principal = call.visible, call.principal
        scope = () if principal is None or call.sees_all else principal.grants
        return await self.snapshots.of(call.tenant, scope, sees, patient=call.header(b"hx-request") is not None)

    def failed_calls(self, call: Call) -> list[FailedCalls]:
        """Calls of the last minute that were refused for now, or failed."""
        return failed_calls(self.counters(), call, self.engine.now())

    def page(self, call: Call, template: str, http_status: int = HTTPStatus.OK, **values: Any) -> Answer:
        """A page."""
        nonce = secrets.token_urlsafe(16)
        links = self.links(call)
        notice, headers = told_of(call, self.root(call))
        html = self._templates.get_template(template).render(
            links=links, url=links.url, here=links.here, nonce=nonce, tenant=links.tenant, now=self.engine.now(),
            notice=notice, may=may_by(call, links.tenant),
            who=None if call.principal is None else call.principal.name, **values,
        )  # fmt: skip
        return Answer(http_status, html.encode(), HTML, [*_guards(nonce), *headers])

    def see(self, address: str, *headers: tuple[bytes, bytes]) -> Answer:
        """A redirect to a page."""
        return Answer(HTTPStatus.SEE_OTHER, b"", HTML, [(b"location", address.encode("ascii")), *headers])


def may_by(call: Call, tenant: str) -> Callable[[str, str], bool]:
    """Whether the user may do something with a queue: a page shows no control that the server would refuse."""
    principal = call.principal

    def may(verb: str, queue: str) -> bool:
        return principal is None or principal.may(Verb(verb), tenant, queue)

    return may


def check_shown_again(call: Call, queue: QueueKey, problem: SkepError | None) -> None:
    """Raise the problem alone for a caller who may not read the queue: a form that is shown again shows the queue, too."""
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
