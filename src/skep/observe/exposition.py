"""The metrics in Prometheus' text format. Labels are made here, at a scrape, and never on the path of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from skep.observe.histogram import BOUNDS_SECONDS
from skep.observe.metrics import Meter

QUEUE_LABELS = ("tenant", "queue")
GROUP_LABELS = ("tenant", "queue", "group")


class ArchiveGauges(Struct, frozen=True):
    """The gauges of a queue whose retention waits for the archive."""

    unarchived: int
    unarchived_seconds: float


class QueueGauges(Struct, frozen=True):
    """The gauges of a queue."""

    tenant: str
    queue: str
    depth: int
    in_flight: int
    dead_letters: int
    oldest_seconds: float
    archive: ArchiveGauges | None = None


class GroupGauges(Struct, frozen=True):
    """The gauges of a group."""

    tenant: str
    queue: str
    group: str
    lag: int
    lag_seconds: float
    inactive_seconds: float
    idle: bool
    held_messages: int
    held_depth: int
    lease_utilisation: float = 0.0


class OperationGauges(Struct, frozen=True):
    """Queued calls (operations) by kind: those that wait, and those that this process performed or gave up."""

    waiting: dict[str, int] = {}
    completed: dict[str, int] = {}
    failed: dict[str, int] = {}
    oldest_seconds: float = 0.0
    stuck: int = 0
    blocked: int = 0


class AnswerGauges(Struct, frozen=True):
    """The memory for payloads in answers, and the requests that had to wait for it."""

    held_bytes: int = 0
    peak_bytes: int = 0
    most_bytes: int = 0
    waiting: int = 0
    waited: int = 0
    refused: int = 0
    cut_off: int = 0


class Gauges(Struct, frozen=True, kw_only=True):
    """The gauges of one scrape; ``complete`` says whether they cover all queues and groups."""

    queues: Sequence[QueueGauges] = ()
    groups: Sequence[GroupGauges] = ()
    complete: bool = True
    store_up: bool = True
    connections_active: int = 0
    connections_idle: int = 0
    parked_polls: int = 0
    spool_pending: int = 0
    spool_flushed: int = 0
    spool_failed: int = 0
    spool_bytes: int = 0
    store_away: bool = False
    buffer_pending: int = 0
    buffer_flushed: int = 0
    buffer_lost: int = 0
    operations: OperationGauges = OperationGauges()
    answers: AnswerGauges = AnswerGauges()


class Exposition:
    """Writes the metrics as text."""

    def __init__(self) -> None:
        self._source = _Source()
        # A registry of its own, without the metrics of other libraries in this process.
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._source)
        ProcessCollector(registry=self._registry)

    def families(self, meter: Meter, gauges: Gauges) -> list[Metric]:
        """All metrics as they are now."""
        self._source.meter = meter
        self._source.gauges = gauges
        return list(self._registry.collect())

    def text(self, meter: Meter, gauges: Gauges, accept: str) -> tuple[bytes, str]:
        """The text and its content type, in the format that the scraper prefers."""
        self._source.meter = meter
        self._source.gauges = gauges
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Source(Collector):
    def __init__(self) -> None:
        self.meter = Meter()
        self.gauges = Gauges()

    def collect(self) -> Iterator[Metric]:
        """All metrics of a scrape."""
        yield from self._message_counters()
        yield self._hooks()
        yield self._requests()
        yield self._latencies()
        yield from _queue_gauges(self.gauges)
        yield from _group_gauges(self.gauges)
        yield from _operation_gauges(self.gauges.operations)
        yield from _server_gauges(self.gauges)
        yield from _buffer_gauges(self.gauges)
        yield from _answer_gauges(self.gauges.answers)

    def _message_counters(self) -> Iterator[Metric]:
        for name, attribute, meaning in (
            ("skep_pushed_messages", "pushed", "Messages stored by pushes"),
            ("skep_duplicate_messages", "duplicate", "Messages that a push found stored already"),
            ("skep_refused_messages", "refused", "Messages and acks that were refused"),
            ("skep_popped_messages", "popped", "Messages handed out"),
        ):
            family = CounterMetricFamily(name, meaning, labels=QUEUE_LABELS)
            for key, counts in self.meter.queues.items():
                family.add_metric(key, getattr(counts, attribute))
            yield family
        settled = CounterMetricFamily("skep_acked_messages", "Messages settled", labels=(*QUEUE_LABELS, "outcome"))
        for key, counts in self.meter.queues.items():
            settled.add_metric((*key, "completed"), counts.completed)
            settled.add_metric((*key, "retried"), counts.retried)
            settled.add_metric((*key, "dead"), counts.dead)
        yield settled

    def _hooks(self) -> Metric:
        family = CounterMetricFamily("skep_hook_requests", "Requests to webhooks", labels=("webhook", "outcome"))
        for name, counts in self.meter.hooks.items():
            for outcome in ("accepted", "repeated", "quarantined", "refused"):
                family.add_metric((name, outcome), getattr(counts, outcome))
        return family

    def _requests(self) -> Metric:
        family = CounterMetricFamily("skep_http_requests", "Requests answered", labels=("method", "route", "status"))
        for (method, route), meter in self.meter.routes.items():
            for status, count in meter.by_status.items():
                family.add_metric((method, route, str(status)), count)
        return family

    def _latencies(self) -> Metric:
        family = HistogramMetricFamily(
            "skep_request_seconds",
            "From the request's arrival to its answer; pops that wait are polls",
            labels=("verb",),
        )
        for verb, histogram in self.meter.latencies.items():
            counts = list(accumulate(histogram.buckets))
            bounds = [*(str(bound) for bound in BOUNDS_SECONDS), "+Inf"]
            family.add_metric((verb,), list(zip(bounds, counts, strict=True)), histogram.seconds)
        return family


def _queue_gauges(gauges: Gauges) -> Iterator[Metric]:
    for name, attribute, meaning in (
        ("skep_queue_depth", "depth", "Messages that the slowest group has yet to settle, and scheduled ones"),
        ("skep_queue_in_flight", "in_flight", "Messages under a lease"),
        ("skep_queue_dead_letters", "dead_letters", "Dead letters"),
        ("skep_queue_oldest_message_seconds", "oldest_seconds", "Age of the oldest unsettled message"),
    ):
        family = GaugeMetricFamily(name, meaning, labels=QUEUE_LABELS)
        for queue in gauges.queues:
            family.add_metric((queue.tenant, queue.queue), getattr(queue, attribute))
        yield family
    for name, attribute, meaning in (
        ("skep_queue_unarchived_messages", "unarchived", "Messages that retention keeps until an archive has them"),
        ("skep_queue_unarchived_seconds", "unarchived_seconds", "Age of the oldest message that no archive has"),
    ):
        family = GaugeMetricFamily(name, meaning, labels=QUEUE_LABELS)
        for queue in gauges.queues:
            if queue.archive is not None:
                family.add_metric((queue.tenant, queue.queue), getattr(queue.archive, attribute))
        yield family


def _group_gauges(gauges: Gauges) -> Iterator[Metric]:
    for name, attribute, meaning in (
        ("skep_group_lag_messages", "lag", "Messages that the group has yet to settle"),
        ("skep_group_lag_seconds", "lag_seconds", "Age of the oldest message that the group has yet to settle"),
        ("skep_group_inactive_seconds", "inactive_seconds", "How long nobody has used the group"),
        ("skep_group_idle", "idle", "Whether the group was unused for too long and holds back nothing"),
        ("skep_group_held_messages", "held_messages", "Messages that retention keeps for this group alone"),
        ("skep_group_held_depth", "held_depth", "By how much the queue is deeper for this group alone"),
        (
            "skep_group_lease_utilisation",
            "lease_utilisation",
            "Which share of the group's unsettled messages is under a lease",
        ),
    ):
        family = GaugeMetricFamily(name, meaning, labels=GROUP_LABELS)
        for group in gauges.groups:
            family.add_metric((group.tenant, group.queue, group.group), getattr(group, attribute))
        yield family


def _buffer_gauges(gauges: Gauges) -> Iterator[Metric]:
    """Gauges of messages that this process has taken and not stored yet: on its disk, and in its memory."""
    for kind, name, value, meaning in (
        (GaugeMetricFamily, "skep_spool_pending_messages", gauges.spool_pending, "Messages in the spool"),
        (CounterMetricFamily, "skep_spool_flushed_messages", gauges.spool_flushed, "Spooled messages that were stored"),
        (CounterMetricFamily, "skep_spool_failed_messages", gauges.spool_failed, "Spooled messages that were given up"),
        (GaugeMetricFamily, "skep_spool_bytes", gauges.spool_bytes, "What the files of the spool take"),
        (GaugeMetricFamily, "skep_spool_away", gauges.store_away, "Whether pushes are spooled since the store is away"),
        (GaugeMetricFamily, "skep_buffer_pending_messages", gauges.buffer_pending, "Messages of QoS 0 in memory"),
        (CounterMetricFamily, "skep_buffer_flushed_messages", gauges.buffer_flushed, "Messages of QoS 0 stored"),
        (CounterMetricFamily, "skep_buffer_lost_messages", gauges.buffer_lost, "Messages of QoS 0 given up"),
    ):
        yield kind(name, meaning, value=value)


def _answer_gauges(answers: AnswerGauges) -> Iterator[Metric]:
    """Gauges of payloads that this process holds because clients have not read them."""
    for kind, name, value, meaning in (
        (GaugeMetricFamily, "skep_answers_bytes", answers.held_bytes, "Payloads and headers in answers under way"),
        (GaugeMetricFamily, "skep_answers_peak_bytes", answers.peak_bytes, "The most there ever was of them"),
        (GaugeMetricFamily, "skep_answers_limit_bytes", answers.most_bytes, "The room there is for them"),
        (GaugeMetricFamily, "skep_answers_waiting", answers.waiting, "Answers that wait for room"),
        (CounterMetricFamily, "skep_answers_waited", answers.waited, "Answers that had to wait for room"),
        (CounterMetricFamily, "skep_answers_refused", answers.refused, "Answers for which there was no room in time"),
        (CounterMetricFamily, "skep_answers_cut_off", answers.cut_off, "Clients cut off as others waited for room"),
    ):
        yield kind(name, meaning, value=value)


def _operation_gauges(operations: OperationGauges) -> Iterator[Metric]:
    for family, counts in (
        (GaugeMetricFamily("skep_operations_waiting", "Queued calls yet to be performed", labels=("kind",)), operations.waiting),
        (CounterMetricFamily("skep_operations_completed", "Queued calls performed here", labels=("kind",)), operations.completed),
        (CounterMetricFamily("skep_operations_failed", "Queued calls given up on here", labels=("kind",)), operations.failed),
    ):  # fmt: skip
        for kind, count in counts.items():
            family.add_metric((kind,), count)
        yield family
    oldest = "How long the oldest queued call has waited"
    yield GaugeMetricFamily("skep_operations_oldest_seconds", oldest, value=operations.oldest_seconds)
    stuck = "Queued calls older than twice their timeout"
    yield GaugeMetricFamily("skep_operations_stuck", stuck, value=operations.stuck)
    blocked = "Queued calls that were tried, could not be done, and are tried again"
    yield GaugeMetricFamily("skep_operations_blocked", blocked, value=operations.blocked)


def _server_gauges(gauges: Gauges) -> Iterator[Metric]:
    yield GaugeMetricFamily("skep_store_up", "Whether the store answers and takes writes", value=gauges.store_up)
    connections = GaugeMetricFamily("skep_store_connections", "Connections to the database", labels=("state",))
    connections.add_metric(("active",), gauges.connections_active)
    connections.add_metric(("idle",), gauges.connections_idle)
    yield connections
    yield GaugeMetricFamily("skep_parked_polls", "Pops that wait for messages", value=gauges.parked_polls)
    yield GaugeMetricFamily(
        "skep_metrics_complete", "Whether all queues and groups have their own figures here", value=gauges.complete
    )
