"""Endpoints on the wire: addresses of deliveries, and their circuit breakers."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from skep.model.record import Report


class EndpointView(Struct, rename="camel"):
    """An endpoint. Until ``openUntil`` nothing is delivered there; since ``stoppedAt`` nothing is until it is reset.

    ``url`` is its name: the host, and some digits in place of a path, which may be a secret.
    """

    url: str
    failures: int
    open_until: datetime | None
    stopped_at: datetime | None
    reason: str | None
    updated_at: datetime


class EndpointsResponse(Struct):
    """A page of endpoints by URL; ``after`` is where the next one starts, null when there is none."""

    endpoints: list[EndpointView]
    after: str | None


class EndpointReport(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The outcome of a delivery. After ``threshold`` failures in a row, each failure lets the endpoint rest for ``openSeconds``."""

    url: str
    report: Report
    reason: str | None = None
    threshold: int = 5
    open_seconds: float = 30.0


class EndpointReset(Struct, forbid_unknown_fields=True):
    """An endpoint to deliver to again, by its name or its whole address."""

    url: str


class EndpointWasReset(Struct):
    """Whether anything was known of the endpoint."""

    url: str
    reset: bool
