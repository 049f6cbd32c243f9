"""`GET /metrics`: for Prometheus as text, for people who ask for JSON as JSON."""

from __future__ import annotations

from collections.abc import Callable

from skep.config import HttpLimits
from skep.engine import Engine
from skep.engine.answers import Answers
from skep.http.gauges import GaugeReader
from skep.http.request.call import JSON, Answer, Call, json_answer
from skep.http.request.permission import READ_SERVER
from skep.http.request.route import Media, Route
from skep.observe.exposition import Exposition, Gauges
from skep.observe.histogram import Histogram
from skep.observe.metrics import POLL, Meter
from skep.observe.throughput import Throughput
from skep.wire.metrics import DatabaseMetrics, FileBufferMetrics, MetricsResponse, VerbMetrics

TOTALS = {"push": ("pushed", "duplicate"), "pop": ("popped",), "ack": ("completed", "retried", "dead")}
"""Which messages each verb's total counts."""
MS_PER_SECOND = 1_000


def routes(engine: Engine, total: Callable[[], Meter], limits: HttpLimits, answers: Answers) -> list[Route]:
    """Metrics. ``total`` gives the counters of this process, or of all processes on its port."""
    gauges = GaugeReader(engine, limits, answers)
    exposition = Exposition()
    throughput = Throughput(engine.steady())

    async def metrics(call: Call) -> Answer:
        accept = call.header(b"accept") or b""
        read = await gauges.read()
        meter = total()
        if JSON in accept:
            return json_answer(as_json(meter, read))
        text, content_type = exposition.text(meter, read, accept.decode("latin-1"))
        return Answer(200, text, content_type.encode())

    def as_json(meter: Meter, read: Gauges) -> MetricsResponse:
        totals = {verb: sum(meter.total(name) for name in names) for verb, names in TOTALS.items()}
        rates = throughput.per_second(engine.steady(), totals)
        push, pop, ack = (
            _verb_metrics(totals[verb], rates[verb], meter.latencies.get(verb) or Histogram()) for verb in TOTALS
        )
        return MetricsResponse(
            push, pop, ack,
            DatabaseMetrics(read.store_up, read.connections_active, read.connections_idle),
            FileBufferMetrics(read.spool_pending, read.spool_flushed, read.spool_failed),
        )  # fmt: skip

    return [
        Route(
            method="GET", path="/metrics", access=READ_SERVER, by_link=True, handler=metrics, tag="Server",
            answers={200: (Media("text/plain"), MetricsResponse)},
            summary="Counters, latencies and gauges, as Prometheus text",
            description="With `Accept: application/json` a summary as JSON. Totals are messages, latencies those of "
            f"requests; a pop that waits counts as a {POLL} and not towards them.",
        )
    ]  # fmt: skip


def _verb_metrics(total: int, per_second: float, latency: Histogram) -> VerbMetrics:
    return VerbMetrics(
        total, round(per_second, 3), _ms(latency.mean_seconds), _ms(latency.quantile_seconds(0.95)),
        _ms(latency.quantile_seconds(0.99)),
    )  # fmt: skip


def _ms(seconds: float) -> float:
    return round(seconds * MS_PER_SECOND, 3)
