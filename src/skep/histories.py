"""Rows of the histories that a store keeps: leases that ended, and passes of retention."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.model import QueueKey, Seq


class RetentionPass(Struct, frozen=True, kw_only=True):
    """One row of the retention history."""

    queue: QueueKey
    at: Instant
    deleted: int
    first_seq: Seq
    settled_seq: Seq


class FinishedLease(Struct, frozen=True, kw_only=True):
    """One row of the lease history: a lease that ended, and how."""

    queue: QueueKey
    group: str
    partition: str
    first_seq: Seq
    last_seq: Seq
    messages: int
    completed: int
    attempt: int
    leased_at: Instant
    settled_at: Instant
    outcome: str
