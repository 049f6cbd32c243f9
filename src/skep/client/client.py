# Written by dev/twins.py from async_client.py: change that, and run it.

"""`skep.Client`: the client for threads. It sends what the calls say and adds nothing but waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import msgspec
import stamina

from skep.client import calls
from skep.client.batcher import BUFFER_DEFAULTS, BufferOptions
from skep.client.breaker import BreakerState
from skep.client.buffer import Buffer
from skep.client.calls import POP_DEFAULTS, PopOptions
from skep.client.exchange import ApiCall
from skep.client.message import Message
from skep.client.messaging import Messaging
from skep.client.queue import Queue
from skep.client.retries import one_round, retry_hook
from skep.client.retry_log import tell_of_retries
from skep.client.servers import Servers
from skep.client.settings import (
    CLIENT_DEFAULTS,
    ClientOptions,
    ClientSettings,
    client_options,
    client_settings,
)
from skep.client.spelling import spelled_out
from skep.client.transport import SyncTransport
from skep.clock import Clock, SystemClock
from skep.errors import SkepError
from skep.ids import IdMint

T = TypeVar("T")


class Client(Messaging):
    """A client of one Skep, at one URL or several. Close it, or use it in a ``with``.

    Without a URL, address, tenant and token are those of ``SKEP_URL``, ``SKEP_TENANT`` and ``SKEP_TOKEN``.
    """

    @spelled_out(ClientOptions, CLIENT_DEFAULTS)
    def __init__(
        self,
        urls: str | Sequence[str] | None = None,
        *,
        clock: Clock | None = None,
        transport: SyncTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.settings = client_settings(urls, options)
        self.clock = clock or SystemClock()
        self._mint = IdMint(self.clock)
        self.servers = Servers(self.settings)
        self._transport = transport or SyncTransport(self.settings)

    @classmethod
    def like(cls, settings: ClientSettings, clock: Clock) -> Self:
        """A client with the settings of another, and connections and circuits of its own."""
        return cls(settings.urls, clock=clock, **client_options(settings))

    def for_tenant(self, tenant: str) -> Self:
        """A client for another tenant over the same connections. This client still closes them."""
        settings = msgspec.structs.replace(self.settings, tenant=tenant)
        transport = self._transport.for_tenant(settings)
        return type(self)(settings.urls, clock=self.clock, transport=transport, **client_options(settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; running calls fail."""
        self._transport.close()

    @property
    def circuits(self) -> dict[str, BreakerState]:
        """Every server's circuit, by URL: closed, open or half open."""
        return self.servers.states(self.clock.steady())

    # messages

    @spelled_out(PopOptions, POP_DEFAULTS)
    def consume(self, queue: str, **options: Unpack[PopOptions]) -> Iterator[Message]:
        """Loop over messages as they come, for ever. Settle each message, best by ``with message:``."""
        return self.queue(queue).consume(**options)

    def queue(self, name: str, *, partition: str | None = None, group: str | None = None) -> Queue:
        """A queue object, with defaults for the partition and group of its calls."""
        return Queue(self, name, partition=partition, group=group)

    @spelled_out(BufferOptions, BUFFER_DEFAULTS)
    def buffer(self, queue: str, **options: Unpack[BufferOptions]) -> Buffer:
        """A buffer: it takes messages at once and pushes them soon, many in one request."""
        return Buffer(self, self._mint, queue, options)

    # anything else

    def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: object = None,
        repeatable: bool = True,
    ) -> Any:
        """Call any route; the answer as plain Python values. Without ``repeatable``, it is not tried again in doubt."""
        return self.run(calls.plain(method, path, query, body, repeatable))

    def run(self, call: ApiCall[T]) -> T:
        """Make a call, with retries where it may be repeated."""
        try:
            return self._round(call)
        except SkepError as error:
            failure: SkepError | None = error
            decide = retry_hook(call.request, self.settings)
            if decide(error) is False:
                raise
        return self._again(call, failure, decide)

    def _again(self, call: ApiCall[T], failure: SkepError | None, decide: Any) -> T:
        # Only now is stamina asked, so that a call that goes well does not pay for it. The failure counts as its first try.
        settings = self.settings
        tell_of_retries()
        for attempt in stamina.retry_context(
            decide, attempts=settings.attempts, timeout=None, wait_initial=settings.backoff_seconds,
            wait_max=settings.max_retry_delay, wait_jitter=settings.backoff_seconds,
        ):  # fmt: skip
            with attempt:
                if failure is not None:
                    error, failure = failure, None
                    raise error
                return self._round(call)
        raise AssertionError("the last try returns or raises")

    def _round(self, call: ApiCall[T]) -> T:
        asking = one_round(call, self.servers, self.clock)
        try:
            url = next(asking)
            while True:
                url = asking.send(self._transport.send(url, call.request))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return] # the generator's return value is a T
