"""`skep.Worker`: functions that messages are handed to."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar, Unpack

from skep.client.async_client import AsyncClient
from skep.client.calls import Start
from skep.client.client import Client
from skep.client.settings import CLIENT_DEFAULTS, ClientOptions, client_settings
from skep.client.spelling import spelled_out
from skep.client.worker.consumer import Consumer
from skep.client.worker.loop import run_loops
from skep.client.worker.signatures import is_async
from skep.client.worker.source import Source
from skep.client.worker.subscription import Subscription, taken
from skep.clock import SystemClock
from skep.errors import Code, SkepError

F = TypeVar("F", bound=Callable[..., Any])

LEASE_SECONDS = 60.0
"""The lease time of a worker. It renews its leases, so this is how soon a crash is noticed, not how long a message may take."""


class Worker:
    """Pops messages, calls functions with them, and settles them. Give it a client, or the arguments of one."""

    @spelled_out(ClientOptions, CLIENT_DEFAULTS)
    def __init__(
        self,
        client: Client | AsyncClient | str | Sequence[str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._given = client if isinstance(client, Client | AsyncClient) else None
        self._settings = (
            client.settings if isinstance(client, Client | AsyncClient) else client_settings(client, options)
        )
        self._clock = client.clock if isinstance(client, Client | AsyncClient) else SystemClock()
        self._subscriptions: list[Subscription] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._starting = threading.Lock()
        self._has_run = False
        self._stop_at_start = False

    def on(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        concurrency: int = 8,
        batch: int = 10,
        type: Any = None,  # noqa: A002 - the word that users expect
        lease_seconds: float = LEASE_SECONDS,
        ordered: bool = True,
        start: Start | None = None,
    ) -> Callable[[F], F]:
        """Hand the messages of a queue to the decorated function, plain or async.

        It is called with the message, or with the payload as the type that its argument is annotated with (or as ``type``) and,
        if it takes two arguments, the message. A function that cannot be called so is refused with INVALID_REQUEST. Returning
        acks, an exception nacks; `Reject`, `Retry` and `RetryAt` say more. Messages of a partition come in order, up to
        ``concurrency`` partitions at a time. With ``ordered=False`` each message stands for itself: for unordered queues.
        """
        if not isinstance(queue, str):
            raise SkepError(Code.INVALID_REQUEST, 'worker.on takes the name of a queue first: @worker.on("orders")')

        def register(function: F) -> F:
            kind, wants_message = taken(function, type)
            self._subscriptions.append(
                Subscription(
                    queue=queue, function=function, group=group, partition=partition, concurrency=concurrency,
                    batch=batch, type=kind, wants_message=wants_message, is_async=is_async(function),
                    lease_seconds=lease_seconds, ordered=ordered, start=start,
                )
            )  # fmt: skip
            return function

        return register

    def run(self, *, until_empty: bool = False) -> int:
        """Work until `stop`, SIGTERM or SIGINT; with ``until_empty`` until no message can be popped. Returns the number of messages."""
        return asyncio.run(self._run(until_empty, signals=threading.current_thread() is threading.main_thread()))

    async def run_async(self, *, until_empty: bool = False) -> int:
        """As `run`, in a running event loop. The caller handles signals."""
        return await self._run(until_empty, signals=False)

    def stop(self) -> None:
        """Finish the messages that were begun, return the others to the queue, and end `run`. Any thread may call this.

        Called before the first `run`, it makes that return at once: a thread that is about to run cannot be missed.
        """
        with self._starting:
            loop, stopping = self._loop, self._stopping
            self._stop_at_start = not self._has_run
        if loop is not None and stopping is not None:
            with suppress(RuntimeError):  # the loop has just ended by itself
                loop.call_soon_threadsafe(stopping.set)

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping: long functions can check this and end early."""
        return self._stopping is not None and self._stopping.is_set()

    async def _run(self, until_empty: bool, signals: bool) -> int:
        if not self._subscriptions:
            raise SkepError(Code.INVALID_REQUEST, "the worker has no functions; decorate some with worker.on(queue)")
        stopping = self._begin(asyncio.get_running_loop())
        if signals:
            self._listen_to_signals(asyncio.get_running_loop(), stopping)
        try:
            async with AsyncExitStack() as stack:
                loops = [consumer.loop for consumer in await self._consumers(stack, stopping)]
                return await run_loops(loops, stopping, until_empty=until_empty)
        finally:
            self._loop = self._stopping = None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> asyncio.Event:
        stopping = asyncio.Event()
        with self._starting:
            if self._loop is not None:
                raise SkepError(Code.INVALID_REQUEST, "the worker is running already")
            self._loop, self._stopping = loop, stopping
            if self._stop_at_start:
                stopping.set()
            self._has_run, self._stop_at_start = True, False
        return stopping

    async def _consumers(self, stack: AsyncExitStack, stopping: asyncio.Event) -> list[Consumer]:
        threads = sum(one.concurrency for one in self._subscriptions if not one.is_async)
        client, blocking = await self._clients(stack)
        pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="skep-worker")
        stack.callback(pool.shutdown)
        consumers = []
        for one in self._subscriptions:
            source = Source(client, one.queue, one.lease_seconds, blocking)
            stack.push_async_callback(source.close)
            consumers.append(Consumer(one, source, pool, stopping))
        return consumers

    async def _clients(self, stack: AsyncExitStack) -> tuple[AsyncClient, Client]:
        """A client of each kind: the one that was given, and one like it. A client that is made here is closed here."""
        given = self._given
        client = given if isinstance(given, AsyncClient) else AsyncClient.like(self._settings, self._clock)
        blocking = given if isinstance(given, Client) else Client.like(self._settings, self._clock)
        if client is not given:
            await stack.enter_async_context(client)
        if blocking is not given:
            stack.enter_context(blocking)
        return client, blocking

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # no such thing on Windows
                loop.add_signal_handler(number, stopping.set)
