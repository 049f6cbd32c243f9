"""Joins the traces of a program that uses OpenTelemetry; in one that does not, nothing of it is even loaded.

A push is a span, and its messages carry its context, so that their trace is the caller's; whoever works on a message does so in
that trace. Names and attributes are those of OpenTelemetry's conventions for messaging. Without an SDK no span is made, but a
context that is there is carried on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from skep.traceparent import TRACEPARENT, TRACESTATE, TraceContext, trace_context
from skep.wire.messages import PoppedMessage

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext

_headers = msgspec.json.Decoder(dict[str, str])
_NOTHING: AbstractContextManager[None] = nullcontext()


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


def publishing(queue: str, messages: int) -> AbstractContextManager[None]:
    """A span around a push."""
    api = _api()
    if api is None or not _records(api):
        return _NOTHING
    return _span(api, "publish", "send", queue, api.SpanKind.PRODUCER, messages)


def settling(queue: str, word: str, headers: Iterable[Mapping[str, str]]) -> AbstractContextManager[None]:
    """A span around saying what became of messages, linked to where each came from."""
    api = _api()
    if api is None or not _records(api):
        return _NOTHING
    links = _links(api, headers)
    return _span(api, word, "settle", queue, api.SpanKind.CLIENT, len(links), links)


def processing(queue: str, headers: Mapping[str, str], id_: str, attempt: int) -> AbstractContextManager[None]:
    """A span around working on a message, in the trace that the message came from."""
    api = _api()
    if api is None:
        return _NOTHING
    return _processing(api, queue, headers, id_, attempt)


def working_on(message: PoppedMessage) -> AbstractContextManager[None]:
    """The same for a message as the wire tells of it: its headers are read only when somebody traces."""
    if _api() is None:
        return _NOTHING
    raw = bytes(message.headers)
    headers = {} if raw in (b"", b"null") else _headers.decode(raw)
    return processing(message.queue, headers, message.id, message.attempt)


def began() -> int:
    """When something begins of which only its end tells whether it deserves a span; 0 where none is made."""
    api = _api()
    return time.time_ns() if api is not None and _records(api) else 0


def received(queue: str, since: int, headers: Iterable[Mapping[str, str]]) -> None:
    """A span for a pop that brought something, linked to where each message came from. One that waits in vain makes none."""
    api = _api()
    if not since or api is None:
        return
    links = _links(api, headers)
    span = api.get_tracer("skep").start_span(
        f"receive {queue}", kind=api.SpanKind.CLIENT, links=links, start_time=since,
        attributes=_attributes("pop", "receive", queue, len(links)),
    )  # fmt: skip
    span.end()


@contextmanager
def _span(
    api: Any, word: str, kind: str, queue: str, span_kind: Any, messages: int, links: list[Link] | None = None
) -> Iterator[None]:
    attributes = _attributes(word, kind, queue, messages)
    name = f"{'publish' if kind == 'send' else kind} {queue}"
    with api.get_tracer("skep").start_as_current_span(name, kind=span_kind, attributes=attributes, links=links or []):
        yield


@contextmanager
def _processing(api: Any, queue: str, headers: Mapping[str, str], id_: str, attempt: int) -> Iterator[None]:
    from opentelemetry import context

    came = _span_context(api, headers)
    parent = None if came is None else api.set_span_in_context(api.NonRecordingSpan(came))
    if not _records(api):
        token = None if parent is None else context.attach(parent)
        try:
            yield
        finally:
            if token is not None:
                context.detach(token)
        return
    attributes = _attributes("process", "process", queue, 1)
    attributes |= {"messaging.message.id": id_, "messaging.skep.attempt": attempt}
    with api.get_tracer("skep").start_as_current_span(
        f"process {queue}", context=parent, kind=api.SpanKind.CONSUMER, attributes=attributes,
        links=[] if came is None else [api.Link(came)],
    ):  # fmt: skip
        yield


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
