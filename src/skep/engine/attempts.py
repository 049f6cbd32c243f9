"""The deliveries of a message to each group: how they ended, why they failed, and which consumer held it.

Three sources are joined: the lease history (as far as a bounded search finds), the latest failed attempts (complete), and the live
leases. A delivery that two sources know appears once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from skep.clock import Instant
from skep.model import LeaseInfo
from skep.model.history import FailedAttempt, FinishedLease, Journey
from skep.store.rules import LEASE_RAN_OUT

BAD = frozenset({"dead", "retried", "expired"})
IN_FLIGHT = "in_flight"


class DeliveryAttempt(Struct, frozen=True):
    """One delivery of a message: its start, its end (None for a live lease), its outcome, and its error.

    ``messages`` is the number of messages in the lease. The outcome ``returned``: the lease ended with a neighbour's failure.
    """

    group: str
    attempt: int
    leased_at: Instant
    settled_at: Instant | None
    outcome: str
    deadline: Instant | None = None
    messages: int = 1
    error: str | None = None
    consumer: str | None = None

    @property
    def is_bad(self) -> bool:
        """Whether the delivery failed."""
        return self.outcome in BAD


def story(
    journey: Journey, finished: Sequence[FinishedLease], failed: Sequence[FailedAttempt], live: Sequence[LeaseInfo]
) -> list[DeliveryAttempt]:
    """All known deliveries of a message, in the order in which they began."""
    why = {(one.group, one.attempt, one.failed_at): one for one in failed}
    told = []
    for lease in finished:
        failure = why.pop((lease.group, lease.attempt, lease.settled_at), None)
        told.append(
            DeliveryAttempt(
                lease.group, lease.attempt, lease.leased_at, lease.settled_at, lease.outcome, None, lease.messages,
                None if failure is None else failure.error, None if failure is None else failure.consumer,
            )
        )  # fmt: skip
    told += [
        DeliveryAttempt(
            one.group, one.attempt, one.leased_at, one.failed_at,
            "expired" if one.error == LEASE_RAN_OUT and one.outcome == "retried" else one.outcome, error=one.error,
            consumer=one.consumer,
        )
        for one in why.values()
    ]  # fmt: skip
    told += [
        DeliveryAttempt(
            one.group, one.attempts, one.leased_at, None, IN_FLIGHT, one.deadline, one.messages, consumer=one.consumer
        )
        for one in live
        if one.partition == journey.partition and one.first_seq <= journey.seq <= one.last_seq
    ]
    return sorted(told, key=lambda one: (one.leased_at, one.attempt))
