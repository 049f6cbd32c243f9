"""OpenTelemetry's conventions for messaging: what spans and metrics of a client and a worker are called, and what they tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_globals
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

import skep
from skep import __version__
from skep.spec import load
from skep.testing.server import RunningServer, running_server

EXPORTER = InMemorySpanExporter()
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What a program that traces sees; the SDK is meant to be set once in a process, which runs other tests as well."""
    EXPORTER.clear()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    yield EXPORTER
    trace._TRACER_PROVIDER = None
    trace._TRACER_PROVIDER_SET_ONCE = Once()


@pytest.fixture
def measured() -> Iterator[InMemoryMetricReader]:
    """What a program that collects metrics sees."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    metrics.set_meter_provider(provider)
    yield reader
    provider.shutdown()
    metrics_globals._METER_PROVIDER = None
    metrics_globals._METER_PROVIDER_SET_ONCE = Once()


def worked(server: RunningServer, queue: str) -> str:
    """A message's whole way: pushed, popped by a worker of a group, worked on, and settled. Returns its id."""
    worker = skep.Worker(server.url)

    @worker.on(queue, group="billing")
    def handle(message: skep.Message) -> None: ...

    with skep.Client(server.url) as client:
        pushed = client.push(queue, {"n": 1}, partition="customer-42")
        worker.run(until_empty=True)
    return pushed.messages[0].message_id


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_spans_of_a_message_are_as_the_conventions_say(server: RunningServer, spans: InMemorySpanExporter) -> None:
    id_ = worked(server, "orders")

    found = {span.name: span for span in spans.get_finished_spans()}
    common = {
        "messaging.system": "skep", "messaging.destination.name": "orders", "server.address": "127.0.0.1", "server.port": server.port,
        "messaging.destination.partition.id": "customer-42", "messaging.message.id": id_,
    }  # fmt: skip
    group = {"messaging.consumer.group.name": "billing"}
    names = {"publish": "send", "receive": "receive", "process": "process", "settle": "settle"}
    more: dict[str, dict[str, Any]] = {
        "publish": {}, "receive": group, "process": group | {"messaging.skep.attempt": 1}, "settle": group | {"messaging.skep.outcome": "completed"},
    }  # fmt: skip
    assert found.keys() == {f"{name} orders" for name in names}
    for name, kind in names.items():
        operation = {"messaging.operation.name": name, "messaging.operation.type": kind}
        span = found[f"{name} orders"]
        assert attributes_of(span) == common | operation | more[name]
        scope = span.instrumentation_scope
        assert scope is not None
        assert (scope.name, scope.version, scope.schema_url) == (
            "skep",
            __version__,
            "https://opentelemetry.io/schemas/1.44.0",
        )
    kinds = [found[f"{name} orders"].kind for name in names]
    assert kinds == [trace.SpanKind.PRODUCER, trace.SpanKind.CLIENT, trace.SpanKind.CONSUMER, trace.SpanKind.CLIENT]
    sent = found["publish orders"].get_span_context()
    assert sent is not None
    for name in ("receive", "process", "settle"):
        assert [link.context.span_id for link in found[f"{name} orders"].links] == [sent.span_id]


def test_a_batch_tells_its_number_and_no_id(server: RunningServer, spans: InMemorySpanExporter) -> None:
    with skep.Client(server.url) as client:
        client.push("batch", [skep.NewMessage(n, partition=str(n)) for n in range(2)])
        client.push("batch", [1, 2], partition="one")
        client.ack(*client.pop("batch", batch=4))

    several, one, popped, settled = (attributes_of(span) for span in spans.get_finished_spans())
    counts = [each["messaging.batch.message_count"] for each in (several, one, popped, settled)]
    assert counts == [2, 2, 4, 4]
    assert one["messaging.destination.partition.id"] == "one"
    assert not any("messaging.destination.partition.id" in each for each in (several, popped, settled))
    assert not any("messaging.message.id" in each for each in (several, one, popped, settled))
    assert popped["messaging.consumer.group.name"] == "__QUEUE_MODE__"


def test_messages_of_a_transaction_tell_their_ids(server: RunningServer, spans: InMemorySpanExporter) -> None:
    with skep.Client(server.url) as client, client.transaction() as tx:
        tx.push("tx-ids", [1, 2])
        tx.push("tx-ids", 3, partition="p")

    several, one = (attributes_of(span) for span in spans.get_finished_spans())
    assert "messaging.message.id" not in several
    assert one["messaging.message.id"] == tx.pushed[2].message_id
    assert one["messaging.destination.partition.id"] == "p"


def test_what_fails_tells_its_group(server: RunningServer, spans: InMemorySpanExporter) -> None:
    with skep.Client(server.url) as client, pytest.raises(skep.SkepError):
        client.pop("never-made", group="billing")

    [span] = spans.get_finished_spans()
    found = attributes_of(span)
    assert (found["messaging.consumer.group.name"], found["error.type"]) == ("billing", "QUEUE_NOT_FOUND")


CARRIED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that a span is linked to."""
    return [link.context.span_id for link in span.links]


def test_a_push_is_linked_to_the_spans_that_its_messages_bring(
    server: RunningServer, spans: InMemorySpanExporter
) -> None:
    brought = {"traceparent": CARRIED, "tracestate": "a=1"}
    several = [skep.NewMessage(1, headers=brought), skep.NewMessage(2), skep.NewMessage(3, headers=brought)]
    with skep.Client(server.url) as client, client.transaction() as tx:
        client.push("brought", several)
        tx.push("brought", several)

    at_once, within = spans.get_finished_spans()
    assert linked(at_once) == linked(within) == [0xB7AD6B7169203331]
    assert at_once.links[0].context.trace_state.to_header() == "a=1"


@pytest.mark.parametrize("headers", [{"traceparent": 5}, {"traceparent": CARRIED, "tracestate": 5}])
def test_headers_that_are_no_texts_are_refused_as_without_tracing(
    server: RunningServer, spans: InMemorySpanExporter, headers: dict[str, Any]
) -> None:
    with skep.Client(server.url) as client:
        with pytest.raises(skep.SkepError) as at_once:
            client.push("unsound", 1, headers=headers)
        with pytest.raises(skep.SkepError) as within, client.transaction() as tx:
            tx.push("unsound", 1, headers=headers)

    assert at_once.value.code == within.value.code == "INVALID_HEADERS"
    assert [attributes_of(span)["error.type"] for span in spans.get_finished_spans()] == ["INVALID_HEADERS"] * 2


def test_a_buffer_links_its_push_to_the_spans_around_each_message(
    server: RunningServer, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("shop")
    with skep.Client(server.url) as client, client.buffer("linked") as buffer:
        buffer.push(0)
        with tracer.start_as_current_span("order placed") as placed:
            buffer.push(1)
            buffer.push(2)

    pushes = [span for span in spans.get_finished_spans() if span.name == "publish linked"]
    assert {id_ for push in pushes for id_ in linked(push)} == {placed.get_span_context().span_id}


FLOW = """
app Flow {
  queue Placed {
    then: queue Billed {}
    then: queue Shipped {}
  }
  queue Billed {}
  queue Shipped {}
}
"""


def test_follow_up_messages_carry_the_span_of_their_push(server: RunningServer, spans: InMemorySpanExporter) -> None:
    app = skep.App(load(FLOW, "flow.skep"))
    with skep.Client(server.url) as client:
        client.apply(app.spec)
        client.push("Placed", {"n": 1}, partition="customer-42")
        app.work(server.url, until_empty=True)
        carried = {queue: client.pop(queue)[0].headers["traceparent"].split("-")[2] for queue in ("Billed", "Shipped")}

    found = {span.name: span for span in spans.get_finished_spans()}
    for queue, span_id in carried.items():
        push = found[f"publish {queue}"]
        assert push.context is not None
        assert f"{push.context.span_id:016x}" == span_id
        assert "messaging.destination.partition.id" in attributes_of(push)
        assert linked(push) == []


def test_work_within_another_span_is_linked_to_it(server: RunningServer, spans: InMemorySpanExporter) -> None:
    with skep.Client(server.url) as client:
        client.push("nested", 1)
        with trace.get_tracer("shop").start_as_current_span("request") as around:
            for message in client.pop("nested"):
                with message:
                    pass

    found = {span.name: span for span in spans.get_finished_spans()}
    push = found["publish nested"].get_span_context()
    work = found["process nested"]
    assert push is not None
    assert work.parent is not None
    assert work.parent.span_id == push.span_id
    assert linked(work) == [push.span_id, around.get_span_context().span_id]


def points(reader: InMemoryMetricReader) -> dict[str, Sequence[Any]]:
    """The data points of each metric."""
    found = reader.get_metrics_data()
    assert found is not None
    [of_resource] = found.resource_metrics
    [of_scope] = of_resource.scope_metrics
    scope = of_scope.scope
    assert (scope.name, scope.version, scope.schema_url) == (
        "skep",
        __version__,
        "https://opentelemetry.io/schemas/1.44.0",
    )
    return {metric.name: metric.data.data_points for metric in of_scope.metrics}


def give_up(client: skep.Client) -> None:
    """A transaction that is never committed."""
    with client.transaction() as tx:
        tx.push("given-up", [1, 2])
        raise KeyError


def test_messages_that_never_left_do_not_count_as_sent(server: RunningServer, measured: InMemoryMetricReader) -> None:
    with skep.Client(server.url) as client:
        with pytest.raises(KeyError):
            give_up(client)
        with pytest.raises(skep.SkepError):
            client.push("given-up", b"bytes without a type")
        with client.transaction() as tx:
            tx.push("given-up", 3)
        with client.buffer("given-up") as buffer:
            buffer.push(4)

    sent = points(measured)["messaging.client.sent.messages"]
    assert [(point.attributes.get("error.type"), point.value) for point in sent] == [(None, 2)]


@pytest.mark.parametrize("traces", [False, True], ids=["metrics alone", "with spans"])
def test_metrics_are_as_the_conventions_say(
    server: RunningServer, measured: InMemoryMetricReader, request: pytest.FixtureRequest, traces: bool
) -> None:
    spans = request.getfixturevalue("spans") if traces else None
    queue = f"measured-{traces}"
    worked(server, queue)
    with skep.Client(server.url) as client, pytest.raises(skep.SkepError):
        client.push(queue, [1, 2], partition="\0")

    found = points(measured)
    common = {
        "messaging.system": "skep",
        "messaging.destination.name": queue,
        "server.address": "127.0.0.1",
        "server.port": server.port,
    }
    group = {"messaging.consumer.group.name": "billing"}

    def of(name: str, kind: str | None = None, **more: str) -> dict[str, Any]:
        typed = {} if kind is None else {"messaging.operation.type": kind}
        return common | {"messaging.operation.name": name} | typed | more

    assert {name: [dict(point.attributes) for point in given] for name, given in found.items()} == {
        "messaging.client.operation.duration": [
            of("publish", "send"), of("receive", "receive") | group, of("settle", "settle") | group,
            of("publish", "send") | {"error.type": "INVALID_PARTITION"},
        ],
        "messaging.client.sent.messages": [of("publish"), of("publish") | {"error.type": "INVALID_PARTITION"}],
        "messaging.client.consumed.messages": [of("receive") | group],
        "messaging.process.duration": [of("process", "process") | group],
    }  # fmt: skip
    assert [point.value for point in found["messaging.client.sent.messages"]] == [1, 2]
    assert [point.value for point in found["messaging.client.consumed.messages"]] == [1]
    for name in ("messaging.client.operation.duration", "messaging.process.duration"):
        assert {point.explicit_bounds for point in found[name]} == {BUCKETS}
    if spans is not None:
        [process] = [span for span in spans.get_finished_spans() if span.name == f"process {queue}"]
        assert process.end_time is not None
        assert process.start_time is not None
        [duration] = found["messaging.process.duration"]
        assert duration.sum == (process.end_time - process.start_time) / 1e9
