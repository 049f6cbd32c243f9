"""Leases as data: the token that fences one, its renewal, and who holds what."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.model.group import QUEUE_MODE_GROUP
from skep.model.queue import QueueKey, Seq

Token = NewType("Token", bytes)
NO_TOKEN = Token(b"")
WHOLE_LEASE = Seq(2**63 - 1)
"""The seq of an ACK_THROUGH that means all messages of the lease: no message has a greater one."""


class Renewal(Struct, frozen=True, kw_only=True):
    """A wish to keep a lease for longer, counted from now."""

    queue: QueueKey
    partition: str
    token: Token
    lease_seconds: float
    group: str = QUEUE_MODE_GROUP


class RenewResult(Struct, frozen=True):
    """The new deadline, or the code that says why there is none."""

    deadline: Instant | None
    code: Code | None = None


class LeaseInfo(Struct, frozen=True, kw_only=True):
    """A live lease. ``consumer`` is who holds it, as the pop said it; None when it did not say."""

    queue: QueueKey
    group: str
    partition: str
    messages: int
    first_seq: Seq
    last_seq: Seq
    leased_at: Instant
    deadline: Instant
    attempts: int
    consumer: str | None = None
