"""How a message fared with each group: finished deliveries from the lease history, and the one that is under way."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from skep.clock import Instant
from skep.engine import Engine
from skep.histories import FinishedLease, Journey
from skep.model import QueueKey, StoredMessage

LIVE_LEASES = 1_000
"""Live leases of a queue that are looked through for those of a message."""
_BAD = {"dead", "retried", "expired"}


class Delivery(Struct, frozen=True):
    """A message in someone's hands: from when, until when (None while it is), and how that went."""

    group: str
    attempt: int
    leased_at: Instant
    settled_at: Instant | None
    outcome: str
    deadline: Instant | None = None
    batch: int = 1

    @property
    def is_bad(self) -> bool:
        """Whether it went wrong."""
        return self.outcome in _BAD


async def deliveries_of(engine: Engine, messages: Sequence[StoredMessage]) -> list[list[Delivery]]:
    """The deliveries of each message, oldest first."""
    journeys = [Journey(one.queue, one.partition, one.seq, one.created_at) for one in messages]
    finished = await engine.past.deliveries(journeys)
    live: dict[QueueKey, list[tuple[str, int, int, Delivery]]] = {}
    for key in dict.fromkeys(one.queue for one in messages):
        leases = await engine.look.leases(key.tenant, key=key, limit=LIVE_LEASES)
        live[key] = [
            (
                lease.partition, lease.first_seq, lease.first_seq + lease.messages - 1,
                Delivery(lease.group, lease.attempts, lease.leased_at, None, "in flight", lease.deadline, lease.messages),
            )
            for lease in leases
        ]  # fmt: skip
    found = []
    for message, ended in zip(messages, finished, strict=True):
        under_way = [
            delivery
            for partition, first, last, delivery in live[message.queue]
            if partition == message.partition and first <= message.seq <= last
        ]
        found.append(sorted([*map(_finished, ended), *under_way], key=lambda one: one.leased_at))
    return found


def _finished(lease: FinishedLease) -> Delivery:
    return Delivery(lease.group, lease.attempt, lease.leased_at, lease.settled_at, lease.outcome, None, lease.messages)
