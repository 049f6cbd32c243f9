"""A long write-ahead log is cut in small steps that callers go between, and no step takes what is in use."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from skep.clock import ManualClock
from skep.ids import IdMint
from skep.model import NewMessage, PushBatch, QueueKey, QueueSettings
from skep.store.sqlite import SqliteStore
from skep.store.sqlite.checkpoints import SHORTEN_BYTES, Checkpoints

KEY = QueueKey("orders")
CLOCK = ManualClock()
MINT = IdMint(CLOCK)
NOW = CLOCK.now()
LARGE = b'"' + b"x" * 200_000 + b'"'


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store whose log is several MiB long, and not moved by itself."""
    store = SqliteStore(tmp_path / "skep.db", checkpoint_pages=1_000_000)
    await store.open()
    await store.create_queue(KEY, QueueSettings(), NOW)
    for _ in range(30):
        await pushed(store)
    assert log_of(tmp_path).stat().st_size > 5 * SHORTEN_BYTES
    yield store
    await store.close()


def checkpoints_of(store: SqliteStore) -> Checkpoints:
    assert store._writer is not None
    checkpoints = store._writer._session.checkpoints
    assert checkpoints is not None
    return checkpoints


def log_of(folder: Path) -> Path:
    return folder / "skep.db-wal"


async def pushed(store: SqliteStore) -> None:
    await store.push([PushBatch([NewMessage(KEY, LARGE)], MINT.mint_many(1))], NOW)


def copied(folder: Path, copy: Path) -> None:
    copy.mkdir()
    for file in folder.glob("skep.db*"):
        shutil.copy(file, copy)


async def messages_of_a_copy(folder: Path, copy: Path) -> int:
    """How many messages a server would find if the process died now."""
    copied(folder, copy)
    again = SqliteStore(copy / "skep.db")
    await again.open()
    try:
        db = again._writer._session.db  # type: ignore[union-attr]  # it is open
        assert db.pragma("integrity_check") == "ok"
        return (await again.log_bounds(KEY)).last_seq
    finally:
        await again.close()


def steps_of(store: SqliteStore) -> range:
    """The sizes to which a cut shortens the log, one after the other."""
    return range(checkpoints_of(store).log_bytes - SHORTEN_BYTES, SHORTEN_BYTES, -SHORTEN_BYTES)


async def test_a_long_log_is_cut_in_steps(store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [log_of(tmp_path).stat().st_size]
    emptied = Checkpoints._emptied

    def noted(checkpoints: Checkpoints, mode: int) -> bool:
        sizes.append(log_of(tmp_path).stat().st_size)
        return emptied(checkpoints, mode)

    monkeypatch.setattr(Checkpoints, "_emptied", noted)
    checkpoints_of(store).cut_soon()

    await store.maintain()

    assert len(sizes) > 5
    assert all(before - after <= SHORTEN_BYTES for before, after in pairwise(sizes))
    assert sizes[-1] <= 2 * SHORTEN_BYTES
    assert log_of(tmp_path).stat().st_size == 0
    limit = "PRAGMA journal_size_limit"
    assert checkpoints_of(store)._db.execute(limit).get == -1, "else each log that begins anew would be truncated"


async def test_I1_pushes_between_the_steps_of_a_cut_are_kept(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    stored, shortened = 30, 0
    for step, limit in enumerate(steps_of(store)):
        shortened += checkpoints.shorten(limit)
        assert await messages_of_a_copy(tmp_path, tmp_path / f"cut {step}") == stored
        await pushed(store)
        stored += 1
        if step % 2:
            checkpoints.end()  # as after a checkpoint that began before the cut
        assert await messages_of_a_copy(tmp_path, tmp_path / f"pushed {step}") == stored

    assert shortened > 3
    assert checkpoints.cut()
    assert await messages_of_a_copy(tmp_path, tmp_path / "end") == stored


async def test_I1_what_another_process_commits_between_the_steps_is_kept(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    other = apsw.Connection(str(tmp_path / "skep.db"))
    other.execute("CREATE TABLE notes (text)")
    written = 0
    for step, limit in enumerate(steps_of(store)):
        checkpoints.shorten(limit)
        if step < 3:
            other.execute("INSERT INTO notes VALUES (?)", ("x" * 2_000_000,))
            written += 1
        assert other.execute("SELECT count(*), sum(length(text)) FROM notes").get == (written, written * 2_000_000)
        assert await messages_of_a_copy(tmp_path, tmp_path / f"cut {step}") == 30

    assert written == 3
    assert checkpoints.cut()
    assert other.execute("SELECT count(*) FROM notes").get == 3
    other.close()


async def test_a_reader_between_the_steps_keeps_what_it_reads(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    steps = steps_of(store)
    assert checkpoints.shorten(steps[0])
    await pushed(store)
    reader = apsw.Connection(str(tmp_path / "skep.db"), flags=apsw.SQLITE_OPEN_READONLY)
    rows = reader.execute("SELECT payload FROM message")
    next(rows)

    assert not checkpoints.shorten(steps[1])

    checkpoints.end()
    assert not checkpoints.shorten(steps[2])
    assert not checkpoints.cut()
    await pushed(store)
    assert log_of(tmp_path).stat().st_size >= steps[0]
    assert sum(1 for _ in rows) == 30
    reader.close()
    assert await messages_of_a_copy(tmp_path, tmp_path / "copy") == 32
    await store.maintain()
    assert log_of(tmp_path).stat().st_size == 0


async def test_a_log_that_somebody_reads_is_not_shortened(store: SqliteStore, tmp_path: Path) -> None:
    before = log_of(tmp_path).stat().st_size
    reader = apsw.Connection(str(tmp_path / "skep.db"), flags=apsw.SQLITE_OPEN_READONLY)
    rows = reader.execute("SELECT * FROM message")
    next(rows)
    checkpoints_of(store).cut_soon()

    await store.maintain()

    assert log_of(tmp_path).stat().st_size == before
    assert checkpoints_of(store).wants_cut
    assert sum(1 for _ in rows) == 29  # what it reads is all there
    reader.close()
    await store.maintain()
    assert log_of(tmp_path).stat().st_size == 0
    assert not checkpoints_of(store).wants_cut


async def test_a_cut_comes_to_an_end_however_much_is_written_meanwhile(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    shorten = Checkpoints.shorten

    def filled(checkpoints: Checkpoints, limit_bytes: int) -> bool:
        """A step, after which as much was written as it took."""
        nonlocal steps
        steps += 1
        shortened = shorten(checkpoints, limit_bytes)
        os.truncate(log_of(tmp_path), log_of(tmp_path).stat().st_size + SHORTEN_BYTES)
        return shortened

    monkeypatch.setattr(Checkpoints, "shorten", filled)
    most = len(steps_of(store))
    checkpoints_of(store).cut_soon()

    async with asyncio.timeout(60):
        await store.maintain()

    assert 1 < steps <= most
    assert log_of(tmp_path).stat().st_size == 0


@pytest.fixture
def failed_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that were tried. None shortens the log, as if a reader came at each of them."""
    steps: list[int] = []

    def failing(_: Checkpoints, limit_bytes: int) -> bool:
        steps.append(limit_bytes)
        return False

    monkeypatch.setattr(Checkpoints, "shorten", failing)
    return steps


async def test_a_step_that_fails_is_no_reason_not_to_cut(
    store: SqliteStore, tmp_path: Path, failed_steps: list[int]
) -> None:
    """A short reader may come at each step. The cut itself waits for it."""
    checkpoints_of(store).cut_soon()

    await store.maintain()

    assert len(failed_steps) == 1
    assert log_of(tmp_path).stat().st_size == 0


async def test_who_waits_for_a_cut_waits_for_no_steps(
    store: SqliteStore, tmp_path: Path, failed_steps: list[int]
) -> None:
    assert store._writer is not None

    await store._writer.cut_log("the keys are destroyed")

    assert not failed_steps
    assert log_of(tmp_path).stat().st_size == 0


async def test_a_store_keeps_its_locks_until_its_connection_is_closed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has a descriptor of the database: to close that ends all locks that the process has on it."""
    checkpoints_of(store).cut_soon()
    await store.maintain()
    open_then: list[bool] = []
    close = Checkpoints.close

    def noted(checkpoints: Checkpoints) -> None:
        assert checkpoints._file is not None
        try:
            checkpoints._db.pragma("user_version")
        except apsw.ConnectionClosedError:
            open_then.append(False)
        else:
            open_then.append(True)
        close(checkpoints)

    monkeypatch.setattr(Checkpoints, "close", noted)

    await store.close()

    assert open_then == [False]
