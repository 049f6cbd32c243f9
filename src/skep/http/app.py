"""The ASGI application: the few hot paths are found by a dictionary, all others by Starlette's router."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette import routing

from skep.access.gate import Gate
from skep.apps.catalogue import Catalogue
from skep.config import AccessSettings, HttpLimits
from skep.engine import Engine
from skep.engine.answers import Answers
from skep.errors import Code, SkepError
from skep.http.auditing import audited, is_audited
from skep.http.request.bodies import LOGIN_BODIES_BYTES, STRANGER_SHARE, Bodies
from skep.http.request.call import Answer, Call, Receive, Scope, Send
from skep.http.request.endpoint import Endpoint, Teller, send_answer, tell_json
from skep.http.request.guard import Guard
from skep.http.request.peers import Peers
from skep.http.request.permission import Reach
from skep.http.request.route import Route
from skep.http.request.statuses import error_answer, is_failure, seen_from_outside
from skep.http.routes import (
    access,
    ack,
    admin,
    apps,
    dead_letters,
    deletions,
    encryption,
    endpoints,
    entities,
    events,
    forgetting,
    groups,
    health,
    holder,
    hooks,
    leases,
    log,
    messages,
    metrics,
    operations,
    overview,
    pace,
    pipelines,
    pop,
    push,
    queues,
    reference,
    refusals,
    replays,
    scheduled,
    staging,
    status,
    tables,
    traces,
    transaction,
)
from skep.http.routes.route_table import Served
from skep.http.spans import UNSEEN, RequestSpans, spanned
from skep.http.sqs import routes as sqs
from skep.observe.failures import OTHER_TENANTS
from skep.observe.metrics import Meter
from skep.observe.tally import Tally
from skep.webhooks.functions import FunctionsByName
from skep.webhooks.hooks import Hooks
from skep.webhooks.intake import Intake

DAY_SECONDS = 86_400.0
AUDIT_DAYS = AccessSettings().audit_days
POP_QUEUE = "/api/v1/pop/queue/"
HOOK = "/hook/"
NO_DASHBOARD = (
    "this server has no dashboard: install it with pip install 'skep[dashboard]', leave the setting dashboard on, and start the "
    "server anew; the reference of the API is at /docs"
)


def all_routes(
    engine: Engine,
    catalogue: Catalogue,
    meter: Meter,
    limits: HttpLimits,
    total: Callable[[], Meter],
    functions: FunctionsByName | None,
    answers: Answers,
) -> list[Route]:
    """Every route of the API. ``answers`` is the room that payloads in them take."""
    served = Served(engine, catalogue, meter, total, answers)
    return [
        *push.routes(engine, meter),
        *pop.routes(engine, meter, answers),
        *ack.routes(engine, meter),
        *transaction.routes(engine, meter),
        *events.routes(engine, meter, limits.json_depth),
        *operations.ROUTES.serve(engine),
        *log.ROUTES.serve(served),
        *staging.ROUTES.serve(served),
        *pipelines.ROUTES.serve(engine),
        *tables.ROUTES.serve(engine),
        *queues.ROUTES.serve(engine),
        *overview.ROUTES.serve(served),
        *messages.ROUTES.serve(served),
        *deletions.ROUTES.serve(engine),
        *forgetting.ROUTES.serve(engine),
        *traces.ROUTES.serve(served),
        *groups.ROUTES.serve(engine),
        *scheduled.ROUTES.serve(served),
        *dead_letters.ROUTES.serve(served),
        *replays.ROUTES.serve(engine),
        *status.ROUTES.serve(served),
        *leases.ROUTES.serve(engine),
        *pace.ROUTES.serve(engine),
        *apps.ROUTES.serve(served),
        *hooks.routes(Intake(engine, Hooks(catalogue), meter, limits.json_depth, functions, hooks.hook_status)),
        *refusals.ROUTES.serve(served),
        *entities.ROUTES.serve(engine),
        *endpoints.ROUTES.serve(engine),
        *encryption.ROUTES.serve(engine),
        *access.ROUTES.serve(engine),
        *admin.ROUTES.serve(served),
        *health.ROUTES.serve(engine),
        *metrics.routes(engine, total, limits, answers),
    ]


class Pages(Protocol):
    """The dashboard's pages beside the API. They are not in the API's reference, and show errors as pages."""

    @property
    def routes(self) -> list[Route]:
        """The pages and their form actions."""
        ...

    def root(self, call: Call) -> str:
        """The path under which a browser sees the pages."""
        ...

    def tell(self, error: SkepError, call: Call) -> Answer:
        """The page that shows an error."""
        ...

    async def prepare(self) -> None:
        """Prepare the figures that the first page would wait for."""
        ...

    def read_counters(self, total: Callable[[], Meter]) -> None:
        """Take the function that adds up the counters of all processes on the port."""
        ...


class HttpApp:
    """The HTTP face of an engine."""

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        limits: HttpLimits | None = None,
        tally: Tally | None = None,
        functions: FunctionsByName | None = None,
        pages: Pages | None = None,
        gate: Gate | None = None,
        audit_days: float = AUDIT_DAYS,
        path_prefix: str = "",
        spans: RequestSpans | None = None,
    ) -> None:
        """``tally`` adds up the counters of all processes that share the port; ``functions`` carry out webhooks' commands.

        ``pages`` are the dashboard, where it is installed. Without a ``gate`` the server asks for no keys. The
        audit log keeps the calls of admins for ``audit_days``. A proxy serves the server under ``path_prefix``. ``spans`` take a span of each
        request.
        """
        limits = limits or HttpLimits()
        self._limits = limits
        self._pages = pages
        self._gate = gate
        self._spans = spans
        self._now = engine.now
        self._access = engine.access
        self._audit_seconds = audit_days * DAY_SECONDS
        self.meter = Meter(limits.metrics_queues)
        peers = Peers(limits.trusted_proxies)
        self.bodies = Bodies(limits.bodies_bytes, peers)
        self.open_bodies = Bodies(limits.open_bodies_bytes, peers, STRANGER_SHARE)
        self.login_bodies = Bodies(LOGIN_BODIES_BYTES, peers, STRANGER_SHARE)
        wait_seconds = engine.settings.admission.backlog_seconds
        self.answers = Answers(limits.answers_bytes, limits.reader_seconds, wait_seconds)
        self.tally = tally
        self.holder_secret: str | None = None
        """The secret that the server wrote into the presence file beside its database."""
        self.routes = [
            *all_routes(engine, catalogue, self.meter, limits, self._total, functions, self.answers),
            *holder.routes(lambda: self.holder_secret),
            *reference.routes(lambda: self.routes, engine.settings.limits),
        ]
        self._doors = sqs.routes(engine, self.meter, self.answers, gate, self._audit_seconds, path_prefix)
        """The routes of interfaces that others have described, so that our document does not."""
        served = [(o, self._endpoint(o, tell_json)) for o in (*self.routes, *self._doors)]
        if pages is not None:
            pages.read_counters(self._total)
            served += [(o, self._endpoint(o, pages.tell)) for o in pages.routes]
        self._exact = {(o.method, o.path): endpoint for o, endpoint in served if "{" not in o.path}
        self._pop = {o.method: endpoint for o, endpoint in served if o.path == POP_QUEUE + "{queue}"}
        self._hook = next(endpoint for o, endpoint in served if o.path == HOOK + "{webhook}")
        self._router = self._routed(served)

    def _routed(self, served: list[tuple[Route, Endpoint]]) -> routing.Router:
        """Starlette's router for all paths, also for those that are found without it."""
        resources: dict[str, Resource] = {}
        exact: dict[str, list[str]] = {}
        for method, path in self._exact:
            exact.setdefault(path, []).append(method)
        for route, endpoint in served:
            resources.setdefault(route.path, Resource(exact)).add(route, endpoint)
        paths = [routing.Route(path, resource) for path, resource in resources.items()]
        router = routing.Router(paths, default=self._no_route)
        router.redirect_slashes = False  # a client that reads the answer as JSON would not understand it
        return router

    @property
    def every_route(self) -> list[Route]:
        """The routes of the API, of doors for other clients, and of the pages."""
        return [*self.routes, *self._doors, *(self._pages.routes if self._pages is not None else [])]

    def behind(self, door: str, routes: list[Route]) -> list[tuple[Route, Endpoint]]:
        """Routes of a door with a port of its own, with the same bounds and the same guard. The metrics name them by the door."""
        return [(o, self._endpoint(o, tell_json, door)) for o in routes]

    def _endpoint(self, o: Route, tell: Teller, door: str = "") -> Endpoint:
        meter = self.meter.route(o.method, door + o.path, o.verb)
        by_cookie = o.by_cookie or tell is not tell_json
        cookie_path = self._pages.root if self._pages is not None and by_cookie else None
        guard = None if self._gate is None else Guard(self._gate, o.access, cookie_path)
        handler = o.handler
        if is_audited(o.method, o.access):
            handler = audited(self._access, f"{o.method} {o.path}", o.access, self._audit_seconds, handler)
        if self._spans is not None and o.path not in UNSEEN:
            handler = spanned(self._spans, self._now, o.method, door + o.path, handler)
        bodies = self.bodies
        if o.access.reach is Reach.OPEN:  # webhooks, and the pages that log in
            bodies = self.open_bodies if tell is tell_json else self.login_bodies
        return Endpoint(
            handler, self._limits, bodies, None if o.checks_query else o.query_names, meter, o.repeatable, o.tell or tell, guard, o.tenant_in,
            by_link=o.by_link or tell is not tell_json, note=self._note_failure if tell is tell_json else None,
        )  # fmt: skip

    def _note_failure(self, error: SkepError, call: Call) -> None:
        """Count a call of the API that failed, or was refused for now. A page that cannot be shown is not counted."""
        code = seen_from_outside(error).code
        if is_failure(code):
            self.meter.failures.add(self._now(), call.tenant_or_none or OTHER_TENANTS, code)

    def _total(self) -> Meter:
        return self.meter if self.tally is None else self.tally.total(self.meter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = scope["method"]
        endpoint = self._exact.get((method, scope["path"]))
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        # Paths are matched as they were quoted, so that a name may contain a slash.
        quoted = scope["raw_path"].decode("ascii")
        if method in self._pop and quoted.startswith(POP_QUEUE):
            queue = quoted[len(POP_QUEUE) :]
            if queue and "/" not in queue:
                scope["path_params"] = {"queue": queue}
                endpoint = self._pop[method]
        elif method == "POST" and quoted.startswith(HOOK):
            name = quoted[len(HOOK) :]
            if name and "/" not in name:
                scope["path_params"] = {"webhook": name}
                endpoint = self._hook
        if endpoint is None:
            scope["path"] = quoted
            is_missing_page = self._pages is None and quoted == "/" and method in ("GET", "HEAD")
            await (self._no_route if is_missing_page else self._router)(scope, receive, send)
        else:
            await endpoint(scope, receive, send)

    async def _no_route(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = SkepError(Code.ROUTE_NOT_FOUND, f"there is no {scope['path']}")
        if self._pages is None and scope["path"] == "/":
            error = SkepError(Code.ROUTE_NOT_FOUND, NO_DASHBOARD)
        call = Call(scope, receive, self._limits, self.bodies)
        # Browsers ask for HTML and get a page; programs get the error as JSON, whatever they asked for.
        by_browser = scope["method"] in ("GET", "HEAD") and b"text/html" in (call.header(b"accept") or b"")
        tell = self._pages.tell if self._pages is not None and by_browser else tell_json
        await send_answer(scope, send, tell(error, call))


class Resource:
    """The routes of one path, by method."""

    __slots__ = ("_by_method", "_exact", "_refuse")

    def __init__(self, exact: dict[str, list[str]], refuse: Callable[[SkepError], Answer] = error_answer) -> None:
        """``exact`` has the methods of all paths without parameters: such a path may look like one with a parameter.

        ``refuse`` makes the answer to a method that the path does not have.
        """
        self._by_method: dict[str, Endpoint] = {}
        self._exact = exact
        self._refuse = refuse

    def add(self, route: Route, endpoint: Endpoint) -> None:
        """Add a route. A route for GET answers HEAD too; the server leaves out the body.

        A pop does not answer HEAD: it would lease or settle messages that the client does not get.
        """
        self._by_method[route.method] = endpoint
        if route.method == "GET" and route.verb != "pop":
            self._by_method["HEAD"] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._by_method.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        allowed = ", ".join(dict.fromkeys([*self._by_method, *self._exact.get(scope["path"], ())]))
        answer = self._refuse(SkepError(Code.METHOD_NOT_ALLOWED, f"{scope['path']} takes {allowed}"))
        answer.headers.append((b"allow", allowed.encode()))
        await send_answer(scope, send, answer)
