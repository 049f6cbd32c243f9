"""Pops with auto_ack of a server with master keys: messages are leased, opened, and then acked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from skep.clock import Instant, ManualClock
from skep.crypto.master import MasterKeys, new_master_line
from skep.engine import Engine
from skep.model import (
    NewMessage,
    PopRequest,
    PopResult,
    QueueKey,
    QueueSettings,
    Settlement,
    SettleResult,
    Token,
)
from skep.server.compose import open_engine

PAYMENTS = QueueKey("payments")
MASTERS = MasterKeys(new_master_line("first"))


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Engine]:
    url = str(tmp_path / "skep.db") if request.param == "sqlite" else request.getfixturevalue("empty_tables_dsn")
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        yield engine


async def test_I6_a_pop_that_acks_too_late_hands_out_nothing_that_comes_again(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process stood still between the lease and the ack, and another pop has the message by then."""
    await engine.push([NewMessage(PAYMENTS, b"1", partition="a"), NewMessage(PAYMENTS, b"2", partition="b")])
    store = engine._store
    settle = store.settle
    others: list[PopResult] = []

    async def late(settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        monkeypatch.setattr(store, "settle", settle)
        clock.advance(1_000)
        others.extend(
            await store.pop([PopRequest(PAYMENTS, token=Token(engine._ids.mint()), partition="a")], engine.now())
        )
        return await settle(settlements, now)

    monkeypatch.setattr(store, "settle", late)
    popped = await engine.pop(PopRequest(PAYMENTS, batch=2, auto_ack=True))

    assert [one.partition for result in others for one in result.deliveries] == ["a"]
    assert [one.partition for one in popped.deliveries] == ["b"]
