"""The link from Spark to the servers: the client's calls, with long retries while the servers are away.

A task that fails costs a batch and, on one machine, the whole query; so repeatable calls are retried for
`retrySeconds`. That is a deadline: the rest of it bounds each try, also with a server that accepts a connection and stays silent.
With several servers, calls are spread over all of them by what they are about (`skep.client.servers`): everybody reads the same part of a
log from the same server, which may have it in memory.
Each Python process has one link per connection, and with it its open sockets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, partial
from itertools import count
from typing import TypeVar
from urllib.parse import urlencode

import pyarrow as pa
from msgspec import Struct, structs

from skep.client import Client
from skep.client.exchange import ApiCall, ApiResponse, Request, path_part
from skep.client.failures import UnreachableError, error_of
from skep.client.log_calls import ARROW_END, LogCalls, bounds_of_logs, report_progress_of_logs
from skep.client.message_calls import forgotten_page
from skep.client.settings import ClientOptions, client_settings
from skep.client.transport import Body, SyncTransport, headers_of
from skep.clock import SystemClock
from skep.errors import SkepError
from skep.model import SealedPayloads
from skep.spark.options import ServerConnection
from skep.wire.forgetting import TombstoneView
from skep.wire.log import ARROW, LogBoundsResponse
from skep.wire.queues import ListedQueue

T = TypeVar("T")

PAUSE_SECONDS = 0.5
STREAM_SECONDS = 600.0
"""How long one stream may take. After that, the rest is requested again."""
USUAL_SECONDS = 30.0
"""The longest time of one try, and of silence in a stream."""
QUEUES_AT_ONCE = 500
"""The most queues in one request about many."""
SPREAD_SEQS = 50_000
"""With several servers, so many seqs of a log are read from one of them. The parts begin at the same seqs for all readers, and have whole
chunks of a server's memory. Fewer would make more requests; with more, the servers would have uneven shares of a small log."""
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
    sealed: SealedPayloads = "open"


class SpreadCalls(LogCalls):
    """The calls of readers of logs, to the server that comes first for what they are about."""

    def __init__(self, client: Client, about: Sequence[object]) -> None:
        self._client = client
        self.spread_by = " ".join(map(str, (client.settings.tenant, *about)))

    def run(self, call: ApiCall[T]) -> T:
        """Make a call."""
        return self._client.run(ApiCall(structs.replace(call.request, spread_by=self.spread_by), call.read))


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
        self.headers = headers_of(settings, says_tenant=False)
        bounded = SyncTransport(settings, time_left=self.time_left)
        self.client = Client(connection.urls, transport=bounded, **options)
        self._clock = SystemClock()
        self._servers = self.client.servers
        # A stream lasts as long as data arrives. Without retries (retrySeconds 0) the first try has the usual time.
        self.silence_seconds = min(USUAL_SECONDS, connection.retry_seconds or USUAL_SECONDS)
        self._transport = SyncTransport(settings, silence_seconds=self.silence_seconds)

    def time_left(self) -> float | None:
        """The seconds that the current call has left; None when there is no deadline."""
        deadline = self._deadline.get()
        return None if deadline is None else deadline - self._now()

    def about(self, *what: object) -> SpreadCalls:
        """Calls about something, all of them to the same server while that answers."""
        return SpreadCalls(self.client, what)

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
        """The bounds of many queues, some hundreds in a request; queues that do not exist are left out, here and below."""
        return self._of_many(queues, bounds_of_logs)

    def next_bounds(self, queue: str, after: int, wait_seconds: float) -> LogBoundsResponse:
        """Wait for a message after a seq, at most so many seconds (a long poll), and return the bounds. It is not retried."""
        return self.about(queue).log_bounds(queue, after=after, wait_seconds=wait_seconds)

    def first_seqs_at(self, queues: Sequence[str], at: datetime) -> dict[str, int]:
        """Of each queue, the seq of the first message that was created at or after a time; the next free seq when there is none."""
        found = self._of_many(queues, partial(bounds_of_logs, at=at))
        return {queue: one.at_seq for queue, one in found.items() if one.at_seq is not None}

    def last_seqs_within(self, firsts: Mapping[str, int], most_bytes: int) -> dict[str, int]:
        """Of each queue, the last seq up to which the payloads, from its first seq on, have at most so many bytes; at least the first seq."""

        def call(page: Sequence[str]) -> ApiCall[list[LogBoundsResponse]]:
            return bounds_of_logs(page, first={queue: firsts[queue] for queue in page}, max_bytes=most_bytes)

        found = self._of_many(list(firsts), call)
        return {queue: one.through_seq for queue, one in found.items() if one.through_seq is not None}

    def _of_many(
        self, queues: Sequence[str], call: Callable[[Sequence[str]], ApiCall[list[LogBoundsResponse]]]
    ) -> dict[str, LogBoundsResponse]:
        answers = (self.patiently(partial(self.about(page[0]).run, call(page))) for page in _pages(queues))
        return {one.queue: one for answer in answers for one in answer}

    def queue_names(self) -> list[str]:
        return [queue.name for queue in self.queues()]

    def queues(self) -> list[ListedQueue]:
        """All queues with their settings."""
        return self.patiently(lambda: list(self.client.queues(stats=False)))

    def progress_of(self, queues: Sequence[str], group: str) -> dict[str, int]:
        """The progress of a group in each queue (its committed offset); queues that the group does not read are left out."""
        found = self._of_many(queues, partial(bounds_of_logs, group=group))
        return {queue: one.progress_seq for queue, one in found.items() if one.progress_seq is not None}

    def report_progress(self, group: str, seqs: Mapping[str, int], *, archived: bool = False) -> None:
        """Set the progress of a group in some queues; it then follows a Spark query. With ``archived`` the messages are in a lake."""
        for page in _pages(list(seqs)):
            call = report_progress_of_logs(group, {queue: seqs[queue] for queue in page}, archived=archived)
            self.patiently(partial(self.about(page[0]).run, call))

    def forgotten(self, queue: str, after: int = 0) -> Iterator[TombstoneView]:
        """The seqs of a queue that were forgotten, those after a position of the list, asked for page by page."""
        position: int | None = after
        while position is not None:
            page = self.patiently(partial(self.client.run, forgotten_page(queue, position)))
            yield from page.forgotten
            position = page.after

    def read(self, log: Log) -> Iterator[pa.RecordBatch]:
        """The batches of a range, in order, each part from its server. A stream that breaks is requested again from where it broke."""
        for part in self.parts(log):
            yield from self._read(part, self._about_part(part))

    def _about_part(self, part: Log) -> SpreadCalls:
        return self.about(part.queue, (part.first - 1) // SPREAD_SEQS)

    @property
    def is_plain(self) -> bool:
        """Whether the servers need nothing but a socket: neither TLS nor a proxy."""
        return all(url in self._transport.plain for url in self._servers.urls)

    def first_url(self, about: SpreadCalls, target: str) -> str:
        """The URL of a target at the server that is asked first."""
        return self._servers.urls[next(iter(self._servers.candidates(self._clock, about.spread_by)), 0)] + target

    def url_of(self, part: Log) -> str:
        """The same for the messages of a part."""
        return self.first_url(self._about_part(part), _log_target(part, part.first))

    def parts(self, log: Log) -> Iterator[Log]:
        """A range in the parts that are read from one server each."""
        if len(self._servers.urls) == 1:
            yield log
            return
        first = log.first
        while first <= log.last:
            last = min(log.last, (first - 1) // SPREAD_SEQS * SPREAD_SEQS + SPREAD_SEQS)
            yield structs.replace(log, first=first, last=last)
            first = last + 1

    def _read(self, log: Log, about: SpreadCalls) -> Iterator[pa.RecordBatch]:
        position, deadline, is_retry = log.first, self._new_deadline(), False
        while position <= log.last:
            try:
                if is_retry:  # by a call that obeys the deadline: a stream ends only by its silence
                    self._knock(deadline, about)
                with self.stream(_log_target(log, position), about) as batches:
                    for batch in batches:
                        if batch.num_rows:
                            yield batch
                            position = batch.column("seq")[-1].as_py() + 1
                        deadline = self._new_deadline()
                return
            except SkepError as error:
                self._pause(error, deadline)
                is_retry = True

    def _knock(self, deadline: float, about: SpreadCalls) -> None:
        """Ask the server for its health; raise when none answers before the deadline."""
        before = self._deadline.set(deadline)
        try:
            about.run(ApiCall(Request("GET", "/health"), lambda _: None))
        finally:
            self._deadline.reset(before)

    def table(self, name: str, **query: str) -> list[pa.RecordBatch]:
        """The batches of one page of a table. The pages of a queue come from the same server."""
        about, tries = self.about(name, query.get("queue", "")), count()

        def ask() -> list[pa.RecordBatch]:
            if next(tries) and (deadline := self._deadline.get()) is not None:
                self._knock(deadline, about)
            with self.stream(f"/api/v1/tables/{name}{_query(list(query.items()))}", about) as batches:
                return list(batches)

        return self.patiently(ask)

    @contextmanager
    def stream(self, target: str, about: SpreadCalls) -> Iterator[pa.RecordBatchReader]:
        """Open an Arrow stream about something, from the first of its servers that answers. It is read while it arrives."""
        request = Request("GET", target, headers={"Accept": ARROW}, wait_seconds=STREAM_SECONDS)
        failure: SkepError | None = None
        for index in self._servers.candidates(self._clock, about.spread_by):
            with self._transport.opened(self._servers.urls[index], request) as answer:
                if isinstance(answer, Body):
                    self._servers.succeeded(index, about.spread_by)
                    try:
                        with pa.ipc.open_stream(answer) as batches:
                            yield batches
                        # Arrow takes a stream for whole that was cut between two batches.
                        if not answer.ends_with(ARROW_END):
                            raise UnreachableError("the answer ended too early", sent=True)
                        return
                    except (pa.ArrowInvalid, OSError, UnreachableError) as error:
                        self._servers.failed(index, self._clock.steady())
                        if isinstance(error, UnreachableError):
                            raise
                        raise UnreachableError(f"the answer ended too early: {error}", sent=True) from error
                failure = error_of(answer) if isinstance(answer, ApiResponse) else answer
            if not failure.retryable:
                raise failure
            self._servers.failed(index, self._clock.steady())
        raise failure or self._servers.closed_to_all(self._clock.steady())

    def open_sealed(self, queue: str, messages: pa.RecordBatch) -> pa.Array:
        """The payloads of sealed messages that were copied out of a log; null where one cannot be opened."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, messages.schema) as stream:
            stream.write_batch(messages)
        body, about = bytes(sink.getvalue()), self.about(queue)
        answer = self.patiently(lambda: about.open_sealed(queue, body))
        return pa.ipc.open_stream(answer).read_all().column("payload").combine_chunks()

    def push(self, body: bytes, read: Callable[[ApiResponse], T], query: dict[str, str], about: SpreadCalls) -> T:
        """Push an Arrow stream that may be sent twice."""
        call = ApiCall(Request("POST", "/api/v1/push", body, query, headers={"Content-Type": ARROW}), read)
        return self.patiently(lambda: about.run(call))

    def _pause(self, error: SkepError, deadline: float) -> None:
        """Wait before the next try. Raise when the error is final, or when there is no time for another try."""
        if not error.retryable:
            raise error
        if self._now() + PAUSE_SECONDS > deadline:
            raise self.given_up(error) from error
        self._sleep(PAUSE_SECONDS)


def _pages(queues: Sequence[str]) -> Iterator[Sequence[str]]:
    return (queues[first : first + QUEUES_AT_ONCE] for first in range(0, len(queues), QUEUES_AT_ONCE))


def link(connection: ServerConnection) -> Link:
    """The link of this process to a server; a forked process gets its own."""
    return _link(connection, os.getpid())


@lru_cache(maxsize=8)
def _link(connection: ServerConnection, process: int) -> Link:  # noqa: ARG001 - sockets are not shared over a fork
    return Link(connection)


def _log_target(log: Log, first: int) -> str:
    query = [("from", str(first)), ("to", str(log.last)), ("limit", str(log.last - first + 1))]
    query += [("columns", ",".join(log.columns))] if log.columns else []
    query += [("partition", key) for key in log.partitions]
    query += [("transactionId", one) for one in log.transaction_ids]
    query += [("traceId", one) for one in log.trace_ids]
    if log.compression != "none":
        query.append(("compression", log.compression))
    if log.sealed != "open":
        query.append(("sealed", log.sealed))
    return f"/api/v1/log/{path_part(log.queue)}{_query(query)}"


def _query(query: Sequence[tuple[str, str]]) -> str:
    return f"?{urlencode(query)}" if query else ""
