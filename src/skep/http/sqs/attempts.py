"""Receive attempt ids: a repeated receive of a FIFO queue gets the messages of the first one, while they are still its own.

Which messages these were is remembered here, for a few minutes; whether they are still leased is asked of the store, by renewing the leases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.model import Delivery, QueueKey, Renewal

REMEMBERED = 1_000
REMEMBERED_BYTES = 32 * 1_024 * 1_024
"""The most bytes of bodies that are remembered; of a larger receive a repeat gets nothing until its messages are visible again."""
REMEMBERED_SECONDS = 300.0


class _Received(NamedTuple):
    deliveries: Sequence[Delivery]
    until: Instant
    size_bytes: int


class Attempts:
    """The receives of this process that named an attempt id."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received: dict[tuple[QueueKey, str], _Received] = {}
        self._held_bytes = 0

    def remember(self, key: QueueKey, attempt: str, deliveries: Sequence[Delivery]) -> None:
        """Note what a receive got; the oldest ones are forgotten for it."""
        self._forget(key, attempt)
        size = sum(len(one.payload) + len(one.headers or b"") for one in deliveries)
        if size > REMEMBERED_BYTES:
            return
        while self._received and (len(self._received) >= REMEMBERED or self._held_bytes + size > REMEMBERED_BYTES):
            self._forget(*next(iter(self._received)))
        until = Instant(self._engine.now() + seconds(REMEMBERED_SECONDS))
        self._received[key, attempt] = _Received(deliveries, until, size)
        self._held_bytes += size

    def _forget(self, key: QueueKey, attempt: str) -> None:
        found = self._received.pop((key, attempt), None)
        if found is not None:
            self._held_bytes -= found.size_bytes

    async def again(self, key: QueueKey, attempt: str, lease_seconds: float) -> Sequence[Delivery] | None:
        """The messages of an earlier receive, leased for longer; None when there was none, or one of them is held no longer."""
        found = self._received.get((key, attempt))
        if found is None or found.until <= self._engine.now():
            return None
        renewals = [
            Renewal(
                queue=key, partition=one.partition, token=one.token, lease_seconds=lease_seconds, group=one.group, seq=one.seq,
            )
            for one in found.deliveries
        ]  # fmt: skip
        if any(result.code is not None for result in await self._engine.renew(renewals)):
            self._forget(key, attempt)
            return None
        return found.deliveries
