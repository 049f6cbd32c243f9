"""The load of `torture` on the stores themselves, without a server: what its clients saw together breaks no promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.model import PushStatus
from skep.store.sqlite import SqliteStore
from tests.support.forked import FORKED
from torture.check import check, occasions
from torture.history import History
from torture.steps import STEPS
from torture.store_load import STORE_STEPS, StoreLoad, run_in_process, run_processes

TRIED = {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12"}


def check_load(history: History) -> None:
    """No violation, and the load was as bad as it was meant to be."""
    assert check(history) == []
    tried = occasions(history)
    assert {name for name in TRIED if not tried[name]} == set()
    assert any(p.result and p.result.status is PushStatus.DUPLICATE for p in history.pushes)
    assert any(s.result and s.result.code is not None for s in history.settles)
    assert {call.verb for call in history.calls} >= {"push", "pop", "settle", "transact", "renew", "release", "seek"}


async def test_I3_I4_I5_I6_hold_over_clients_of_one_process_on_sqlite(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "load.db")
    await store.open()
    try:
        check_load(await run_in_process(StoreLoad(clients=8, steps=60), store))
    finally:
        await store.close()


def test_I3_I4_I5_I6_hold_over_twelve_processes_on_postgresql(postgres_dsn: str, tmp_path: Path) -> None:
    check_load(run_processes(StoreLoad(clients=12, steps=40), postgres_dsn, tmp_path, FORKED))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_I3_I4_I5_I6_hold_for_longer(postgres_dsn: str, tmp_path: Path, seed: int) -> None:
    check_load(run_processes(StoreLoad(clients=12, steps=600, seed=seed), postgres_dsn, tmp_path, FORKED))


def test_steps_on_a_store_are_those_on_a_server_but_for_timers_and_looks() -> None:
    on_a_server: set[object] = set(STEPS.values())
    others = [name for name, step in STORE_STEPS.items() if step not in on_a_server]

    assert others == ["chores", "look"]
