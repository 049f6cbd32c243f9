"""One operation of a client as OpenTelemetry sees it: a span, and the metrics of the conventions for messaging.

Nothing of OpenTelemetry is loaded here: what the program has loaded is used. A duration in the metrics is that of the span.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from skep import __version__
from skep.client.error_texts import error_line
from skep.errors import SkepError

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Link, Span

SCOPE = "skep"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions that names and attributes are of."""
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The boundaries that the conventions advise."""
GROUP, PARTITION = "messaging.consumer.group.name", "messaging.destination.partition.id"
MESSAGE_ID, ERROR_TYPE = "messaging.message.id", "error.type"

Attributes = dict[str, str | int]


class Operation(StrEnum):
    """An operation: its name, which is also in the name of its span."""

    PUBLISH = "publish"
    RECEIVE = "receive"
    PROCESS = "process"
    SETTLE = "settle"

    @property
    def type(self) -> str:
        """Its type in the conventions."""
        return "send" if self is Operation.PUBLISH else self.value


class Instruments:
    """The metrics of a program that collects some."""

    def __init__(self, provider: Any) -> None:
        meter = provider.get_meter(SCOPE, __version__, schema_url=SCHEMA_URL)
        self.durations: Histogram = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=BUCKETS_SECONDS,
        )
        self.processing: Histogram = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=BUCKETS_SECONDS,
        )
        self.sent: Counter = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self.consumed: Counter = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )


_instruments = lru_cache(maxsize=1)(Instruments)
"""The instruments of the program's provider: each may be made once."""


def spans_api() -> Any:
    """`opentelemetry.trace`, if the program has loaded it: if not, it cannot have an SDK either, not even for metrics."""
    return sys.modules.get("opentelemetry.trace")


def records_spans(api: Any) -> bool:
    """Whether spans go anywhere."""
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider | api.NoOpTracerProvider)


def instruments() -> Instruments | None:
    """The instruments; None when the program collects no metrics."""
    api = sys.modules.get("opentelemetry.metrics")
    if api is None:
        return None
    provider = api.get_meter_provider()
    # The providers of the API itself go nowhere.
    return None if type(provider).__module__.startswith("opentelemetry.metrics") else _instruments(provider)


@lru_cache(maxsize=64)
def server_attributes(url: str) -> Mapping[str, str | int]:
    """Where the server is."""
    parts = urlsplit(url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }


class Observation:
    """An operation that began at ``since``, in nanoseconds."""

    __slots__ = ("_attributes", "_error", "_instruments", "_operation", "is_tried", "messages", "since", "span")

    def __init__(
        self,
        operation: Operation,
        queue: str,
        url: str,
        messages: int,
        about: Mapping[str, str | int],
        *,
        links: Sequence[Link] = (),
        parent: Any = None,
        since: int = 0,
    ) -> None:
        """``about`` are further attributes of the span. Of these only the group is one of the metrics: partitions are without number."""
        api = spans_api()
        self._operation = operation
        self.messages = messages
        self.is_tried = operation is not Operation.PUBLISH
        """Whether a push has come as far as to be sent: what was only made does not count as sent."""
        self.since = since or time.time_ns()
        self._error: str | None = None
        self._instruments = instruments()
        self._attributes: Attributes = {
            "messaging.system": "skep",
            "messaging.destination.name": queue,
            "messaging.operation.name": operation.value,
            "messaging.operation.type": operation.type,
            **server_attributes(url),
        }
        self.span: Span | None = None
        if records_spans(api):
            kinds = {Operation.PUBLISH: api.SpanKind.PRODUCER, Operation.PROCESS: api.SpanKind.CONSUMER}
            count = {"messaging.batch.message_count": messages} if messages > 1 else {}
            self.span = api.get_tracer(SCOPE, __version__, schema_url=SCHEMA_URL).start_span(
                f"{operation} {queue}",
                context=parent,
                kind=kinds.get(operation, api.SpanKind.CLIENT),
                attributes={**self._attributes, **about, **count},
                links=list(links),
                start_time=self.since,
            )
        if GROUP in about:
            self._attributes[GROUP] = about[GROUP]

    def tell(self, name: str, value: str | int) -> None:
        """A further attribute of the span."""
        if self.span is not None:
            self.span.set_attribute(name, value)

    def fail(self, error: BaseException | str) -> None:
        """Note why the operation failed: an exception, or a code."""
        self._error = error if isinstance(error, str) else error_type(error)
        if self.span is not None:
            api = spans_api()
            self.span.set_attribute(ERROR_TYPE, self._error)
            self.span.set_status(
                api.Status(api.StatusCode.ERROR, error if isinstance(error, str) else error_line(error))
            )

    def end(self) -> None:
        """The operation is over."""
        ended = max(self.since, time.time_ns())
        if self.span is not None:
            self.span.end(ended)
        found = self._instruments
        if found is None:
            return
        told = dict(self._attributes)
        if self._error is not None:
            told[ERROR_TYPE] = self._error
        is_processing = self._operation is Operation.PROCESS
        (found.processing if is_processing else found.durations).record((ended - self.since) / 1e9, told)
        if self._operation in (Operation.PUBLISH, Operation.RECEIVE) and self.messages and self.is_tried:
            del told["messaging.operation.type"]
            (found.sent if self._operation is Operation.PUBLISH else found.consumed).add(self.messages, told)


def error_type(error: BaseException) -> str:
    """The type of an error for OpenTelemetry: the code of a SkepError, else the class."""
    if isinstance(error, SkepError):
        return str(error.code)
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
