"""Join the traces of a program that uses OpenTelemetry. In other programs nothing of OpenTelemetry is loaded.

A push is a span, and its messages carry its context, so that they are in the caller's trace; a consumer works on a message in
that trace. Names and attributes are those of OpenTelemetry's conventions for messaging. Without an SDK nothing is observed, but a context
that is there is carried on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from msgspec import Raw, structs

from skep.client.exchange import Request
from skep.client.observation import (
    GROUP,
    MESSAGE_ID,
    PARTITION,
    Observation,
    Operation,
    instruments,
    records_spans,
    spans_api,
)
from skep.wire.messages import PushedMessage, PushItem
from skep.wire.traceparent import TRACEPARENT, TRACESTATE, TraceContext, context_in, trace_context

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext

_headers = msgspec.json.Decoder(dict[str, str])
_NOTHING: AbstractContextManager[None] = nullcontext()


class Headed(Protocol):
    """A message, as the wire tells of it or as functions get it."""

    @property
    def queue(self) -> str:
        """The queue of the message."""
        ...

    @property
    def partition(self) -> str:
        """Its partition there."""
        ...

    @property
    def id(self) -> str:
        """The id of the message."""
        ...

    @property
    def attempt(self) -> int:
        """Which delivery it is."""
        ...

    @property
    def headers(self) -> Any:
        """A mapping, or JSON as it stands."""
        ...


def current_context() -> TraceContext | None:
    """The context of the span that is current."""
    api = spans_api()
    return None if api is None else _written(api.get_current_span().get_span_context())


def carrying(request: Request) -> Request:
    """A request with the context of the span that is current, so that a server that traces has its span below."""
    context = current_context()
    if context is None or TRACEPARENT in (request.headers or {}):
        return request
    return structs.replace(request, headers={**(request.headers or {}), **context.headers})


def began() -> int:
    """The start time of an operation that is told of only when it has ended; 0 where nothing is observed."""
    return time.time_ns() if _observes() else 0


def publishing(url: str, queue: str, messages: int) -> AbstractContextManager[Observation | None]:
    """Observe a push to a server."""
    return _observed(Observation(Operation.PUBLISH, queue, url, messages, {})) if _observes() else _NOTHING


def begin_publishing(url: str, queue: str, messages: int) -> Observation | None:
    """Observe a push that is sent later, with others; `sent` ends it."""
    return Observation(Operation.PUBLISH, queue, url, messages, {}) if _observes() else None


def within(observation: Observation | None) -> AbstractContextManager[Any]:
    """Let the span of a push that was begun be the current one."""
    if observation is None or observation.span is None:
        return nullcontext()
    return cast("AbstractContextManager[Any]", spans_api().use_span(observation.span))


def sending(observation: Observation | None, items: Sequence[PushItem]) -> None:
    """A push has its messages, which count as sent from now on, and is told with their partition, if they have one in common.

    It is linked to the spans that messages carry instead of its own.
    """
    if observation is None or not items:
        return
    observation.is_tried = True
    if all(item.partition == items[0].partition for item in items):
        observation.tell(PARTITION, items[0].partition)
    if (span := observation.span) is not None:
        own = span.get_span_context().span_id
        for context in _carried(items):
            came = _made(spans_api(), context)
            if came.span_id != own:
                span.add_link(came)


def stored(observation: Observation | None, messages: Sequence[PushedMessage]) -> None:
    """Tell the id of the message of a push, if it is a single one."""
    if observation is not None and len(messages) == 1:
        observation.tell(MESSAGE_ID, messages[0].message_id)


def sent(observations: Iterable[Observation | None], error: BaseException | None = None) -> None:
    """End pushes that were sent together, and failed if there is an error."""
    for one in observations:
        if one is not None:
            if error is not None:
                one.fail(error)
            one.end()


def abandoned(observations: Iterable[Observation], error: BaseException) -> None:
    """End pushes that were never sent, since there was this error before."""
    told = list(observations)
    for one in told:
        one.is_tried = False
    sent(told, error)


def settling_popped(
    url: str, outcome: str, messages: Sequence[Headed], *, is_current: bool = True
) -> AbstractContextManager[Observation | None]:
    """Observe the settling of messages, linked to the span in which each was pushed. Headers are read only when the program traces."""
    if not messages or not _observes():
        return _NOTHING
    about = {"messaging.skep.outcome": outcome, **_common(messages)}
    links = _links([headers_of(one) for one in messages])
    observation = Observation(Operation.SETTLE, messages[0].queue, url, len(messages), about, links=links)
    return _observed(observation, is_current=is_current)


def working_on(url: str, message: Headed) -> AbstractContextManager[Observation | None]:
    """Observe the work on a message, in the trace that the message came from. Its headers are read only when the program traces."""
    return _NOTHING if spans_api() is None else _working_on(url, message)


def working_on_all(url: str, messages: Sequence[Headed]) -> AbstractContextManager[Observation | None]:
    """Observe the work on messages together, linked to the span in which each was pushed."""
    if not messages or not _observes():
        return _NOTHING
    links = _links([headers_of(one) for one in messages])
    queue = messages[0].queue
    return _observed(Observation(Operation.PROCESS, queue, url, len(messages), _common(messages), links=links))


def received(url: str, since: int, messages: Sequence[Headed]) -> None:
    """Tell of a pop that brought messages, linked to the span in which each was pushed. A pop without messages is not told of.

    A pop over several queues is told of once for each.
    """
    if not since:
        return
    by_queue: dict[str, list[Headed]] = {}
    for one in messages:
        by_queue.setdefault(one.queue, []).append(one)
    for queue, of_queue in by_queue.items():
        links = _links([headers_of(one) for one in of_queue])
        Observation(
            Operation.RECEIVE, queue, url, len(of_queue), _common(of_queue), links=links, since=since
        ).end()  # fmt: skip


def not_received(url: str, queue: str, group: str | None, since: int, error: BaseException) -> None:
    """Tell of a pop that failed."""
    if since:
        about = {} if group is None else {GROUP: group}
        sent([Observation(Operation.RECEIVE, queue, url, 0, about, since=since)], error)


def failed(observation: Observation | None, error: BaseException | str) -> None:
    """Note on an observation why its work failed: an exception, or a code."""
    if observation is not None:
        observation.fail(error)


def headers_of(message: Headed) -> Mapping[str, str]:
    """The headers of a message, decoded where they are raw JSON."""
    headers = message.headers
    if isinstance(headers, Mapping):
        return headers
    raw = bytes(headers)
    return {} if raw in (b"", b"null") else _headers.decode(raw)


def _observes() -> bool:
    """Whether the program traces, or collects metrics."""
    api = spans_api()
    return api is not None and (records_spans(api) or instruments() is not None)


@contextmanager
def _observed(observation: Observation, *, is_current: bool = True) -> Iterator[Observation]:
    span = observation.span
    current = nullcontext()
    if span is not None and is_current:
        current = spans_api().use_span(span, record_exception=False, set_status_on_exception=False)
    try:
        with current:
            yield observation
    except BaseException as error:
        observation.fail(error)
        if span is not None and isinstance(error, Exception):
            span.record_exception(error)
        raise
    finally:
        observation.end()


@contextmanager
def _working_on(url: str, message: Headed) -> Iterator[Observation | None]:
    from opentelemetry import context

    api = spans_api()
    came = _span_context(api, headers_of(message))
    parent = None if came is None else api.set_span_in_context(api.NonRecordingSpan(came))
    if not records_spans(api):
        token = None if parent is None else context.attach(parent)
        try:
            if instruments() is None:
                yield None
            else:
                with _observed(
                    Observation(Operation.PROCESS, message.queue, url, 1, _common([message]))
                ) as observation:
                    yield observation
        finally:
            if token is not None:
                context.detach(token)
        return
    about = {**_common([message]), "messaging.skep.attempt": message.attempt}
    links = []
    if came is not None:
        links.append(api.Link(came))
        around = api.get_current_span().get_span_context()
        if around.is_valid:  # it is not the parent, and would be lost
            links.append(api.Link(around))
    observation = Observation(Operation.PROCESS, message.queue, url, 1, about, links=links, parent=parent)
    with _observed(observation):
        yield observation


def _common(messages: Sequence[Headed]) -> dict[str, str | int]:
    """What popped messages have in common: their group, their partition if it is one, and the id of a single one."""
    first = messages[0]
    about: dict[str, str | int] = {GROUP: _group(first)}
    if all(one.partition == first.partition for one in messages):
        about[PARTITION] = first.partition
    if len(messages) == 1:
        about[MESSAGE_ID] = first.id
    return about


def _group(message: Any) -> str:
    """The group of a message. The structs of the wire and of the client name it differently."""
    found: str = message.consumer_group if hasattr(message, "consumer_group") else message.group
    return found


def _links(headers: Iterable[Mapping[str, str]]) -> list[Link]:
    api = spans_api()
    return [api.Link(came) for one in headers if (came := _span_context(api, one)) is not None]


def _span_context(api: Any, headers: Mapping[str, str]) -> SpanContext | None:
    """The span that a message was pushed in."""
    found = trace_context(headers.get(TRACEPARENT), headers.get(TRACESTATE))
    return None if found is None else _made(api, found)


def _carried(items: Iterable[PushItem]) -> Iterable[TraceContext]:
    """The contexts that messages carry, each once. Nobody has checked their headers yet."""
    found: dict[object, TraceContext | None] = {}
    for item in items:
        headers = cast("object", item.headers)
        if isinstance(headers, Mapping):
            parent, state = headers.get(TRACEPARENT), headers.get(TRACESTATE)
            if isinstance(parent, str) and parent not in found:
                found[parent] = trace_context(parent, state if isinstance(state, str) else None)
        elif isinstance(headers, Raw) and (text := bytes(headers)) not in found:
            found[text] = context_in(text)
    return [context for context in found.values() if context is not None]


def _made(api: Any, found: TraceContext) -> SpanContext:
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
