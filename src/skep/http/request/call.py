"""A request and its answer, as thin as ASGI allows: no framework work per request.

A handler is ``async (Call) -> Answer``. It reads what it needs of the call and raises `SkepError`; the endpoint around it
turns that into an answer and sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from skep.access.principal import Principal, ended
from skep.config import HttpLimits
from skep.engine.answers import Answers, Room
from skep.errors import Code, SkepError
from skep.http.request.bodies import Bodies
from skep.http.request.scope import CYCLE, HEADERS, REPEATED, name_headers
from skep.model import DEFAULT_TENANT, QueueKey
from skep.model.key import Outcome, Verb
from skep.strict_json import check_depth_of_body, check_unique_keys, why_no_json
from skep.wire.traceparent import TraceContext, context_of

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
T = TypeVar("T")

JSON = b"application/json"
FORM = b"application/x-www-form-urlencoded"
TENANT_HEADER = b"skep-tenant"
CACHE_CONTROL = b"cache-control"
NO_STORE = (CACHE_CONTROL, b"no-store")
NOSNIFF = (b"x-content-type-options", b"nosniff")
"""No browser takes JSON for a page, whatever is in it."""
_encode = msgspec.json.Encoder().encode


class Answer(Struct):
    """A status, a body (whole, or in pieces as they come), and headers.

    ``undelivered`` is called when the client has gone before the answer was written: it undoes what was done for the client.
    ``caching`` is the header Cache-Control; by default nobody keeps the answer.
    """

    status: int
    body: bytes | AsyncGenerator[bytes | memoryview, None] = b""
    media_type: bytes = JSON
    headers: list[tuple[bytes, bytes]] = msgspec.field(default_factory=list)
    undelivered: Callable[[], None] | None = None
    caching: tuple[bytes, bytes] = NO_STORE


NOTHING = Answer(HTTPStatus.NO_CONTENT)


def json_answer(value: object, status: int = HTTPStatus.OK) -> Answer:
    """A struct as JSON."""
    return Answer(status, _encode(value))


class Deed(Struct):
    """A handler's entry for the audit log; the route supplies the missing fields."""

    outcome: Outcome = Outcome.DONE
    verb: str | None = None
    target: str | None = None
    count: int | None = None
    before: str | None = None
    after: str | None = None


class Call:
    """What a handler sees of a request."""

    __slots__ = (
        "_bodies", "_headers", "_limits", "_pairs", "_query", "_receive", "_repeatable", "_tenant", "_verb", "body_bytes", "checked", "deed",
        "is_guarded", "principal", "room", "scope", "tenant_in", "touched", "waits",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        limits: HttpLimits,
        bodies: Bodies,
        repeatable: frozenset[str] = frozenset(),
        tenant_in: str | None = None,
    ) -> None:
        """``tenant_in`` is the parameter of the query that may name the tenant."""
        self.scope = scope
        headers: dict[bytes, bytes] | None = scope.get(HEADERS)
        # Another server than ours leaves only ASGI's list.
        self._headers = name_headers(scope, scope["headers"]) if headers is None else headers
        self.tenant_in = tenant_in
        self._receive = receive
        self._limits = limits
        self._bodies = bodies
        self._repeatable = repeatable
        self._pairs: list[tuple[str, str]] = []
        self.body_bytes = 0
        """How much of the body was read; `Bodies` wants so much back."""
        self._query: dict[str, str] | None = None
        self.room: Room | None = None
        """Where its answer is held until the client has taken it, when it has payloads."""
        self.waits = False
        """Whether it is a long poll, whose time says nothing of how fast the server is."""
        self.principal: Principal | None = None
        """The caller; None on a server that asks for no keys."""
        self.checked = False
        """Whether it was looked at what the principal may do."""
        self.is_guarded = False
        """Whether it is open to anyone on a server that asks others who they are, and so tells little."""
        self.touched: set[str] | None = None
        """The names of queues that it was about, when someone wants to know."""
        self.deed: Deed | None = None
        """The entry for the audit log, if the call is audited."""
        self._tenant: str | None = None
        self._verb: Verb | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first header of this (lower case) name."""
        return self._headers.get(name)

    def single_header(self, name: bytes, code: Code) -> bytes | None:
        """The header of this (lower case) name. Given twice it is refused: a proxy may have looked at the other one."""
        if name in self.scope[REPEATED]:
            raise SkepError(code, f"the header {name.decode().title()} is given twice")
        return self._headers.get(name)

    @property
    def peer(self) -> str:
        """The address that it comes from."""
        return self._bodies.peers.of(self.scope)

    @property
    def is_https(self) -> bool:
        """Whether the caller came by TLS."""
        return self._bodies.peers.is_https(self.scope)

    @property
    def tenant(self) -> str:
        """Whose queues are meant: the tenant of the header, if the principal has to do with it, else the principal's own."""
        if self._tenant is None:
            named = self._named_tenant()
            if self.principal is None:
                self._tenant = DEFAULT_TENANT if named is None else named
            else:
                self._tenant = self.principal.tenant(named)
        return self._tenant

    @property
    def tenant_or_none(self) -> str | None:
        """The tenant, where one is named as it should be and may be named."""
        try:
            return self.tenant
        except SkepError:
            return None

    def _named_tenant(self) -> str | None:
        """The query's where it may name one, else the header's."""
        if self.tenant_in is not None and (named := self.query.get(self.tenant_in)):
            return named
        named_by_header = self.single_header(TENANT_HEADER, Code.INVALID_REQUEST)
        if named_by_header is None:
            return None
        try:
            # As paths are, and as clients write it: whoever is in a path must be the same in a header.
            return named_by_header.decode()
        except UnicodeDecodeError:
            raise SkepError(Code.INVALID_REQUEST, "the header Skep-Tenant is not UTF-8") from None

    def note(
        self,
        *,
        verb: str | None = None,
        target: str | None = None,
        count: int | None = None,
        before: str | None = None,
        after: str | None = None,
        dry_run: bool = False,
        declined: bool = False,
    ) -> None:
        """Tell the audit log what is done: to what, how much of it, and what was there before and after."""
        if self.deed is not None:
            outcome = Outcome.DRY_RUN if dry_run else Outcome.DECLINED if declined else Outcome.DONE
            self.deed = Deed(outcome, verb, target, count, before, after)

    # who may do what

    def enter(self, principal: Principal, verb: Verb | None) -> None:
        """Someone is let in; ``verb`` is what they are here for."""
        self.principal = principal
        self._verb = verb

    def queue(self, name: str, verb: Verb | None = None) -> QueueKey:
        """The queue that a request means by a name, if it may; ``verb`` is what is to be done when that is not the operation's own."""
        key = QueueKey(name, self.tenant)
        self.check(key, verb)
        return key

    def check(self, key: QueueKey, verb: Verb | None = None) -> None:
        """Refuse a queue with which that may not be done."""
        if self.touched is not None:
            self.touched.add(key.name)
        principal = self.principal
        if principal is not None:
            asked = verb or self._verb
            assert asked is not None
            principal.check(asked, key.tenant, key.name)
            self.checked = True

    def may(self, key: QueueKey) -> bool:
        """Whether that may be done with a queue which the operation is for; who asks this still has to check something."""
        principal, verb = self.principal, self._verb
        return principal is None or verb is None or principal.may(verb, key.tenant, key.name)

    def check_tenant(self, verb: Verb) -> None:
        """Refuse what is of no single queue, unless all of the tenant's are granted."""
        principal = self.principal
        if principal is not None:
            if not principal.may_all(verb, self.tenant):
                raise SkepError(Code.FORBIDDEN, f"this needs {verb} on all queues of the tenant")
            self.checked = True

    @property
    def visible(self) -> Callable[[QueueKey], bool]:
        """Whether a queue may be in the answer. The handler leaves out the other queues."""
        principal, verb = self.principal, self._verb
        if principal is None or verb is None:
            return _any_queue
        self.checked = True
        return lambda key: principal.may(verb, key.tenant, key.name)

    @property
    def sees_all(self) -> bool:
        """Whether all queues of the tenant are visible, so that nothing needs to be left out."""
        return self.principal is None or self._verb is None or self.principal.may_all(self._verb, self.tenant)

    @property
    def sees_server(self) -> bool:
        """Whether what the server does for all tenants together may be in the answer: its load, its spool, its connections."""
        return self.principal is None or self.principal.may_everywhere(Verb.READ)

    # what else it brings

    @property
    def trace_context(self) -> TraceContext | None:
        """The trace that the caller is in."""
        return context_of(self.scope["headers"]) if b"traceparent" in self._headers else None

    def path(self, name: str) -> str:
        """A part of the path. Paths are matched before they are unquoted, so a part may contain a slash."""
        try:
            return unquote(self.scope["path_params"][name], errors="strict")
        except UnicodeDecodeError:
            raise SkepError(Code.INVALID_REQUEST, f"{name} in the path is not UTF-8") from None

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; each may come once, but for those that the route lets come often (see `values`)."""
        if self._query is None:
            try:
                pairs = parse_qsl(
                    self.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict",
                    max_num_fields=self._limits.query_parameters,
                )  # fmt: skip
            except ValueError:
                raise SkepError(Code.INVALID_REQUEST, "the query is not what a URL may carry") from None
            self._query, self._pairs = dict(pairs), pairs
            if len(self._query) < len(pairs):
                once = [name for name, _ in pairs if name not in self._repeatable]
                if len(set(once)) < len(once):
                    raise SkepError(Code.INVALID_REQUEST, "a query parameter is given twice")
        return self._query

    def values(self, name: str) -> list[str]:
        """All values of a parameter that may come often."""
        return [value for given, value in self._pairs if given == name] if name in self.query else []

    async def json(self, decoder: msgspec.json.Decoder[T], empty: T | None = None, *, levels_above: int = 0) -> T:
        """The struct that the body writes, or ``empty`` when it writes nothing and may do so; see `read_json`."""
        body = await self.json_body()
        return empty if not body and empty is not None else await self.read_json(body, decoder, levels_above)

    async def json_body(self) -> bytes:
        """The whole body, which says that it is JSON or says nothing."""
        kind = self.header(b"content-type")
        if kind is not None and kind != JSON and not _may_be_json(kind):
            raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
        return await self.body()

    async def read_json(self, body: bytes, decoder: msgspec.json.Decoder[T], levels_above: int) -> T:
        """The struct that a body writes.

        What the struct keeps raw is left as it is, and only seen to be JSON in UTF-8, not nested too deeply and without a
        key given twice. Payloads that stand some ``levels_above`` the body's own may be as deep as any others.
        """
        try:
            value = decoder.decode(body)
            # The decoder skips over raw parts without looking at the bytes of their strings.
            if not body.isascii():
                body.decode()
            await check_unique_keys(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _undecodable(error) from None
        await check_depth_of_body(body, self._limits.json_depth, levels_above)
        return value

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body, refused as soon as it is longer than it may be. That it comes in time is the connection's care."""
        if self.header(b"content-encoding") not in (None, b"identity"):
            raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "a compressed body is not taken")
        if limit is None:
            limit = self._limits.body_bytes
        announced = self.header(b"content-length")
        if announced is not None:
            length = int(announced)
            if length > limit:
                raise _too_large(limit)
            self._bodies.expect(length)
        event = await self._receive()
        if event["type"] == "http.request" and not event.get("more_body"):
            body: bytes = event.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
            self._bodies.take(len(body))
            self.body_bytes += len(body)
            return body
        return await self._rest(event, limit)

    async def _rest(self, event: Event, limit: int) -> bytes:
        parts = []
        bodies = self._bodies
        peer = bodies.peers.bounded(self.scope)
        try:
            while True:
                if event["type"] == "http.disconnect":
                    raise ClientGone
                part = event.get("body", b"")
                if self.body_bytes + len(part) > limit:
                    raise _too_large(limit)
                bodies.take_of(peer, len(part), limit)
                self.body_bytes += len(part)
                parts.append(part)
                if not event.get("more_body"):
                    return b"".join(parts)
                event = await self._receive()
        finally:
            bodies.finish_of(peer, self.body_bytes)

    async def hold(self, answers: Answers, size: int) -> Room:
        """Take room for so much of the answer, before it is read; SERVER_BUSY when there is none in time."""
        self.room = room = answers.room()
        await room.take(min(size, answers.largest))
        return room

    def answered(self) -> None:
        """The answer is written, or there is none: let its room go, at once or when the client has taken it."""
        room, self.room = self.room, None
        if room is not None:
            cycle = self.scope.get(CYCLE)
            if cycle is None or not cycle.hold_until_taken(room):
                room.let_go()

    async def unless_gone(self, work: Coroutine[Any, Any, T], undo: Callable[[T], None] | None = None) -> T:
        """The result of ``work``, which is cancelled when the client goes away first, or when its key counts no longer.

        ``undo`` gets a result that came all the same: there is nobody to take it.
        """
        self.waits = True
        cycle = self.scope.get(CYCLE)
        if cycle is not None and cycle.disconnected:
            work.close()
            raise ClientGone
        watch = _Watch()
        if cycle is not None:
            cycle.tell_when_gone(watch.lose_client)
        else:
            watch.await_end(self.disconnected(), ClientGone())
        if self.principal is not None:  # nothing is handed out to one whose key was revoked meanwhile
            watch.await_end(self.principal.over(), ended())
        try:
            result = await work
        except asyncio.CancelledError:
            if watch.cause is None:
                raise
            watch.task.uncancel()
            raise watch.cause from None
        finally:
            watch.stop()
            if cycle is not None:
                cycle.tell_when_gone(None)
        if watch.cause is not None:
            watch.task.uncancel()
            if undo is not None:
                undo(result)
            raise watch.cause
        return result

    @property
    def is_gone(self) -> bool:
        """Whether the client is known to have gone. Costs nothing, unlike to wait for that beside the work."""
        cycle = self.scope.get(CYCLE)
        return cycle is not None and cycle.is_gone

    async def disconnected(self) -> None:
        """Wait until the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Watch:
    """Cancels the task in which it is made when there is a cause for that, until it is stopped."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.cause: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_stopped = False

    def await_end(self, end: Coroutine[Any, Any, None], cause: Exception) -> None:
        """Take the end of something for a cause."""
        waiting = asyncio.ensure_future(end)
        waiting.add_done_callback(lambda _: self._cancel(cause))
        self._waiting.append(waiting)

    def lose_client(self) -> None:
        """The client has gone."""
        self._cancel(ClientGone())

    def _cancel(self, cause: Exception) -> None:
        if self.cause is None and not self._is_stopped:
            self.cause = cause
            self.task.cancel()

    def stop(self) -> None:
        """Let the task be."""
        self._is_stopped = True
        for waiting in self._waiting:
            waiting.cancel()


def _any_queue(key: QueueKey) -> bool:  # noqa: ARG001 - nobody is asked who they are
    return True


class ClientGone(Exception):  # noqa: N818 - it is a state of affairs, not an error
    """The client has gone; nobody waits for an answer."""


def _may_be_json(content_type: bytes) -> bool:
    """Whether a body of this type is read as JSON: what says so, and what `curl -d` says when it is not told anything."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in (JSON, FORM) or kind.endswith(b"+json")


def _too_large(limit: int) -> SkepError:
    return SkepError(Code.PAYLOAD_TOO_LARGE, f"a body has at most {limit} bytes", limit=limit)


def _undecodable(error: Exception) -> SkepError:
    """What is wrong with a body that did not decode: not JSON at all, or not the JSON that was asked for."""
    text = why_no_json(error)
    if isinstance(error, msgspec.ValidationError):
        return SkepError(Code.INVALID_REQUEST, text)
    if isinstance(error, RecursionError):
        return SkepError(Code.INVALID_REQUEST, "the body is nested too deeply")
    return SkepError(Code.MALFORMED, f"the body is not JSON: {text}")
