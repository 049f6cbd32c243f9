"""A real receiver of OTLP on loopback: it reads what it gets with the protocol's own classes, and answers as it was told."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WAIT_SECONDS = 60.0
CHUNK = bytes(65_536)
ENDLESS_BYTES = 32 * 1024 * 1024


class Collector:
    """Where it is, and what it got."""

    def __init__(self) -> None:
        self.url = ""
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.holds = threading.Event()
        """While it is not set, nothing is answered."""
        self.holds.set()
        self.endless = False
        """Whether the body of an answer goes on and on."""
        self.cut = 0
        """How many of those answers were cut by who got them."""
        self.arrivals = 0
        self._arrived = threading.Condition()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """A request that came."""
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self._arrived:
            self.arrivals += 1
            self.headers.append(headers)
            if path == "/v1/traces":
                self.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                assert path == "/v1/metrics"
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self._arrived.notify_all()

    def go_on(self, write: Callable[[bytes], object]) -> None:
        """Write a body until the other one goes, or has taken far too much."""
        try:
            for _ in range(ENDLESS_BYTES // len(CHUNK)):
                write(CHUNK)
        except OSError:
            with self._arrived:
                self.cut += 1
                self._arrived.notify_all()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until what has come will do."""
        with self._arrived:
            assert self._arrived.wait_for(holds, WAIT_SECONDS), (self.spans, self.latest)

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def latest(self) -> dict[str, Metric]:
        """The metrics that came last."""
        found = self.metrics[-1:]
        return {
            metric.name: metric
            for request in found
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def attributes_of(one: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in one.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """A running receiver."""
    one = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            one.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            one.holds.wait()
            try:
                self.send_response(one.status)
                if not one.endless:
                    self.send_header("content-length", "0")
                self.end_headers()
                if one.endless:
                    one.go_on(self.wfile.write)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    one.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield one
    finally:
        one.holds.set()
        server.shutdown()
        serving.join()
        server.server_close()
