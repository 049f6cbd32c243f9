"""A long write-ahead log is cut in small steps that callers go between, and no step takes what is in use."""

from __future__ import annotations

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


async def test_a_long_log_is_cut_in_steps(store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [log_of(tmp_path).stat().st_size]
    shorten = Checkpoints.shorten

    def noted(checkpoints: Checkpoints) -> bool:
        more = shorten(checkpoints)
        sizes.append(log_of(tmp_path).stat().st_size)
        return more

    monkeypatch.setattr(Checkpoints, "shorten", noted)
    checkpoints_of(store).cut_soon()

    await store.maintain()

    assert len(sizes) > 5
    assert max(before - after for before, after in pairwise(sizes)) <= SHORTEN_BYTES
    assert sizes[-1] < 2 * SHORTEN_BYTES
    assert log_of(tmp_path).stat().st_size == 0


async def test_I1_pushes_between_the_steps_of_a_cut_are_kept(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    assert checkpoints.begin_anew()
    assert checkpoints.shorten()
    assert await messages_of_a_copy(tmp_path, tmp_path / "begun") == 30
    stored, more = 30, True
    for step in range(40):
        more = checkpoints.shorten() and more
        await pushed(store)  # 0.2 MB a step, so that the log in use and the end of the file meet
        stored += 1
        if step % 8 == 0:
            assert await messages_of_a_copy(tmp_path, tmp_path / str(step)) == stored

    assert not more
    assert await messages_of_a_copy(tmp_path, tmp_path / "end") == stored
    assert checkpoints.cut()
    assert await messages_of_a_copy(tmp_path, tmp_path / "cut") == stored


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
