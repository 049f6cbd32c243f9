"""Refused requests to webhooks on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class RefusalView(Struct, rename="camel"):
    """A refused request: its time, the reason, the answer to its sender, its address, and its shape without any value."""

    webhook: str
    at: datetime
    code: str
    status: int
    message: str
    remote: str
    excerpt: str
    tenant: str | None
    queue: str | None


class RefusalsResponse(Struct):
    """The last refusals of a webhook, newest first."""

    refusals: list[RefusalView]
