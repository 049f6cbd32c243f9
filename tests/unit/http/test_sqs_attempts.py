"""Receive attempts are remembered within a bound of bytes."""

from __future__ import annotations

from typing import cast

import pytest

from skep.clock import ManualClock
from skep.engine import Engine
from skep.http.sqs import attempts
from skep.http.sqs.attempts import Attempts
from skep.ids import IdMint
from skep.model import Delivery, QueueKey, Renewal, RenewResult, Seq, Token

KEY = QueueKey("q.fifo")


class Renewing:
    """An engine that renews everything."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.now = self.clock.now

    async def renew(self, renewals: list[Renewal]) -> list[RenewResult]:
        return [RenewResult(self.clock.now()) for _ in renewals]


def delivery(payload: bytes) -> Delivery:
    clock = ManualClock()
    id_ = IdMint(clock).mint()
    at = clock.now()
    return Delivery(KEY, "g", "p", Seq(1), id_, None, id_, None, None, payload, 0, at, 1, Token(bytes(16)), at)


async def test_the_oldest_are_forgotten_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "REMEMBERED_BYTES", 100)
    known = Attempts(cast(Engine, Renewing()))
    for name in "abc":
        known.remember(KEY, name, [delivery(b"x" * 40)])
    assert [await known.again(KEY, name, 1.0) is not None for name in "abc"] == [False, True, True]
    known.remember(KEY, "b", [delivery(b"x" * 60)])
    assert [await known.again(KEY, name, 1.0) is not None for name in "bc"] == [True, True]
    known.remember(KEY, "large", [delivery(b"x" * 101)])
    assert await known.again(KEY, "large", 1.0) is None
    assert await known.again(KEY, "b", 1.0) is not None
