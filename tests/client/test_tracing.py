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
from skep.spec import load
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


def named(name: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def attribute(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(name)


COUNT = "messaging.batch.message_count"
MINE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_count_is_of_messages_and_not_of_those_that_have_a_context(server: RunningServer) -> None:
    with skep.Client(server.url) as client:
        client.request("POST", "/api/v1/push", body={"items": [
            {"queue": "counted", "payload": n, **({"headers": {"traceparent": MINE}} if n == 0 else {})} for n in range(5)
        ]})  # fmt: skip
        messages = client.pop("counted", batch=5)
        client.ack(*messages)
        client.push("counted-tuple", (1, 2, 3))
        client.push("counted-iterator", iter([1, 2]))
        client.push("counted-one", 1)

    [receive], [settle] = named("receive counted"), named("settle counted")
    assert (attribute(receive, COUNT), len(receive.links)) == (5, 1)
    assert (attribute(settle, COUNT), len(settle.links)) == (5, 1)
    assert attribute(named("publish counted-tuple")[0], COUNT) == 3
    assert attribute(named("publish counted-iterator")[0], COUNT) == 2
    assert attribute(named("publish counted-one")[0], COUNT) is None


def test_acks_that_go_with_a_pop_have_a_span_beside_its_own(server: RunningServer) -> None:
    with skep.Client(server.url) as client, TRACER.start_as_current_span("a loop"):
        client.push("gone-on", [1, 2, 3])
        done = client.pop("gone-on", batch=2)
        [stale] = client.pop("gone-on", ack=done)
        client.release(stale.lease_id)
        client.pop("gone-on", ack=[stale])

    settled, refused = named("settle gone-on")
    assert (attribute(settled, COUNT), len(settled.links), attribute(settled, "error.type")) == (2, 2, None)
    assert attribute(refused, "error.type") == "STALE_LEASE"
    loop = spans()["a loop"].get_span_context()
    assert all(span.parent == loop for span in (settled, refused, *named("receive gone-on")))


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_a_worker_receives_processes_and_settles_in_spans(server: RunningServer, is_async: bool) -> None:
    queue = f"spanned-{is_async}"
    worker = skep.Worker(server.url)

    def note(message: skep.Message) -> None: ...

    async def note_async(message: skep.AsyncMessage) -> None: ...

    worker.on(queue, batch=3)(note_async if is_async else note)
    with skep.Client(server.url) as client:
        client.push(queue, [1, 2, 3])
    worker.run(until_empty=True)

    [publish], [receive] = named(f"publish {queue}"), named(f"receive {queue}")
    sent = publish.get_span_context()
    assert sent is not None
    assert (attribute(receive, COUNT), attribute(receive, "messaging.operation.type")) == (3, "receive")
    assert [link.context.span_id for link in receive.links] == [sent.span_id] * 3
    assert len(named(f"process {queue}")) == 3
    settled = named(f"settle {queue}")
    assert sum(len(span.links) for span in settled) == 3
    assert {attribute(span, "messaging.skep.outcome") for span in settled} == {"completed"}


APP = """
app Traced {
  queue TracedCalls {
    map_to: command Door.Ring {
      n: message.n
    }
    then: queue TracedNext {
      n: 1
    }
  }
  queue TracedNext {}
  queue TracedEntity {
    map_to: command Bell.Ring {
      bell: string(message.n)
    }
  }
  entity Bell {
    id: input.bell
    command Ring {
      input {
        bell: string
      }
      emits Rung {}
    }
  }
}
"""


def test_a_worker_of_a_spec_receives_processes_and_settles_in_spans(server: RunningServer) -> None:
    app = skep.App(load(APP, "traced.skep"))

    @app.command("Door.Ring")
    def ring(given: dict[str, int]) -> None:
        if given["n"] == 2:
            raise ValueError("no")

    with skep.Client(server.url, tenant="traced") as client:
        client.push("TracedCalls", [skep.NewMessage({"n": n}, partition=str(n)) for n in (1, 2)])
        client.push("TracedEntity", [{"n": n} for n in range(3)])
        app.work(server.url, until_empty=True, tenant="traced")

    processed = named("process TracedCalls")
    assert len(processed) == 2
    assert [
        attribute(span, "error.type") for span in processed if span.status.status_code is trace.StatusCode.ERROR
    ] == ["ValueError"]
    assert sum(len(span.links) for span in named("receive TracedCalls")) == 2
    assert sum(len(span.links) for span in named("settle TracedCalls")) == 2
    assert len(named("publish TracedNext")) == 1
    for name in ("receive TracedEntity", "process TracedEntity", "settle TracedEntity"):
        [span] = named(name)
        assert (attribute(span, COUNT), len(span.links)) == (3, 3)


def test_a_push_in_a_transaction_has_a_send_span_that_its_message_carries(server: RunningServer) -> None:
    with skep.Client(server.url) as client:
        client.push("tx-in", 1)
        [message] = client.pop("tx-in")
        with message.transaction() as tx:
            tx.push("tx-out", [1, 2])
            assert named("publish tx-out") == []  # it lasts until the commit
        found = client.pop("tx-out", batch=2)

    [publish] = named("publish tx-out")
    sent = publish.get_span_context()
    assert sent is not None
    assert publish.kind is trace.SpanKind.PRODUCER
    assert (attribute(publish, COUNT), attribute(publish, "messaging.operation.type")) == (2, "send")
    assert {one.headers["traceparent"].split("-")[2] for one in found} == {f"{sent.span_id:016x}"}
    assert len(named("settle tx-in")) == 1


def test_a_transaction_that_fails_says_so_on_its_spans(server: RunningServer) -> None:
    with skep.Client(server.url) as client:
        client.push("tx-fails", 1)
        [message] = client.pop("tx-fails")
        message.ack()
        tx, given_up = client.transaction(), client.transaction()
        tx.nack(message)
        tx.push("tx-fails-out", 1)
        given_up.push("tx-given-up", 1)
        with pytest.raises(skep.SkepError):
            tx.commit()
        with pytest.raises(RuntimeError), given_up:
            raise RuntimeError("no")

    code = attribute(named("publish tx-fails-out")[0], "error.type")
    assert code in ("STALE_LEASE", "NOT_IN_LEASE")
    assert [attribute(span, "error.type") for span in named("settle tx-fails")] == [None, code]
    assert attribute(named("publish tx-given-up")[0], "error.type") == "RuntimeError"


class CardDeclinedError(Exception):
    pass


def test_what_fails_has_an_error_type_and_the_status_error(server: RunningServer) -> None:
    worker = skep.Worker(server.url)

    @worker.on("failing-worker")
    def handle(message: skep.Message) -> None:
        raise CardDeclinedError("no")

    with skep.Client(server.url) as client:
        client.push("failing-worker", 1)
        worker.run(until_empty=True)
        with pytest.raises(skep.SkepError):
            client.push("failing", 1, partition="\0")
        client.push("failing-told", 1, partition="\0", on_error=lambda messages, error: None)
        with pytest.raises(skep.SkepError):
            client.pop("never-made")
        client.push("refused", 1)
        [message] = client.pop("refused")
        client.ack(message)
        message.settled = None
        client.nack(message)

    wanted = {
        "process failing-worker": f"{__name__}.CardDeclinedError",
        "publish failing": "INVALID_PARTITION",
        "publish failing-told": "INVALID_PARTITION",
        "receive never-made": "QUEUE_NOT_FOUND",
    }
    for name, kind in wanted.items():
        [span] = named(name)
        assert (attribute(span, "error.type"), span.status.status_code) == (kind, trace.StatusCode.ERROR), name
    settled, refused = named("settle refused")
    assert attribute(settled, "error.type") is None
    assert attribute(refused, "error.type") in ("STALE_LEASE", "NOT_IN_LEASE")


def test_a_buffer_and_a_pop_over_several_queues_have_spans_too(server: RunningServer) -> None:
    with skep.Client(server.url, tenant="several") as client:
        with client.buffer("buffered-spans") as out:
            for number in range(3):
                out.push(number)
        client.push("several-1", [1, 2], namespace="spans")
        client.push("several-2", 3, namespace="spans")
        found = client.pop_matching(namespace="spans", batch=10)

    assert len(found) == 3
    assert sum(int(str(attribute(span, COUNT) or 1)) for span in named("publish buffered-spans")) == 3
    assert [len(span.links) for span in named("receive several-1")] == [2]
    assert [len(span.links) for span in named("receive several-2")] == [1]
