"""Leases (visibility timeouts) as data: the token that fences a lease, its renewal, and live leases."""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.model.group import QUEUE_MODE_GROUP
from skep.model.queue import QueueKey, Seq

Token = NewType("Token", bytes)
NO_TOKEN = Token(b"")
WHOLE_LEASE = Seq(2**63 - 1)
"""The seq of an ACK_THROUGH that means all messages of the lease: no message has a greater one."""


class Renewal(Struct, frozen=True, kw_only=True):
    """A request to keep a lease for ``lease_seconds`` from now.

    With a ``seq`` it is for that message of the lease. In an unordered queue the others keep their deadline. In an ordered queue
    the messages of a lease have one deadline, which moves if the lease has the message.
    """

    queue: QueueKey
    partition: str
    token: Token
    lease_seconds: float
    group: str = QUEUE_MODE_GROUP
    seq: Seq | None = None


class RenewResult(Struct, frozen=True):
    """The new deadline; None with a ``code`` when the renewal was refused."""

    deadline: Instant | None
    code: Code | None = None


class LeaseInfo(Struct, frozen=True, kw_only=True):
    """A live lease. ``consumer`` is the header of the pop that holds it; None when the pop sent none."""

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


class LeaseFilter(Struct, frozen=True, kw_only=True):
    """A filter of a group's leases: those in a ``partition``, under a ``token``, or both. At least one of them is given."""

    queue: QueueKey
    group: str = QUEUE_MODE_GROUP
    partition: str | None = None
    token: Token | None = None


class LeasedMessage(Struct, frozen=True, kw_only=True, gc=False):
    """An unsettled message under a live lease, with its names: its seq, its id, and its transaction id."""

    partition: str
    seq: Seq
    id: Id
    transaction_id: str | None
    token: Token
    deadline: Instant
