"""I15 for staging: killed at any write and started again, each epoch is in the logs once, whole and in order."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from skep.model import MessageFilter
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.support.crash_staging import EPOCHS, KEYS, PARTITIONS, Sink, epoch_key, run_sink, texts
from tests.support.forked import FORKED
from tests.support.postgres import running_postgres

MODES = ("kill", "tear", "power")
SAMPLES = 30


def run_until(path: Path, attempt: int, deadly: int, mode: str) -> list[int]:
    """What a sink told before it died: the epochs it saw published, and at the end how many writes it took, negative."""
    ours, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=run_sink, args=(str(path), attempt, deadly, mode, theirs))
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


async def check(store: Store, acknowledged: list[int]) -> None:
    """Each epoch is there whole or not at all; one that was acknowledged is."""
    logs = []
    for key in KEYS:
        found = []
        if await store.get_queue(key) is not None:
            page = await store.messages(MessageFilter(queue=key, limit=1000), 0)  # type: ignore[arg-type] # any instant
            found = [message.payload.decode() for message in page.messages]
        whole = [text for e in range(EPOCHS) for p in range(PARTITIONS) for text in texts(e, p, key.name)]
        size = PARTITIONS * 5
        assert len(found) % size == 0, f"I15: a part of an epoch is in {key.name}: {found}"
        assert found == whole[: len(found)], f"I15: {key.name} has {found}"
        logs.append(len(found) // size)
    assert logs[0] == logs[1], f"I15: the queues of one epoch differ: {logs}"
    assert logs[0] > max(acknowledged, default=-1), "I1: an epoch that was acknowledged is gone"


async def check_file(path: Path, acknowledged: list[int]) -> None:
    store = SqliteStore(path)
    await store.open()
    try:
        await check(store, acknowledged)
    finally:
        await store.close()


def crash_and_go_on(folder: Path, deadly: int, mode: str, tables: Path | None = None) -> None:
    """Die once, be started again under a new attempt, and finish; with a file that has its ``tables``, or from nothing."""
    path = folder / f"{mode}-{deadly}.db"
    if tables is not None:
        shutil.copy(tables, path)
    first = run_until(path, 1, deadly, mode)
    asyncio.run(check_file(path, [epoch for epoch in first if epoch >= 0]))
    second = run_until(path, 2, 0, mode)
    assert [epoch for epoch in second if epoch >= 0] == list(range(EPOCHS))
    asyncio.run(check_file(path, list(range(EPOCHS))))
    for left in folder.glob(f"{path.name}*"):
        left.unlink()


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many writes the whole run takes."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    told = run_until(path, 1, 0, "kill")
    assert [epoch for epoch in told if epoch >= 0] == list(range(EPOCHS))
    return -1 - told[-1]


@pytest.mark.slow
def test_I15_epochs_survive_a_death_at_any_write(writes: int, tmp_path: Path) -> None:
    for number in range(SAMPLES):
        crash_and_go_on(tmp_path, 1 + number * writes // SAMPLES, MODES[number % len(MODES)])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with its tables. Half of all writes make these, and deaths among them are a matter of `test_crash`."""
    path = tmp_path_factory.mktemp("tables") / "tables.db"
    asyncio.run(check_file(path, []))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_I15_epochs_survive_a_death_at_every_write(tables: Path, tmp_path: Path, mode: str) -> None:
    whole = tmp_path / "whole.db"
    shutil.copy(tables, whole)
    for deadly in range(1, -run_until(whole, 1, 0, mode)[-1]):
        crash_and_go_on(tmp_path, deadly, mode, tables)


def test_I15_epochs_survive_the_death_of_postgres() -> None:
    with running_postgres() as server:
        dsn = server.create_database()

        async def story() -> None:
            store = PostgresStore(dsn)
            await store.open()
            sink = Sink(store, 1, lambda _: None)
            await sink.write(0)
            publishing = asyncio.ensure_future(sink.publish(0))
            await asyncio.to_thread(server.kill)
            await asyncio.gather(publishing, return_exceptions=True)
            await store.close()
            server.start()
            store = PostgresStore(dsn)
            await store.open()
            await check(store, [])
            await Sink(store, 2, lambda _: None).run()
            await check(store, list(range(EPOCHS)))
            assert await store.staged(epoch_key(0)) == []
            await store.close()

        asyncio.run(story())
