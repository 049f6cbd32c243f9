"""Refused requests to webhooks, as data: what somebody who sets up a sender wants to read."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.model.key import SERVER


class Refusal(Struct, frozen=True):
    """One refused request. ``tenant`` is `SERVER` where none was proven; ``queue`` is empty where the webhook has none.

    ``excerpt`` says what the request looked like and has no value that it brought.
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
