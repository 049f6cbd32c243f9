"""Send the server's spans and metrics to a collector of OpenTelemetry, by OTLP over HTTP.

This module is imported only where the setting `telemetry.otlp` is on: it needs the extra `otlp`. The variables OTEL_* of the environment say
where the collector is, and what else there is to say. Sending happens in threads of its own with bounded queues, so a collector that is
down or slow costs telemetry and nothing else: one log line tells of it, and one when it is back.

The metrics are those of Prometheus, family by family, under the same names.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Full, Queue
from urllib.parse import unquote

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from requests import Response, Session, TooManyRedirects

from skep import __version__
from skep.ids import Id, id_text
from skep.wire.traceparent import TraceContext

SCOPE = "skep.server"
SERVICE = "skep"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
STOP_SECONDS = 2.0
"""How long a stop waits until the last spans and metrics are sent."""
INTERVAL_MS = 60_000
"""How often metrics are sent, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise."""
NANOS_PER_MICRO = 1_000
ANSWER_BYTES = 4_096
"""The longest body of an answer that is read. Of a longer one, or one of unknown length, the connection is closed."""
REDIRECTS = range(300, 400)
SERVER_ERROR = 500
NONE = "none"
"""The exporter, as the variables have it, that sends nothing."""
_EXPORTERS = "opentelemetry.exporter.otlp"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*=[ !#-+\--:<-\[\]-~]*")
"""What the exporters take for a header. The rest they leave out, and log it with its secret."""
_LOGGERS = (_EXPORTERS, "opentelemetry.sdk._shared_internal")

Tell = Callable[[str | None], None]
"""Takes the reason why nothing can be sent; None when it can be again."""


class Outage(logging.Handler):
    """Notes whether the collector takes what is sent, and tells when that changes. It keeps the libraries' own log lines."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._reason = "no answer"
        self._failing: set[str] = set()
        self._changing = threading.Lock()
        self._kept: list[tuple[logging.Logger, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the last thing that an exporter complained of."""
        if record.name.startswith(_EXPORTERS):
            self._reason = record.getMessage()

    def listen(self) -> None:
        """Take the libraries' log lines from now on."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            self._kept.append((logger, logger.propagate))
            logger.propagate = False
            logger.addHandler(self)

    def close(self) -> None:
        """Leave the libraries' log lines alone."""
        for logger, propagates in self._kept:
            logger.removeHandler(self)
            logger.propagate = propagates
        self._kept = []
        super().close()

    def note(self, kind: str, *, sent: bool) -> None:
        """Something of a kind was sent, or could not be. While one kind cannot be sent, nothing more is told."""
        with self._changing:
            was_down = bool(self._failing)
            (self._failing.discard if sent else self._failing.add)(kind)
            is_down = bool(self._failing)
        if was_down is not is_down:
            self._tell(self._reason if is_down else None)


def _session() -> Session:
    """What a collector is spoken to by. Only the status of its answer counts: what follows may have no end, or be small until it is unpacked."""
    session = Session()
    session.stream = True
    session.hooks["response"].append(_heard)
    return session


def _heard(answer: Response, **_: object) -> None:
    """Leave the body of an answer alone, unless it is short: then the connection serves again. A redirect is a refusal."""
    length = answer.headers.get("content-length", "")
    if length.isdecimal() and int(length) <= ANSWER_BYTES:
        answer.raw.read(decode_content=False)
    answer.close()
    if answer.status_code in REDIRECTS:  # the exporters take it for success, and follow it nowhere
        raise TooManyRedirects(f"it redirects ({answer.status_code}), which is not followed: name the place itself")


class _Spans(SpanExporter):
    def __init__(self, outage: Outage) -> None:
        self._exporter = OTLPSpanExporter(session=_session())
        self._outage = outage

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        self._outage.note("spans", sent=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # of the library


class Telemetry:
    """What a process sends. Spans and metrics are switched off each by OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER: none."""

    def __init__(self, instance: Id, started_micros: int, tell: Tell) -> None:
        """ValueError names the variable that cannot be used, without its value."""
        check_variables()
        self._started_nanos = started_micros * NANOS_PER_MICRO
        own = {"service.name": SERVICE, "service.version": __version__, "service.instance.id": id_text(instance)}
        given = OTELResourceDetector().detect().attributes
        self._resource = Resource.create({name: value for name, value in own.items() if name not in given})
        self._outage = Outage(tell)
        self._outage.listen()
        self.interval_seconds = interval_ms() / 1_000
        self.sends_metrics = _is_sent("METRICS")
        self._provider: TracerProvider | None = None
        self.tracer: trace.Tracer | None = None
        if _is_sent("TRACES"):
            self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(_Spans(self._outage)))
            self.tracer = self._provider.get_tracer(SCOPE, __version__, schema_url=SCHEMA_URL)
        self._metrics = OTLPMetricExporter(session=_session())
        self._waiting: Queue[otel.MetricsData | None] = Queue(1)
        self._sending = threading.Thread(target=self._send, name="skep-otlp-metrics", daemon=True)
        self._sending.start()

    def tell_request(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        context: TraceContext | None,
        began_micros: int,
        ended_micros: int,
        error: str | None,
    ) -> None:
        """A span of a request that was answered. ``context`` is that of the caller."""
        if self.tracer is None:
            return
        span = self.tracer.start_span(
            name, context=None if context is None else _parent(context), kind=trace.SpanKind.SERVER, attributes=attributes,
            start_time=began_micros * NANOS_PER_MICRO,
        )  # fmt: skip
        if error is not None:
            span.set_attribute("error.type", error)
            if int(attributes["http.response.status_code"]) >= SERVER_ERROR:
                span.set_status(trace.StatusCode.ERROR)
        span.end(ended_micros * NANOS_PER_MICRO)

    def send(self, families: Iterable[Metric], now_micros: int) -> None:
        """Send metrics, unless the last ones are still on their way."""
        made = metrics_data(families, self._resource, self._started_nanos, now_micros * NANOS_PER_MICRO)
        with contextlib.suppress(Full):
            self._waiting.put_nowait(made)

    def stop(self) -> None:
        """Send what is left, for a short time, and end the threads."""
        ending = threading.Thread(target=self._end, name="skep-otlp-end", daemon=True)
        ending.start()
        ending.join(STOP_SECONDS)
        self._outage.close()

    def _end(self) -> None:
        self._waiting.put(None)
        if self._provider is not None:
            self._provider.shutdown()
        self._sending.join()

    def _send(self) -> None:
        while (data := self._waiting.get()) is not None:
            try:
                result = self._metrics.export(data)
            except Exception as error:  # whatever a library does must not end the thread
                self._outage.emit(
                    logging.makeLogRecord({"name": _EXPORTERS, "msg": f"{type(error).__name__}: {error}"})
                )
                result = otel.MetricExportResult.FAILURE
            self._outage.note("metrics", sent=result is otel.MetricExportResult.SUCCESS)
        self._metrics.shutdown()


def check_variables() -> None:
    """ValueError where an exporter would not take an address or a header of a variable. Both may hold a secret."""
    for kind in ("", "TRACES_", "METRICS_"):
        place, headers = f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT", f"OTEL_EXPORTER_OTLP_{kind}HEADERS"
        url = os.environ.get(place)
        if url and not url.lower().startswith(("http://", "https://")):
            raise ValueError(f"{place} does not begin with http:// or https://")
        given = [header.strip() for header in os.environ.get(headers, "").split(",")]
        if not all(_HEADER.fullmatch(header) and unquote(header).isprintable() for header in given if header):
            raise ValueError(f"{headers} is no list of NAME=VALUE with commas between them")


def _is_sent(kind: str) -> bool:
    return os.environ.get(f"OTEL_{kind}_EXPORTER", "").strip().lower() != NONE


def interval_ms() -> float:
    """How often metrics are sent."""
    try:
        found = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS))
    except ValueError:
        return INTERVAL_MS
    return found if 0 < found < float("inf") else INTERVAL_MS


def endpoint() -> str:
    """Where the collector is, for people: without a password. Spans and metrics may have a place of their own each."""
    both = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"
    places = [os.environ.get(f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT") or both for kind in ("TRACES", "METRICS")]
    return ", ".join(dict.fromkeys(_without_password(place) for place in places))


def _without_password(url: str) -> str:
    return url.partition("://")[0] + "://" + url.rpartition("@")[2].rpartition("://")[2]


def metrics_data(families: Iterable[Metric], resource: Resource, started: int, now: int) -> otel.MetricsData:
    """The families of Prometheus as metrics of OpenTelemetry."""
    metrics = [
        otel.Metric(family.name, family.documentation, _unit(family.name), _data(family, started, now))
        for family in families
        if family.samples
    ]
    scope = otel.ScopeMetrics(InstrumentationScope(SCOPE, __version__, SCHEMA_URL), metrics, SCHEMA_URL)
    return otel.MetricsData([otel.ResourceMetrics(resource, [scope], resource.schema_url)])


def _unit(name: str) -> str:
    word = name.rpartition("_")[2]
    return {"seconds": "s", "bytes": "By", "messages": "{message}", "requests": "{request}"}.get(word, "1")


def _data(family: Metric, started: int, now: int) -> otel.Sum | otel.Gauge | otel.Histogram:
    if family.type == "histogram":
        return otel.Histogram(_histograms(family.samples, started, now), otel.AggregationTemporality.CUMULATIVE)
    if family.type == "counter":
        # A counter may come with a sample of when it was made.
        counts = [sample for sample in family.samples if not sample.name.endswith("_created")]
        points = [otel.NumberDataPoint(dict(one.labels), started, now, float(one.value)) for one in counts]
        return otel.Sum(points, otel.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return otel.Gauge(
        [otel.NumberDataPoint(dict(one.labels), started, now, float(one.value)) for one in family.samples]
    )


def _histograms(samples: Iterable[Sample], started: int, now: int) -> list[otel.HistogramDataPoint]:
    """The points of a histogram: Prometheus has a sample for each bucket, which also counts all lower ones."""
    by_labels: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, float]], list[float]]] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        buckets, total = by_labels.setdefault(tuple(sorted(labels.items())), ([], []))
        if sample.name.endswith("_bucket"):
            buckets.append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            total.append(sample.value)
    points = []
    for labels_, (buckets, total) in by_labels.items():
        counts = [int(value) for _, value in sorted(buckets)]
        own = [count - below for count, below in zip(counts, [0, *counts], strict=False)]
        bounds = [bound for bound, _ in sorted(buckets)][:-1]
        # The least and the most are not known.
        points.append(
            otel.HistogramDataPoint(dict(labels_), started, now, counts[-1], sum(total), own, bounds, None, None)  # type: ignore[arg-type] # as the encoder takes it
        )
    return points


def _parent(context: TraceContext) -> Context:
    _, trace_id, span_id, flags = context.traceparent.split("-")[:4]
    state = trace.TraceState.from_header([context.tracestate]) if context.tracestate else None
    came = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)), state)
    return trace.set_span_in_context(trace.NonRecordingSpan(came))
