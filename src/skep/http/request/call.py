"""A request and its answer, as thin as ASGI allows: no framework work per request.

A handler is ``async (Call) -> Answer``. It reads the call and may raise `SkepError`. The endpoint around it
turns the error into an answer, and sends the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from skep.access.principal import Principal, ended
from skep.config import HttpLimits
from skep.engine.answers import Answers, Room
from skep.errors import Code, SkepError
from skep.http.pieces import Pieces
from skep.http.request.bodies import Bodies
from skep.http.request.scope import CYCLE, HEADERS, REPEATED, name_headers
from skep.model import DEFAULT_TENANT, QueueKey
from skep.model.key import AuditOutcome, Verb
from skep.strict_json import (
    QUICK_BYTES,
    check_depth,
    check_depth_of_body,
    look_for_repeated_key,
    may_repeat_keys,
    why_no_json,
)
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
    body: bytes | Pieces = b""
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

    outcome: AuditOutcome = AuditOutcome.DONE
    verb: str | None = None
    target: str | None = None
    count: int | None = None
    before: str | None = None
    after: str | None = None


class Call:
    """A request, as its handler sees it."""

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
        """The bytes of the body that were read and counted; they are given back to `Bodies`."""
        self._query: dict[str, str] | None = None
        self.room: Room | None = None
        """The reserved memory of an answer with payloads, until the client has read the answer."""
        self.waits = False
        """Whether the call is a long poll: its duration says nothing about the server's speed."""
        self.principal: Principal | None = None
        """The caller; None on a server that asks for no keys."""
        self.checked = False
        """Whether the permissions of the principal were checked."""
        self.is_guarded = False
        """Whether the route is open to anyone on a server with keys; its answers then tell little."""
        self.touched: set[str] | None = None
        """The names of the queues that the call used, collected for the audit log."""
        self.deed: Deed | None = None
        """The entry for the audit log, if the call is audited."""
        self._tenant: str | None = None
        self._verb: Verb | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first header of this (lower case) name."""
        return self._headers.get(name)

    def single_header(self, name: bytes, code: Code) -> bytes | None:
        """The header of this (lower case) name. A header given twice is refused: a proxy may have read the other one."""
        if name in self.scope[REPEATED]:
            raise SkepError(code, f"the header {name.decode().title()} is given twice")
        return self._headers.get(name)

    @property
    def peer(self) -> str:
        """The address of the client."""
        return self._bodies.peers.of(self.scope)

    @property
    def is_https(self) -> bool:
        """Whether the caller came by TLS."""
        return self._bodies.peers.is_https(self.scope)

    @property
    def tenant(self) -> str:
        """The tenant of the call: the one that the request names, if the principal has a grant there, else the principal's own."""
        if self._tenant is None:
            named = self._named_tenant()
            if self.principal is None:
                self._tenant = DEFAULT_TENANT if named is None else named
            else:
                self._tenant = self.principal.tenant(named)
        return self._tenant

    @property
    def tenant_or_none(self) -> str | None:
        """The tenant; None when the request names one that is malformed or not allowed."""
        try:
            return self.tenant
        except SkepError:
            return None

    def _named_tenant(self) -> str | None:
        """The tenant that the query names, if the route allows that, else the one in the header."""
        if self.tenant_in is not None and (named := self.query.get(self.tenant_in)):
            return named
        if TENANT_HEADER not in self._headers:
            return None
        named_by_header = self.single_header(TENANT_HEADER, Code.INVALID_REQUEST)
        assert named_by_header is not None
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
        """Fill in the audit entry: the target, the count, and the values before and after."""
        if self.deed is not None:
            outcome = AuditOutcome.DRY_RUN if dry_run else AuditOutcome.DECLINED if declined else AuditOutcome.DONE
            self.deed = Deed(outcome, verb, target, count, before, after)

    # permissions

    def enter(self, principal: Principal | None, verb: Verb | None) -> None:
        """Set the principal that was let in, None where nobody is asked; ``verb`` is the verb of the route, or of the request."""
        self.principal = principal
        self._verb = verb

    def name_tenant(self, tenant: str) -> None:
        """Set the tenant of the call, where the body names it; FORBIDDEN when the principal has no grant there."""
        self._tenant = tenant if self.principal is None else self.principal.tenant(tenant)

    def queue(self, name: str, verb: Verb | None = None) -> QueueKey:
        """The queue of this name, if the caller may use it; ``verb`` replaces the verb of the route."""
        key = QueueKey(name, self.tenant)
        self.check(key, verb)
        return key

    def check(self, key: QueueKey, verb: Verb | None = None) -> None:
        """Refuse the queue unless the caller may do this with it."""
        if self.touched is not None:
            self.touched.add(key.name)
        principal = self.principal
        if principal is not None:
            asked = verb or self._verb
            assert asked is not None
            principal.check(asked, key.tenant, key.name)
            self.checked = True

    def may(self, key: QueueKey) -> bool:
        """Whether the caller may do this with a queue. This does not count as a check: the handler still has to make one."""
        principal, verb = self.principal, self._verb
        return principal is None or verb is None or principal.may(verb, key.tenant, key.name)

    def check_tenant(self, verb: Verb) -> None:
        """Raise FORBIDDEN unless the caller has a grant for all queues of the tenant: the call is about no single queue."""
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
        """Whether the caller may see figures of the whole server, over all tenants: its load, its spool, its connections."""
        return self.principal is None or self.principal.may_everywhere(Verb.READ)

    # other parts of the request

    @property
    def trace_context(self) -> TraceContext | None:
        """The caller's trace context (traceparent)."""
        return context_of(self.scope["headers"]) if b"traceparent" in self._headers else None

    def path(self, name: str) -> str:
        """A part of the path. Paths are matched before they are unquoted, so a part may contain a slash."""
        try:
            return unquote(self.scope["path_params"][name], errors="strict")
        except UnicodeDecodeError:
            raise SkepError(Code.INVALID_REQUEST, f"{name} in the path is not UTF-8") from None

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; each may be given once, except those that the route allows several times (see `values`)."""
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
        """All values of a parameter that may be given several times."""
        return [value for given, value in self._pairs if given == name] if name in self.query else []

    async def json(self, decoder: msgspec.json.Decoder[T], empty: T | None = None, *, levels_above: int = 0) -> T:
        """The body decoded as a struct, or ``empty`` when an empty body is allowed; see `read_json`."""
        body = await self.json_body()
        return empty if not body and empty is not None else await self.read_json(body, decoder, levels_above)

    def json_body(self) -> Coroutine[Any, Any, bytes]:
        """The whole body; its content type must be JSON or missing."""
        kind = self._headers.get(b"content-type")
        if kind is not None and kind != JSON and not _may_be_json(kind):
            raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
        return self.body()

    async def read_json(self, body: bytes, decoder: msgspec.json.Decoder[T], levels_above: int) -> T:
        """A body decoded as a struct.

        Raw parts of the struct are left as they are. They are only checked to be JSON in UTF-8, not nested too deeply and without
        a key given twice. Payloads that stand some ``levels_above`` the body's own may be as deep as any others.
        """
        try:
            value = decoder.decode(body)
            # The decoder skips over raw parts without looking at the bytes of their strings.
            if not body.isascii():
                body.decode()
            if may_repeat_keys(body):
                await look_for_repeated_key(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _undecodable(error) from None
        if len(body) <= QUICK_BYTES:
            check_depth(body, self._limits.json_depth, levels_above)
        else:
            await check_depth_of_body(body, self._limits.json_depth, levels_above)
        return value

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body, refused as soon as it is too long. The connection checks that it comes in time."""
        headers = self._headers
        if headers.get(b"content-encoding") not in (None, b"identity"):
            raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "a compressed body is not taken")
        if limit is None:
            limit = self._limits.body_bytes
        announced = headers.get(b"content-length")
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
        """Reserve memory for the answer before it is read from the store; SERVER_BUSY when there is none in time."""
        self.room = room = answers.room()
        await room.take(min(size, answers.largest))
        return room

    def answered(self) -> None:
        """The answer is written, or there is none: free its reserved memory, at once or when the client has read it."""
        room, self.room = self.room, None
        if room is not None:
            cycle = self.scope.get(CYCLE)
            if cycle is None or not cycle.hold_until_taken(room):
                room.let_go()

    async def unless_gone(self, work: Coroutine[Any, Any, T], undo: Callable[[T], None] | None = None) -> T:
        """The result of ``work``. The work is cancelled when the client disconnects first, or when its key is revoked.

        ``undo`` gets a result that came all the same, since no client takes it.
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
        if self.principal is not None:  # a client whose key was revoked meanwhile gets no messages
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
        """Whether the client is known to have gone. This costs nothing, unlike waiting for it."""
        cycle = self.scope.get(CYCLE)
        return cycle is not None and cycle.is_gone

    async def disconnected(self) -> None:
        """Wait until the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Watch:
    """Cancels the task that made it when the client goes or the key is revoked, until it is stopped."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.cause: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_stopped = False

    def await_end(self, end: Coroutine[Any, Any, None], cause: Exception) -> None:
        """Cancel the task with this cause when ``end`` returns."""
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
        """Stop watching."""
        self._is_stopped = True
        for waiting in self._waiting:
            waiting.cancel()


def _any_queue(key: QueueKey) -> bool:  # noqa: ARG001 - nobody is asked who they are
    return True


class ClientGone(Exception):  # noqa: N818 - it is a state of affairs, not an error
    """The client has gone; nobody waits for an answer."""


def _may_be_json(content_type: bytes) -> bool:
    """Whether a body of this type is read as JSON: JSON types, and the type that `curl -d` sends by default."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in (JSON, FORM) or kind.endswith(b"+json")


def _too_large(limit: int) -> SkepError:
    return SkepError(Code.PAYLOAD_TOO_LARGE, f"a body has at most {limit} bytes", limit=limit)


def _undecodable(error: Exception) -> SkepError:
    """The error of a body that did not decode: it is not JSON, or not the expected JSON."""
    text = why_no_json(error)
    if isinstance(error, msgspec.ValidationError):
        return SkepError(Code.INVALID_REQUEST, text)
    if isinstance(error, RecursionError):
        return SkepError(Code.INVALID_REQUEST, "the body is nested too deeply")
    return SkepError(Code.MALFORMED, f"the body is not JSON: {text}")
