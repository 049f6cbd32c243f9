"""The metrics as JSON, with the names of their first users."""

from __future__ import annotations

from msgspec import Struct


class VerbMetrics(Struct):
    """Messages since the server started, and per second lately; latencies are those of requests."""

    total: int
    throughput: float
    avg_latency_ms: float
    p95_latency_ms: float
    p99_latency_ms: float


class DatabaseMetrics(Struct):
    """Whether the store answered, and its connections."""

    healthy: bool
    connections_active: int
    connections_idle: int


class FileBufferMetrics(Struct):
    """Messages that were buffered on disk while the store was away."""

    pending: int
    flushed: int
    failed: int


class MetricsResponse(Struct):
    """The figures of a server."""

    push: VerbMetrics
    pop: VerbMetrics
    ack: VerbMetrics
    database: DatabaseMetrics
    file_buffer: FileBufferMetrics
