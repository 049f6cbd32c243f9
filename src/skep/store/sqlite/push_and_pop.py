"""A push, then pops for waiting requests, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.model import PopRequest, PopResult, PushBatch, PushOutcome
from skep.store.sqlite.pop import pop_if_any
from skep.store.sqlite.push import push
from skep.store.sqlite.session import Session


def push_and_pop(
    session: Session,
    batches: Sequence[PushBatch],
    requests: Sequence[PopRequest],
    now: Instant,
    create_queues: bool = True,
) -> tuple[list[PushOutcome], list[PopResult | None]]:
    """Push the batches, then pop for each request."""
    outcomes = push(session, batches, now, create_queues)
    return outcomes, [pop_if_any(session, request, now) for request in requests]
