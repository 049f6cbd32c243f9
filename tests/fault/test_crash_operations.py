"""I13 at every write: killed at any of them and started again, each queued push takes effect once, whole and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.model import DeadLetterFilter, MessageFilter, QueueKey
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.support.crash_operations import KEY, POISON, Server, run_server
from tests.support.forked import FORKED

MODES = ("kill", "tear", "power")
SAMPLES = 12


def run_until(path: Path, deadly: int, mode: str) -> list[int]:
    """The pushes that were answered before the server died, and at the end how many writes it took, negative."""
    ours, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=run_server, args=(str(path), deadly, mode, theirs))
    process.start()
    theirs.close()
    told: list[int] = []
    try:
        while True:
            told.append(ours.recv())
    except EOFError:
        process.join()
    assert process.exitcode == (0 if told and told[-1] < 0 else -9)
    return told


async def _texts(store: Store, key: QueueKey) -> list[str]:
    if await store.get_queue(key) is None:
        return []
    page = await store.messages(MessageFilter(queue=key, limit=1000), 0)  # type: ignore[arg-type] # any instant
    return [message.payload.decode().strip('"') for message in page.messages]


async def check(path: Path, answered: list[int]) -> None:
    store = SqliteStore(path)
    await store.open()
    try:
        # No time has passed: what a dead process had claimed is free again, since nobody else has the file.
        await Server(store, 0, lambda _: None).drain()
        log, dead = await _texts(store, KEY), await _texts(store, QueueKey("q.dead", "crash"))
        assert len(set(log)) == len(log), f"I13: something was done twice: {log}"
        for partition in range(2):
            mine = [text for text in log if int(text.split(".")[0]) % 2 == partition]
            assert mine == sorted(mine, key=lambda text: tuple(map(int, text.split(".")))), f"I13: out of order: {mine}"
        there = {int(text.split(".")[0]) for text in log + dead}
        assert set(answered) <= there, "I1: a push that was answered is gone"
        assert len(there - set(answered)) <= 1, "I2: something is there that nobody pushed"
        for number in there:
            expected = [f"{number}.0", f"{number}.1"]
            where = dead if number == POISON and expected[0] in dead else log
            assert [text for text in where if text.startswith(f"{number}.")] == expected, "I15: half of a push is there"
        if dead:
            assert dead == [f"{POISON}.0", f"{POISON}.1"], f"I11: {dead}"
            letters = await store.dead_letters(DeadLetterFilter(queue=QueueKey("q.dead", "crash")), None, 10)
            assert [letter.error for letter in letters] == ["poison"] * 2
    finally:
        await store.close()


@pytest.mark.parametrize("mode", MODES)
def test_I13_operations_killed_at_any_write_take_effect_once(tmp_path: Path, mode: str) -> None:
    kill_at_some(tmp_path, mode, SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_I13_operations_killed_at_every_write_take_effect_once(tmp_path: Path, mode: str) -> None:
    kill_at_some(tmp_path, mode, 100_000)


def kill_at_some(tmp_path: Path, mode: str, samples: int) -> None:
    whole = run_until(tmp_path / "whole.db", 0, "kill")
    asyncio.run(check(tmp_path / "whole.db", whole[:-1]))
    writes = -1 - whole[-1]
    for deadly in range(1, writes + 1, max(1, writes // samples)):
        path = tmp_path / f"{deadly}.db"
        told = run_until(path, deadly, mode)
        asyncio.run(check(path, [number for number in told if number >= 0]))
