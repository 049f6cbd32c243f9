"""The link from Spark to the server: the client's calls, with long retries while the server is away.

A task that fails costs a batch and, on one machine, the whole query; so repeatable calls are retried for
`retrySeconds`. That is a deadline: the rest of it bounds each try, also with a server that accepts a connection and stays silent.
Each Python process has one link per connection, and with it its open sockets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import TypeVar
from urllib.parse import urlencode

import pyarrow as pa
from msgspec import Struct

from skep.client import Client
from skep.client.exchange import ApiCall, ApiResponse, Request, path_part
from skep.client.failures import UnreachableError, error_of
from skep.client.log_calls import bounds_of_logs
from skep.client.servers import Servers
from skep.client.settings import ClientOptions, client_settings
from skep.client.transport import Body, SyncTransport
from skep.clock import SystemClock
from skep.errors import Code, SkepError
from skep.spark.options import ServerConnection
from skep.wire.log import ARROW, LogBoundsResponse
from skep.wire.queues import ListedQueue

T = TypeVar("T")

PAUSE_SECONDS = 0.5
STREAM_SECONDS = 600.0
"""How long one stream may take. After that, the rest is requested again."""
USUAL_SECONDS = 30.0
"""The longest time of one try, and of silence in a stream."""
QUEUES_AT_ONCE = 500
"""The most queues in one request for bounds."""
NEVER_OPEN = 1_000_000
"""The failures that open the client's circuit breaker: so many that it never opens. The link itself decides how long it tries."""


class Log(Struct, frozen=True, kw_only=True):
    """A range of a queue's log, both ends inclusive, and the wanted columns."""

    queue: str
    first: int
    last: int
    columns: Sequence[str] = ()
    partitions: Sequence[str] = ()
    transaction_ids: Sequence[str] = ()
    trace_ids: Sequence[str] = ()
    compression: str = "none"


class Link:
    """A connection to one Skep, at one URL or several."""

    def __init__(
        self,
        connection: ServerConnection,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._now = now
        self._sleep = sleep
        self._deadline: ContextVar[float | None] = ContextVar("deadline", default=None)
        """The instant by which the current call must be answered."""
        # The link retries, not the client, so that one deadline holds for all tries.
        options: ClientOptions = {
            "tenant": connection.tenant, "token": connection.token, "attempts": 1, "breaker_failures": NEVER_OPEN,
            "timeout_seconds": USUAL_SECONDS,
        }  # fmt: skip
        settings = client_settings(connection.urls, options)
        bounded = SyncTransport(settings, time_left=self.time_left)
        self.client = Client(connection.urls, transport=bounded, **options)
        self._clock = SystemClock()
        self._servers = Servers(settings)
        # A stream lasts as long as data arrives. Without retries (retrySeconds 0) the first try has the usual time.
        silence = min(USUAL_SECONDS, connection.retry_seconds or USUAL_SECONDS)
        self._transport = SyncTransport(settings, silence_seconds=silence)

    def time_left(self) -> float | None:
        """The seconds that the current call has left; None when there is no deadline."""
        deadline = self._deadline.get()
        return None if deadline is None else deadline - self._now()

    def run(self, call: ApiCall[T]) -> T:
        """Make a call, with retries while the server is away."""
        return self.patiently(lambda: self.client.run(call))

    def patiently(self, ask: Callable[[], T]) -> T:
        """Repeat a call while the server is away, until there is an answer or `retrySeconds` have passed."""
        deadline = self._new_deadline()
        while True:
            before = self._deadline.set(deadline if self._connection.retry_seconds else None)
            try:
                return ask()
            except SkepError as error:
                self._pause(error, deadline)
            finally:
                self._deadline.reset(before)

    def _new_deadline(self) -> float:
        return self._now() + self._connection.retry_seconds

    def given_up(self, error: SkepError) -> SkepError:
        """The error after the last try, with its cure."""
        return SkepError(
            error.code,
            f"{error.sentence} This went on for {self._connection.retry_seconds:g} s. Is the server running, and are the URLs "
            f"({', '.join(self._connection.urls)}) right as seen from this machine? The option retrySeconds says how long "
            "to wait for it; a query with a checkpoint goes on where it was when it is started again.",
        )

    def bounds(self, queue: str) -> LogBoundsResponse:
        """The first and the last seq (offset) of a queue's log."""
        return self.patiently(lambda: self.client.log_bounds(queue))

    def bounds_of(self, queues: Sequence[str]) -> dict[str, LogBoundsResponse]:
        """The bounds of many queues, some hundreds in a request; queues that do not exist are left out."""
        pages = (queues[first : first + QUEUES_AT_ONCE] for first in range(0, len(queues), QUEUES_AT_ONCE))
        return {one.queue: one for page in pages for one in self.run(bounds_of_logs(page)).logs}

    def next_bounds(self, queue: str, after: int, wait_seconds: float) -> LogBoundsResponse:
        """Wait for a message after a seq, at most so many seconds (a long poll), and return the bounds. It is not retried."""
        return self.client.log_bounds(queue, after=after, wait_seconds=wait_seconds)

    def first_seq_at(self, queue: str, at: datetime) -> int:
        """The seq of the first message that was created at or after a time; the next free seq when there is none."""
        found = self.patiently(lambda: self.client.log_bounds(queue, at=at)).at_seq
        assert found is not None
        return found

    def last_seq_within(self, queue: str, first: int, most_bytes: int) -> int:
        """The last seq up to which the payloads, from the first seq on, have at most so many bytes; at least the first seq."""
        found = self.patiently(lambda: self.client.log_bounds(queue, first=first, max_bytes=most_bytes)).through_seq
        assert found is not None
        return found

    def queue_names(self) -> list[str]:
        return [queue.name for queue in self.queues()]

    def queues(self) -> list[ListedQueue]:
        """All queues with their settings."""
        return self.patiently(lambda: list(self.client.queues(stats=False)))

    def progress(self, queue: str, group: str) -> int:
        """The progress of a group in a queue (its committed offset); 0 when there is no such group."""

        def ask() -> int:
            try:
                return self.client.group(group, queue).queues[0].progress_seq
            except SkepError as error:
                if error.code is Code.GROUP_NOT_FOUND:
                    return 0
                raise

        return self.patiently(ask)

    def report_progress(self, queue: str, group: str, seq: int) -> None:
        """Set the progress of a group, which then follows a Spark query."""
        self.patiently(lambda: self.client.report_progress(queue, group, seq))

    def read(self, log: Log) -> Iterator[pa.RecordBatch]:
        """The batches of a range, in order. A stream that breaks is requested again from where it broke."""
        position, deadline, is_retry = log.first, self._new_deadline(), False
        while position <= log.last:
            try:
                if is_retry:  # by a call that obeys the deadline: a stream ends only by its silence
                    self._knock(deadline)
                with self.stream(f"/api/v1/log/{path_part(log.queue)}", _log_query(log, position)) as batches:
                    for batch in batches:
                        if batch.num_rows:
                            yield batch
                            position = batch.column("seq")[-1].as_py() + 1
                        deadline = self._new_deadline()
                return
            except SkepError as error:
                self._pause(error, deadline)
                is_retry = True

    def _knock(self, deadline: float) -> None:
        """Ask the server for its health; raise when it does not answer before the deadline."""
        before = self._deadline.set(deadline)
        try:
            self.client.run(ApiCall(Request("GET", "/health"), lambda _: None))
        finally:
            self._deadline.reset(before)

    def table(self, name: str, **query: str) -> list[pa.RecordBatch]:
        """The batches of one page of a table."""
        tries = count()

        def ask() -> list[pa.RecordBatch]:
            if next(tries) and (deadline := self._deadline.get()) is not None:
                self._knock(deadline)
            with self.stream(f"/api/v1/tables/{name}", list(query.items())) as batches:
                return list(batches)

        return self.patiently(ask)

    @contextmanager
    def stream(self, path: str, query: Sequence[tuple[str, str]]) -> Iterator[pa.RecordBatchReader]:
        """Open an Arrow stream, from the first server that answers. It is read while it arrives."""
        target = f"{path}?{urlencode(query)}" if query else path
        request = Request("GET", target, headers={"Accept": ARROW}, wait_seconds=STREAM_SECONDS)
        failure: SkepError | None = None
        for index in self._servers.candidates(self._clock):
            with self._transport.opened(self._servers.urls[index], request) as answer:
                if isinstance(answer, Body):
                    self._servers.succeeded(index)
                    try:
                        with pa.ipc.open_stream(answer) as batches:
                            yield batches
                            return
                    except (pa.ArrowInvalid, OSError) as error:
                        raise UnreachableError(f"the answer ended too early: {error}", sent=True) from error
                failure = error_of(answer) if isinstance(answer, ApiResponse) else answer
            if not failure.retryable:
                raise failure
            self._servers.failed(index, self._clock.steady())
        raise failure or self._servers.closed_to_all(self._clock.steady())

    def send(self, path: str, body: bytes, read: Callable[[ApiResponse], T], query: dict[str, str] | None = None) -> T:
        """Send an Arrow stream that may be sent twice."""
        return self.run(ApiCall(Request("POST", path, body, query, headers={"Content-Type": ARROW}), read))

    def _pause(self, error: SkepError, deadline: float) -> None:
        """Wait before the next try. Raise when the error is final, or when there is no time for another try."""
        if not error.retryable:
            raise error
        if self._now() + PAUSE_SECONDS > deadline:
            raise self.given_up(error) from error
        self._sleep(PAUSE_SECONDS)


def link(connection: ServerConnection) -> Link:
    """The link of this process to a server; a forked process gets its own."""
    return _link(connection, os.getpid())


@lru_cache(maxsize=8)
def _link(connection: ServerConnection, process: int) -> Link:  # noqa: ARG001 - sockets are not shared over a fork
    return Link(connection)


def _log_query(log: Log, first: int) -> list[tuple[str, str]]:
    query = [("from", str(first)), ("to", str(log.last)), ("limit", str(log.last - first + 1))]
    query += [("columns", ",".join(log.columns))] if log.columns else []
    query += [("partition", key) for key in log.partitions]
    query += [("transactionId", one) for one in log.transaction_ids]
    query += [("traceId", one) for one in log.trace_ids]
    if log.compression != "none":
        query.append(("compression", log.compression))
    return query
