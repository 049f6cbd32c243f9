"""Counters of the server: plain numbers on the path of a request, labels only at a scrape.

Only the first queues get a label of their own, and partitions never do: the rest is counted as
`OTHER`. Nothing here is shared between threads; the server is one loop.
"""

from __future__ import annotations

from skep.observe.failures import Failures
from skep.observe.histogram import Histogram

OTHER = "__other__"
"""The tenant and queue of counts without a label of their own."""
POLL = "poll"
"""The verb of a pop that waits (a long poll): its latency is mostly waiting."""
QUEUE_LABELS = 200
"""The default number of queues with counters of their own."""


class QueueCounts:
    """Messages of one queue, by outcome."""

    __slots__ = ("completed", "dead", "duplicate", "popped", "pushed", "refused", "retried")

    def __init__(self) -> None:
        self.pushed = 0
        self.duplicate = 0
        self.refused = 0
        self.popped = 0
        self.completed = 0
        self.retried = 0
        self.dead = 0


class HookCounts:
    """Requests to one webhook, by outcome."""

    __slots__ = ("accepted", "quarantined", "refused", "repeated")

    def __init__(self) -> None:
        self.accepted = 0
        self.repeated = 0
        self.quarantined = 0
        self.refused = 0


class RouteMeter:
    """Requests of one route by status, and the histograms of their latencies."""

    __slots__ = ("_latency", "_polls", "by_status")

    def __init__(self, latency: Histogram, polls: Histogram) -> None:
        self.by_status: dict[int, int] = {}
        self._latency = latency
        self._polls = polls

    def answered(self, status: int, seconds: float, waited: bool) -> None:
        """Count an answer."""
        self.by_status[status] = self.by_status.get(status, 0) + 1
        (self._polls if waited else self._latency).add(seconds)


class Meter:
    """All counters of a server."""

    def __init__(self, queue_labels: int = QUEUE_LABELS) -> None:
        self.queue_labels = queue_labels
        self.queues: dict[tuple[str, str], QueueCounts] = {(OTHER, OTHER): QueueCounts()}
        self.hooks: dict[str, HookCounts] = {}
        self.routes: dict[tuple[str, str], RouteMeter] = {}
        self.latencies: dict[str, Histogram] = {POLL: Histogram()}
        self.failures = Failures()

    def route(self, method: str, path: str, verb: str) -> RouteMeter:
        """The counters of a route, named by its template: ``/queues/{queue}``, never a queue's own path."""
        latency = self.latencies.setdefault(verb, Histogram())
        return self.routes.setdefault((method, path), RouteMeter(latency, self.latencies[POLL]))

    def queue(self, tenant: str, name: str) -> QueueCounts:
        """The counters of a queue; beyond the bound, the shared counters of all other queues."""
        counts = self.queues.get((tenant, name))
        if counts is None:
            if len(self.queues) > self.queue_labels:
                return self.queues[OTHER, OTHER]
            counts = self.queues[tenant, name] = QueueCounts()
        return counts

    def known_queue(self, tenant: str, name: str) -> QueueCounts:
        """The counters of a queue that may not exist: a made-up name gets no label."""
        return self.queues.get((tenant, name)) or self.queues[OTHER, OTHER]

    def hook(self, name: str) -> HookCounts:
        """The counters of a webhook that exists: a made-up name gets no label."""
        counts = self.hooks.get(name)
        if counts is None:
            counts = self.hooks[name] = HookCounts()
        return counts

    def total(self, what: str) -> int:
        """One of the counts, over all queues."""
        return sum(getattr(counts, what) for counts in self.queues.values())
