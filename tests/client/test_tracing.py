"""Traces of a program that uses OpenTelemetry: a message joins them, and so does whoever works on it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

import skep
from skep.testing.server import RunningServer, running_server

EXPORTER = InMemorySpanExporter()
TRACER = trace.get_tracer("test")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def sdk() -> Iterator[None]:
    """An SDK for these tests alone: it is meant to be set once in a process, which runs other tests as well."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    yield
    trace._TRACER_PROVIDER = None
    trace._TRACER_PROVIDER_SET_ONCE = Once()


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    EXPORTER.clear()


def spans() -> dict[str, ReadableSpan]:
    return {span.name: span for span in EXPORTER.get_finished_spans()}


def trace_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}"


def test_a_message_is_of_its_callers_trace(server: RunningServer) -> None:
    with skep.Client(server.url) as client, TRACER.start_as_current_span("order placed") as caller:
        pushed = client.push("traced-1", {"n": 1})
        assert str(pushed.stored[0].trace_id).replace("-", "") == f"{caller.get_span_context().trace_id:032x}"
        [message] = client.pop("traced-1")
        message.ack()
    publish = spans()["publish traced-1"]
    assert publish.kind is trace.SpanKind.PRODUCER
    assert publish.parent is not None
    assert publish.parent.span_id == caller.get_span_context().span_id
    assert publish.attributes is not None
    assert publish.attributes["messaging.system"] == "skep"
    assert publish.attributes["messaging.destination.name"] == "traced-1"
    sent = publish.get_span_context()
    assert sent is not None
    for name in ("receive traced-1", "settle traced-1"):
        [link] = spans()[name].links
        assert link.context.span_id == sent.span_id


def test_a_block_around_a_message_works_in_its_trace(server: RunningServer) -> None:
    with skep.Client(server.url) as client:
        with TRACER.start_as_current_span("order placed"):
            client.push("traced-2", {"n": 1})
        [message] = client.pop("traced-2")
        with message:
            client.push("traced-2-next", {"n": 2})
        with pytest.raises(RuntimeError), client.pop("traced-2-next")[0]:
            raise RuntimeError("no")
    found = spans()
    assert (
        len({trace_of(found[name]) for name in ("publish traced-2", "process traced-2", "publish traced-2-next")}) == 1
    )
    assert found["process traced-2"].status.status_code is trace.StatusCode.UNSET
    assert found["process traced-2-next"].status.status_code is trace.StatusCode.ERROR


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_a_worker_works_in_the_trace_of_each_message(server: RunningServer, is_async: bool) -> None:
    queue = f"traced-worker-{is_async}"
    seen: list[str] = []
    worker = skep.Worker(server.url)

    def note() -> None:
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")

    if is_async:

        @worker.on(queue)
        async def work_async(message: skep.AsyncMessage) -> None:
            note()
    else:

        @worker.on(queue)
        def work(message: skep.Message) -> None:
            note()

    with skep.Client(server.url) as client:
        for n in range(2):
            with TRACER.start_as_current_span(f"order {n}"):
                client.push(queue, {"n": n})
    worker.run(until_empty=True)
    assert seen == [trace_of(span) for span in EXPORTER.get_finished_spans() if span.name.startswith("publish")]
    assert len(set(seen)) == 2


async def test_the_asyncio_client_joins_too(server: RunningServer) -> None:
    async with skep.AsyncClient(server.url) as client:
        with TRACER.start_as_current_span("order placed"):
            await asyncio.gather(*(client.push("traced-3", {"n": n}) for n in range(2)))
        async with (await client.pop("traced-3"))[0]:
            pass
    of: dict[str, set[str]] = {}
    for span in EXPORTER.get_finished_spans():
        of.setdefault(span.name, set()).add(trace_of(span))
    assert of["publish traced-3"] == of["process traced-3"] == of["order placed"]


def test_a_message_that_brings_a_context_keeps_it(server: RunningServer) -> None:
    mine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with skep.Client(server.url) as client:
        pushed = client.push("traced-4", {"n": 1}, headers={"traceparent": mine, "tracestate": "congo=t61"})
        [message] = client.pop("traced-4")
    assert str(pushed.stored[0].trace_id).replace("-", "") == mine[3:35]
    assert message.headers == {"traceparent": mine, "tracestate": "congo=t61"}


def test_a_state_of_another_trace_does_not_go_with_ours(server: RunningServer) -> None:
    with skep.Client(server.url) as client, TRACER.start_as_current_span("order placed") as span:
        client.push("traced-5", {"n": 1}, headers={"tracestate": "congo=t61", "a": "b"})
        [message] = client.pop("traced-5")
    assert message.headers.keys() == {"traceparent", "a"}
    assert message.headers["traceparent"][3:35] == f"{span.get_span_context().trace_id:032x}"


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    script = "import skep, sys; skep.Client; skep.Worker; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
