"""The load of `torture` on engines in one process, without HTTP: what its clients saw together breaks no promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from skep.clock import SystemClock
from skep.config import EngineSettings
from skep.config.settings import AdmissionSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.engine import Engine
from skep.ids import IdMint
from skep.model import PushStatus
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from torture.check import check, occasions
from torture.engine_load import ENGINE_STEPS, run_on_engines
from torture.history import History
from torture.steps import STEPS
from torture.store_load import STORE_STEPS

TRIED = {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12"}
MASTERS = MasterKeys(new_master_line("torture"))


@asynccontextmanager
async def engine_on(store: Store, *, shared: bool = False) -> AsyncIterator[Engine]:
    await store.open()
    clock = SystemClock()
    settings = EngineSettings(shared=shared, admission=AdmissionSettings(enabled=False))
    engine = Engine(store, clock, IdMint(clock), Random(7), settings, masters=MASTERS)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
        await store.close()


def check_load(history: History) -> None:
    """No violation, and the load was as bad as it was meant to be."""
    assert check(history) == []
    tried = occasions(history)
    assert {name for name in TRIED if not tried[name]} == set()
    statuses = {pushed.result.status for pushed in history.pushes if pushed.result is not None}
    assert statuses >= {PushStatus.DUPLICATE, PushStatus.BUFFERED, PushStatus.REFUSED}
    assert {call.verb for call in history.calls} >= {"push", "pop", "settle", "transact", "renew", "release", "seek"}


async def test_I1_to_I12_hold_over_clients_of_one_engine(tmp_path: Path) -> None:
    async with engine_on(SqliteStore(tmp_path / "load.db")) as engine:
        check_load(await run_on_engines(8, 40, engine))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_I1_to_I12_hold_over_clients_of_two_engines_on_postgresql(postgres_dsn: str, seed: int) -> None:
    async with (
        engine_on(PostgresStore(postgres_dsn), shared=True) as first,
        engine_on(PostgresStore(postgres_dsn), shared=True) as second,
    ):
        check_load(await run_on_engines(8, 120, first, second, seed=seed))


def test_steps_on_an_engine_are_those_on_a_store_and_some_of_a_server() -> None:
    on_a_server: dict[str, object] = dict(STEPS)
    others = {name for name, step in ENGINE_STEPS.items() if step != STORE_STEPS.get(name)}

    assert set(STORE_STEPS) - set(ENGINE_STEPS) == {"chores"}
    assert others == {"push_burst", "pop_namespace", "rotate"}
    assert all(ENGINE_STEPS[name] == on_a_server[name] for name in others - {"rotate"})
