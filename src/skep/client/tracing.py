"""Join the traces of a program that uses OpenTelemetry. In other programs nothing of OpenTelemetry is loaded.

A push is a span, and its messages carry its context, so that they are in the caller's trace; a consumer works on a message in
that trace. Names and attributes are those of OpenTelemetry's conventions for messaging. Without an SDK no span is made, but a
context that is there is carried on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from skep.client.error_texts import error_line
from skep.errors import SkepError
from skep.wire.messages import PoppedMessage
from skep.wire.traceparent import TRACEPARENT, TRACESTATE, TraceContext, trace_context

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext

_headers = msgspec.json.Decoder(dict[str, str])
_NOTHING: AbstractContextManager[None] = nullcontext()


class Headed(Protocol):
    """A message, as the wire tells of it or as functions get it."""

    @property
    def queue(self) -> str:
        """The queue of the message."""
        ...

    @property
    def headers(self) -> Any:
        """A mapping, or JSON as it stands."""
        ...


def _api() -> Any:
    """`opentelemetry.trace`, if the program has loaded it: if not, it cannot have an SDK either."""
    return sys.modules.get("opentelemetry.trace")


def _records(api: Any) -> bool:
    """Whether spans go anywhere."""
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider | api.NoOpTracerProvider)


def current_context() -> TraceContext | None:
    """The context of the span that is current."""
    api = _api()
    return None if api is None else _written(api.get_current_span().get_span_context())


def publishing(queue: str, messages: int) -> AbstractContextManager[Span | None]:
    """A span around a push."""
    api = _api()
    if api is None or not _records(api):
        return _NOTHING
    return _span(api, "publish", "send", queue, api.SpanKind.PRODUCER, messages)


def begin_publishing(queue: str, messages: int) -> Span | None:
    """The span of a push that is sent later, with others; `sent` ends it."""
    api = _api()
    if api is None or not _records(api):
        return None
    span: Span = api.get_tracer("skep").start_span(
        f"publish {queue}", kind=api.SpanKind.PRODUCER, attributes=_attributes("publish", "send", queue, messages)
    )
    return span


def within(span: Span | None) -> AbstractContextManager[Any]:
    """Let a span that was begun be the current one."""
    return nullcontext() if span is None else _api().use_span(span)


def sent(spans: Iterable[Span | None], error: BaseException | None = None) -> None:
    """End the spans of pushes that were sent together, or that this error kept from being sent."""
    for span in spans:
        if span is not None:
            if error is not None:
                failed(span, error)
            span.end()


def settling_popped(
    word: str, messages: Sequence[Headed], *, is_current: bool = True
) -> AbstractContextManager[Span | None]:
    """A span around settling messages, linked to the span in which each was pushed. Headers are read only when the program traces."""
    if not began() or not messages:
        return _NOTHING
    api, links = _api(), _links(_api(), [headers_of(one) for one in messages])
    return _span(api, word, "settle", messages[0].queue, api.SpanKind.CLIENT, len(messages), links, is_current)


def processing(queue: str, headers: Mapping[str, str], id_: str, attempt: int) -> AbstractContextManager[Span | None]:
    """A span around working on a message, in the trace that the message came from."""
    api = _api()
    if api is None:
        return _NOTHING
    return _processing(api, queue, headers, id_, attempt)


def working_on(message: PoppedMessage) -> AbstractContextManager[Span | None]:
    """`processing` for a popped message. Its headers are read only when the program traces."""
    if _api() is None:
        return _NOTHING
    return processing(message.queue, headers_of(message), message.id, message.attempt)


def working_on_all(messages: Sequence[PoppedMessage]) -> AbstractContextManager[Span | None]:
    """A span around working on messages together, linked to the span in which each was pushed."""
    if not messages or not began():
        return _NOTHING
    api, links = _api(), _links(_api(), [headers_of(one) for one in messages])
    return _span(api, "process", "process", messages[0].queue, api.SpanKind.CONSUMER, len(messages), links)


def began() -> int:
    """The start time for a span that is made only when the work has ended; 0 where no spans are made."""
    api = _api()
    return time.time_ns() if api is not None and _records(api) else 0


def received(since: int, messages: Sequence[Headed]) -> None:
    """A span for a pop that brought messages, linked to the span in which each was pushed. A pop without messages makes none.

    A pop over several queues makes one for each.
    """
    if not since:
        return
    by_queue: dict[str, list[Mapping[str, str]]] = {}
    for one in messages:
        by_queue.setdefault(one.queue, []).append(headers_of(one))
    for queue, headers in by_queue.items():
        _receive(queue, since, headers).end()


def not_received(queue: str, since: int, error: BaseException) -> None:
    """A span for a pop that failed."""
    if since:
        sent([_receive(queue, since, [])], error)


def failed(span: Span | None, error: BaseException | str) -> None:
    """Note on a span why its work failed: an exception, or a code."""
    api = _api()
    if span is None or api is None:
        return
    span.set_attribute("error.type", error if isinstance(error, str) else error_type(error))
    span.set_status(api.Status(api.StatusCode.ERROR, error if isinstance(error, str) else error_line(error)))


def error_type(error: BaseException) -> str:
    """The type of an error for OpenTelemetry: the code of a SkepError, else the class."""
    if isinstance(error, SkepError):
        return str(error.code)
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def headers_of(message: Headed) -> Mapping[str, str]:
    """The headers of a message, decoded where they are raw JSON."""
    headers = message.headers
    if isinstance(headers, Mapping):
        return headers
    raw = bytes(headers)
    return {} if raw in (b"", b"null") else _headers.decode(raw)


def _receive(queue: str, since: int, headers: Sequence[Mapping[str, str]]) -> Span:
    api = _api()
    span: Span = api.get_tracer("skep").start_span(
        f"receive {queue}", kind=api.SpanKind.CLIENT, links=_links(api, headers), start_time=since,
        attributes=_attributes("pop", "receive", queue, len(headers)),
    )  # fmt: skip
    return span


@contextmanager
def _span(
    api: Any,
    word: str,
    kind: str,
    queue: str,
    span_kind: Any,
    messages: int,
    links: list[Link] | None = None,
    is_current: bool = True,
) -> Iterator[Span]:
    attributes = _attributes(word, kind, queue, messages)
    name = f"{'publish' if kind == 'send' else kind} {queue}"
    tracer = api.get_tracer("skep")
    start = tracer.start_as_current_span if is_current else tracer.start_span
    with start(name, kind=span_kind, attributes=attributes, links=links or []) as span, _error_typed(span):
        yield span


@contextmanager
def _error_typed(span: Span) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        span.set_attribute("error.type", error_type(error))
        raise


@contextmanager
def _processing(api: Any, queue: str, headers: Mapping[str, str], id_: str, attempt: int) -> Iterator[Span | None]:
    from opentelemetry import context

    came = _span_context(api, headers)
    parent = None if came is None else api.set_span_in_context(api.NonRecordingSpan(came))
    if not _records(api):
        token = None if parent is None else context.attach(parent)
        try:
            yield None
        finally:
            if token is not None:
                context.detach(token)
        return
    attributes = _attributes("process", "process", queue, 1)
    attributes |= {"messaging.message.id": id_, "messaging.skep.attempt": attempt}
    with (
        api.get_tracer("skep").start_as_current_span(
            f"process {queue}", context=parent, kind=api.SpanKind.CONSUMER, attributes=attributes,
            links=[] if came is None else [api.Link(came)],
        ) as span,
        _error_typed(span),
    ):  # fmt: skip
        yield span


def _attributes(word: str, kind: str, queue: str, messages: int) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": "skep",
        "messaging.destination.name": queue,
        "messaging.operation.name": word,
        "messaging.operation.type": kind,
    }
    return found | {"messaging.batch.message_count": messages} if messages > 1 else found


def _links(api: Any, headers: Iterable[Mapping[str, str]]) -> list[Link]:
    return [api.Link(came) for one in headers if (came := _span_context(api, one)) is not None]


def _span_context(api: Any, headers: Mapping[str, str]) -> SpanContext | None:
    """The span that a message was pushed in."""
    found = trace_context(headers.get(TRACEPARENT), headers.get(TRACESTATE))
    if found is None:
        return None
    _, trace_id, span_id, flags = found.traceparent.split("-")[:4]
    state = api.TraceState.from_header([found.tracestate]) if found.tracestate else None
    made: SpanContext = api.SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(flags, 16)),
        trace_state=state,
    )
    return made


def _written(context: SpanContext) -> TraceContext | None:
    if not context.is_valid:
        return None
    text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return TraceContext(text, context.trace_state.to_header() or None)
