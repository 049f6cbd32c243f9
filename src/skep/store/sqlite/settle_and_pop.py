"""Settlements, then pops for requests that wait for the freed messages, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.model import PopRequest, PopResult, Settlement, SettleResult
from skep.store.sqlite.pop import has_undiscovered, pop_if_any
from skep.store.sqlite.session import Session
from skep.store.sqlite.settle import settle


def settle_and_pop(
    session: Session, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
) -> tuple[list[SettleResult], list[PopResult | None]]:
    """Settle, then pop for each request whose queue and group got free messages, or has some in the log that it never looked at."""
    results = settle(session, settlements, now)
    freed = {(s.queue, s.group) for s, r in zip(settlements, results, strict=True) if r.frees}
    popped = [
        pop_if_any(session, request, now)
        if (request.queue, request.group) in freed or has_undiscovered(session, request)
        else None
        for request in requests
    ]
    return results, popped
