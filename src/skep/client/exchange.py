"""A request and its answer as plain data, so that everything but sending can be done and tested without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

if TYPE_CHECKING:
    from pyreqwest.bytes import Bytes

T = TypeVar("T")

OK = 200
ACCEPTED = 202
NO_CONTENT = 204
REDIRECTS = 300
ERRORS = 400
TOO_MANY = 429
SERVER_ERRORS = 500


class Request(Struct, frozen=True):
    """A request to send. ``repeatable`` says that sending it twice has the effect of sending it once (idempotent)."""

    method: str
    path: str
    body: bytes | None = None
    query: Mapping[str, str | Sequence[str]] | None = None
    repeatable: bool = True
    wait_seconds: float = 0.0
    """How long the server may hold the answer back, on top of the usual time."""
    headers: Mapping[str, str] | None = None
    """Headers that differ from those of all requests, such as the media type of a body that is not JSON."""
    says_who: bool = False
    """Whether the client says who it is (`skep.client.consumer`)."""
    waits_for_room: bool = True
    """Whether to retry while a queue is full. A caller that holds a lease meanwhile should not wait."""
    spread_by: str = ""
    """With several servers: requests of the same text go to the same server, those of different texts to different ones (see `Servers`).
    By default all go to the preferred server."""

    @property
    def target(self) -> str:
        """The path with its query."""
        if not self.query:
            return self.path
        query = [(name, said if isinstance(said, str) else tuple(said)) for name, said in self.query.items()]
        return f"{self.path}?{_written(tuple(query))}"


class ApiResponse(Struct, frozen=True):
    """The answer of a server. ``retry_after`` is read only for the statuses that use it."""

    status: int
    body: bytes | Bytes = b""
    retry_after: str | None = None


class ApiCall(Struct, Generic[T], frozen=True):
    """A request, and the function that reads its answer: into the result, or into the error to raise."""

    request: Request
    read: Callable[[ApiResponse], T]


@lru_cache(maxsize=256)
def _written(query: tuple[tuple[str, str | tuple[str, ...]], ...]) -> str:
    """A query as text of a URL. It is cached: consumers send the same query again and again."""
    return urlencode(query, doseq=True)


def path_part(name: str) -> str:
    """A name as one part of a path; it may contain a slash."""
    return quote(name, safe="")
