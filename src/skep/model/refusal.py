"""Refused requests to webhooks, as data, to help people who set up a sender."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.model.key import SERVER


class Refusal(Struct, frozen=True):
    """One refused request. ``tenant`` is `SERVER` where no tenant was proven; ``queue`` is empty where the webhook has no queue.

    ``excerpt`` describes the form of the request, without any of its values.
    """

    webhook: str
    at: Instant
    code: str
    status: int
    message: str
    remote: str
    excerpt: str
    tenant: str = SERVER
    queue: str = ""
