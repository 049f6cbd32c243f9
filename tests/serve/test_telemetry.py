"""A server that sends its spans and metrics to a collector of OpenTelemetry, and one whose collector is gone, silent or refuses."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from opentelemetry import trace
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.util._once import Once

import skep
from skep.observe.otlp import check_variables, endpoint
from tests.serve.client import get
from tests.support.collector import Collector, attributes_of, collector
from tests.support.serving import ServeProcess, serving

OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "50", "OTEL_BSP_SCHEDULE_DELAY": "50"}
DOWN = "the collector takes no telemetry; the server goes on without"
BACK = "the collector takes telemetry again"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def sending(folder: Path, url: str, **environ: str) -> Iterator[ServeProcess]:
    """A server whose collector is there, or is said to be."""
    variables = {"SKEP_TELEMETRY_OTLP": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": url, **OFTEN, **environ}
    with serving(folder=folder, environ=variables) as server:
        yield server


@pytest.fixture
def there() -> Iterator[Collector]:
    with collector() as one:
        yield one


def journey(url: str) -> None:
    """A message is pushed, popped, worked on, and acked."""
    with skep.Client(url) as client:
        client.push("or ders", [{"n": 1}, {"n": 2}])
        for message in client.pop("or ders", batch=2, group="billing"):
            with message:
                pass


def test_spans_of_a_message_come_below_those_of_its_clients(tmp_path: Path, there: Collector) -> None:
    trace.set_tracer_provider(TracerProvider())
    try:
        with sending(tmp_path, there.url) as server:
            url = f"http://127.0.0.1:{server.listening()}"
            with trace.get_tracer("shop").start_as_current_span("order placed") as placed:
                journey(url)
            there.until(lambda: [span.name for span in there.spans].count("POST /api/v1/ack") == 2)
    finally:
        trace._TRACER_PROVIDER = None
        trace._TRACER_PROVIDER_SET_ONCE = Once()

    context = placed.get_span_context()
    found = {span.name: span for span in there.spans}
    assert found.keys() == {"POST /api/v1/push", "POST /api/v1/pop/queue/{queue}", "POST /api/v1/ack"}
    for span in there.spans:
        assert span.kind == Span.SPAN_KIND_SERVER
        assert span.trace_id == context.trace_id.to_bytes(16, "big")
        assert span.parent_span_id not in (b"", b"\0" * 8)
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        told = attributes_of(span)
        method, _, route = span.name.partition(" ")
        assert (told["http.request.method"], told["http.route"]) == (method, route)
        assert (told["url.scheme"], told["url.path"]) == ("http", route.replace("{queue}", "or%20ders"))
        assert told["http.response.status_code"] in (200, 201)
        assert told["skep.tenant"] == "default"
    [pop] = [span for name, span in found.items() if "pop" in name]
    assert attributes_of(pop)["messaging.destination.name"] == "or ders"
    [resource] = {request.resource_spans[0].resource.SerializeToString() for request in there.traces}
    named = attributes_of(there.traces[0].resource_spans[0].resource)
    assert (named["service.name"], named["service.version"]) == ("skep", skep.__version__)
    scope = there.traces[0].resource_spans[0].scope_spans[0]
    assert (scope.scope.name, scope.scope.version) == ("skep.server", skep.__version__)
    assert scope.schema_url.endswith("/1.44.0")
    assert resource


@pytest.mark.slow
def test_refused_requests_and_those_of_machines(tmp_path: Path, there: Collector) -> None:
    with sending(tmp_path, there.url) as server:
        port = server.listening()
        assert get(port, "/health")[0] == 200
        with skep.Client(f"http://127.0.0.1:{port}") as client, pytest.raises(skep.SkepError):
            client.pop("never-made")
        there.until(lambda: bool(there.spans))

    [span] = there.spans
    assert (attributes_of(span)["error.type"], attributes_of(span)["http.response.status_code"]) == (
        "QUEUE_NOT_FOUND",
        404,
    )
    assert span.status.code == Status.STATUS_CODE_UNSET  # it is the client's mistake


def test_metrics_are_those_of_prometheus_under_the_same_names(tmp_path: Path, there: Collector) -> None:
    with sending(
        tmp_path, there.url, OTEL_SERVICE_NAME="orders-queue", OTEL_EXPORTER_OTLP_HEADERS="api-key=x"
    ) as server:
        port = server.listening()
        journey(f"http://127.0.0.1:{port}")
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()

        def counted() -> bool:
            acked = there.latest.get("skep_acked_messages")
            return acked is not None and sum(point.as_double for point in acked.sum.data_points) == 2

        there.until(counted)
        there.until(lambda: "skep_queue_depth" in there.latest)
        latest = there.latest

    families = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in latest if name.startswith("skep_")} <= families
    pushed = latest["skep_pushed_messages"].sum
    assert (pushed.is_monotonic, pushed.aggregation_temporality) == (
        True,
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    by_queue = {attributes_of(point)["queue"]: point.as_double for point in pushed.data_points}
    assert by_queue["or ders"] == 2
    assert latest["skep_store_up"].gauge.data_points[0].as_double == 1
    requests = latest["skep_request_seconds"].histogram.data_points
    [push] = [point for point in requests if attributes_of(point)["verb"] == "push"]
    assert (push.count, sum(push.bucket_counts), len(push.bucket_counts)) == (1, 1, len(push.explicit_bounds) + 1)
    assert push.sum > 0
    assert latest["skep_request_seconds"].unit == "s"
    assert {attributes_of(one.resource_metrics[0].resource)["service.name"] for one in there.metrics} == {
        "orders-queue"
    }
    assert all(headers["api-key"] == "x" for headers in there.headers)


@pytest.mark.slow
def test_each_of_the_two_can_be_left_out(tmp_path: Path, there: Collector) -> None:
    with sending(tmp_path, there.url, OTEL_TRACES_EXPORTER="none") as server:
        journey(f"http://127.0.0.1:{server.listening()}")
        there.until(lambda: "skep_acked_messages" in there.latest)
    assert there.traces == []

    there.metrics.clear()
    with sending(tmp_path, there.url, OTEL_METRICS_EXPORTER=" None") as server:
        journey(f"http://127.0.0.1:{server.listening()}")
        there.until(lambda: bool(there.spans))
        server.signal()
        server.ended()
    assert there.metrics == []


def told(server: ServeProcess, event: str) -> list[str]:
    return [line for line in server.lines if f'"{event}"' in line]


@pytest.mark.parametrize("status", [400, 308])
def test_a_collector_that_is_gone_costs_one_line_and_the_server_tells_when_it_is_back(
    tmp_path: Path, there: Collector, status: int
) -> None:
    there.status = status
    with sending(tmp_path, there.url) as server:
        url = f"http://127.0.0.1:{server.listening()}"
        journey(url)
        assert server.event(DOWN)["endpoint"] == there.url
        seen = there.arrivals
        there.until(lambda: there.arrivals >= seen + 5)
        there.status = 200
        journey(url)
        server.event(BACK)
        server.signal()
        assert server.ended() == 0

    assert (len(told(server, DOWN)), len(told(server, BACK))) == (1, 1)
    assert [line for line in server.lines if "Traceback" in line or "opentelemetry" in line] == []


@pytest.mark.slow
def test_no_collector_at_all_slows_no_stop(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with sending(tmp_path, f"http://127.0.0.1:{port}", OTEL_EXPORTER_OTLP_TIMEOUT="1") as server:
        journey(f"http://127.0.0.1:{server.listening()}")
        assert server.event(DOWN)["reason"]
        server.signal()
        assert server.ended() == 0
    assert len(told(server, DOWN)) == 1


@pytest.mark.slow
def test_a_collector_that_never_answers_holds_up_neither_requests_nor_the_stop(
    tmp_path: Path, there: Collector
) -> None:
    there.holds.clear()
    with sending(tmp_path, there.url, OTEL_BSP_MAX_QUEUE_SIZE="8", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="8") as server:
        url = f"http://127.0.0.1:{server.listening()}"
        for _ in range(20):
            journey(url)
        there.until(lambda: there.arrivals >= 2)
        server.signal()
        assert server.ended() == 0
    assert [line for line in server.lines if "Traceback" in line] == []


def test_an_answer_without_an_end_is_not_read(tmp_path: Path, there: Collector) -> None:
    there.endless = True
    with sending(tmp_path, there.url) as server:
        journey(f"http://127.0.0.1:{server.listening()}")
        there.until(lambda: there.cut >= 2 and bool(there.spans))
        server.signal()
        assert server.ended() == 0
    assert told(server, DOWN) == []


def test_the_place_of_a_collector_is_that_of_spans_and_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ann:s3cret@one:4318")
    assert endpoint() == "http://one:4318"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://bob:s3cret@two/v1/traces")
    assert endpoint() == "https://two/v1/traces, http://one:4318"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://two/v1/traces")
    assert endpoint() == "https://two/v1/traces"


@pytest.mark.slow
def test_a_collector_that_resets_every_connection_costs_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rude:
        over = threading.Event()

        def reset() -> None:
            while not over.is_set():
                connection, _ = rude.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

        resetting = threading.Thread(target=reset)
        resetting.start()
        port = rude.getsockname()[1]
        with sending(tmp_path, f"http://127.0.0.1:{port}", OTEL_EXPORTER_OTLP_TIMEOUT="1") as server:
            journey(f"http://127.0.0.1:{server.listening()}")
            server.event(DOWN)
            server.signal()
            assert server.ended() == 0
        over.set()
        socket.create_connection(("127.0.0.1", port)).close()
        resetting.join()
    assert len(told(server, DOWN)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer s3cret"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_used_is_told_at_the_start(tmp_path: Path, name: str, value: str) -> None:
    with sending(tmp_path, "http://127.0.0.1:1", **{name: value}) as server:
        assert server.ended() != 0
    assert any(name.removeprefix("OTEL_BSP_").lower() in line.lower() for line in server.lines)
    assert not [line for line in server.lines if "s3cret" in line]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT", "ann:s3cret@collector:4318"), ("TRACES_ENDPOINT", "s3cret"), ("METRICS_ENDPOINT", "grpc://s3cret"),
        ("HEADERS", "authorization: Bearer s3cret"), ("HEADERS", "a=b,s3cret"), ("TRACES_HEADERS", 'a="s3cret"'),
        ("METRICS_HEADERS", "a=s3cret;b"), ("HEADERS", "a=s3cret%0d%0ab"), ("HEADERS", "a b=s3cret"), ("HEADERS", "a=s\u00e93cret"),
    ],
)  # fmt: skip
def test_a_place_or_a_header_that_cannot_be_used_is_refused_and_its_secret_is_not_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    with pytest.raises(ValueError, match=f"^OTEL_EXPORTER_OTLP_{name} [^3]*$"):
        check_variables()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENDPOINT", ""), ("ENDPOINT", "HTTPS://collector"), ("HEADERS", " a=b , c = d e=,"), ("HEADERS", "authorization=Bearer%20x%C3%A9==")],
)  # fmt: skip
def test_a_place_or_a_header_that_the_exporters_take_is_taken(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    check_variables()


@pytest.mark.slow
def test_a_password_of_the_collector_is_not_logged(tmp_path: Path) -> None:
    with sending(tmp_path, "http://ann:s3cret@127.0.0.1:1", OTEL_EXPORTER_OTLP_TIMEOUT="1") as server:
        journey(f"http://127.0.0.1:{server.listening()}")
        assert server.event(DOWN)["endpoint"] == "http://127.0.0.1:1"
        server.signal()
        server.ended()
    assert not [line for line in server.lines if "s3cret" in line]


def test_nothing_of_opentelemetry_is_imported_where_it_is_off() -> None:
    """The server's modules are imported in a new interpreter, since this one has OpenTelemetry."""
    script = "import sys, skep.server.process, skep.server.compose; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
