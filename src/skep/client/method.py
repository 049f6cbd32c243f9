"""Methods of both clients: each states its call once, and the client sends it.

`@call` and `@pages` turn a function that builds a call into a method. The method of a `Client` returns the answer, the method of an
`AsyncClient` is a coroutine. Nothing here sends anything.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from msgspec import Struct, structs

from skep.client.exchange import ApiCall, ApiResponse, Request
from skep.client.outgoing import encode
from skep.client.reading import reader

P = ParamSpec("P")
T = TypeVar("T")
Answer = TypeVar("Answer")

PAGE_ROWS = 100
QUERY_DEFAULTS = {"stats": True, "descending": False, "dry_run": False}
"""The defaults of all queries. Any other argument that is not given is left out of the request."""


class Sends(Protocol):
    """A client that makes calls and waits for the answers."""

    def run(self, call: ApiCall[T]) -> T:
        """Make a call."""


class SendsAsync(Protocol):
    """A client that makes calls for asyncio."""

    async def run(self, call: ApiCall[T]) -> T:
        """Make a call."""


class PagedList(Struct, Generic[T], frozen=True):
    """A list that is asked for page by page."""

    ask: Callable[[Any], ApiCall[tuple[Sequence[T], Any]]]
    """The call for the page after a position, None for the first one. It gives the rows, and the position of the next page."""


class ClientCall(Generic[P, T]):
    """A method that makes one call."""

    def __init__(self, build: Callable[Concatenate[Any, P], ApiCall[T]]) -> None:
        def ask(sender: Sends, /, *said: P.args, **options: P.kwargs) -> T:
            return sender.run(build(sender, *said, **options))

        async def ask_async(sender: SendsAsync, /, *said: P.args, **options: P.kwargs) -> T:
            return await sender.run(build(sender, *said, **options))

        self._forms = _Forms(build, ask, ask_async, "", "")

    @overload
    def __get__(self, sender: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, sender: SendsAsync, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, sender: Sends, owner: type) -> Callable[P, T]: ...
    def __get__(self, sender: Sends | SendsAsync | None, owner: type) -> Any:
        return self._forms.of(sender, owner)


class ClientPages(Generic[P, T]):
    """A method that goes through pages, and asks for each when it is needed."""

    def __init__(self, build: Callable[Concatenate[Any, P], PagedList[T]]) -> None:
        def walk(sender: Sends, /, *said: P.args, **options: P.kwargs) -> Iterator[T]:
            asked, after = build(sender, *said, **options), None
            while True:
                rows, after = sender.run(asked.ask(after))
                yield from rows
                if after is None:
                    return

        async def walk_async(sender: SendsAsync, /, *said: P.args, **options: P.kwargs) -> AsyncIterator[T]:
            asked, after = build(sender, *said, **options), None
            while True:
                rows, after = await sender.run(asked.ask(after))
                for row in rows:
                    yield row
                if after is None:
                    return

        self._forms = _Forms(build, walk, walk_async, "Iterator", "AsyncIterator")

    @overload
    def __get__(self, sender: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, sender: SendsAsync, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, sender: Sends, owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, sender: Sends | SendsAsync | None, owner: type) -> Any:
        return self._forms.of(sender, owner)


class _Forms:
    """The two forms of a method. At its first use, a form takes the name, signature and docstring of the function that builds the call."""

    def __init__(self, build: Any, plain: Any, waiting: Any, plain_result: str, waiting_result: str) -> None:
        self._build = build
        self._made = {False: (plain, plain_result), True: (waiting, waiting_result)}
        self._dressed: dict[bool, Any] = {}

    def of(self, sender: object, owner: type) -> Any:
        """The form for a class of clients; bound to the client when one asks for it."""
        waits = inspect.iscoroutinefunction(getattr(owner, "run", None))
        function = self._dressed.get(waits)
        if function is None:
            function = self._dressed[waits] = _dressed(self._build, *self._made[waits])
        return function if sender is None else MethodType(function, sender)


def _dressed(build: Any, function: Any, result: str) -> Any:
    """The function as `help` and `inspect` show it: in place of ``ApiCall[T]`` or ``PagedList[T]`` it returns a T, or an iterator."""
    signature = inspect.signature(build)
    inner = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    returns = f"{result}[{inner}]" if result else inner
    dressed: Any = update_wrapper(function, build)
    dressed.__annotations__ = {**build.__annotations__, "return": returns}
    dressed.__signature__ = signature.replace(return_annotation=returns)
    return dressed


def call(build: Callable[Concatenate[Any, P], ApiCall[T]]) -> ClientCall[P, T]:
    """A method of both clients that makes this call."""
    return ClientCall(build)


def pages(build: Callable[Concatenate[Any, P], PagedList[T]]) -> ClientPages[P, T]:
    """A method of both clients that goes through these pages."""
    return ClientPages(build)


def get(path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> ApiCall[T]:
    """A call that reads something."""
    return ApiCall(Request("GET", path, query=texts(query or {})), _reader(kind))


def post(path: str, kind: type[T], body: object = None) -> ApiCall[T]:
    """A call that changes something."""
    return ApiCall(Request("POST", path, b"" if body is None else encode(body)), _reader(kind))


def put(path: str, kind: type[T], body: object, query: Mapping[str, Any] | None = None) -> ApiCall[T]:
    """A call that replaces something as a whole."""
    return ApiCall(Request("PUT", path, encode(body), query=texts(query or {})), _reader(kind))


def delete(path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> ApiCall[T]:
    """A call that deletes something."""
    return ApiCall(Request("DELETE", path, query=texts(query or {})), _reader(kind))


def part(asked: ApiCall[Answer], take: Callable[[Answer], T]) -> ApiCall[T]:
    """The call, with only a part of its answer as result."""
    return ApiCall(asked.request, lambda answer: take(asked.read(answer)))


def with_time(asked: ApiCall[T], seconds: float) -> ApiCall[T]:
    """The same call, with more time for the answer."""
    return ApiCall(structs.replace(asked.request, wait_seconds=seconds), asked.read)


class ListPage(Protocol):
    """The common part of all answers with a list of rows."""

    @property
    def after(self) -> Any:
        """The position of the next page; None on the last one."""


AnyPage = TypeVar("AnyPage", bound=ListPage)


def listed(
    path: str, kind: type[AnyPage], rows: Callable[[AnyPage], Sequence[T]], query: Mapping[str, Any] | None = None
) -> PagedList[T]:
    """A list that is asked for page by page."""

    def ask(after: Any) -> ApiCall[tuple[Sequence[T], Any]]:
        page = get(path, kind, {**(query or {}), "after": after, "limit": PAGE_ROWS})
        return part(page, lambda answer: (rows(answer), answer.after))

    return PagedList(ask)


_readers: dict[Any, Callable[[ApiResponse], Any]] = {}


def _reader(kind: type[T]) -> Callable[[ApiResponse], T]:
    if kind not in _readers:
        _readers[kind] = reader(kind)
    return _readers[kind]


def texts(query: Mapping[str, Any]) -> dict[str, str]:
    """The parameters as a URL writes them: in camel case, times as RFC 3339. None is left out."""
    return {_NAMES.get(name, name): _text(value) for name, value in query.items() if value is not None}


_NAMES = {
    "group": "consumerGroup",
    "source_queue": "sourceQueue",
    "transaction_id": "transactionId",
    "message_id": "messageId",
    "trace_id": "traceId",
    "dry_run": "dryRun",
    "due_after": "dueAfter",
    "due_before": "dueBefore",
    "expiring_within": "expiringWithin",
}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)
