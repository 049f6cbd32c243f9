"""A long write-ahead log is cut in small steps that callers go between, and no step takes what is in use."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import NewMessage, PushBatch, QueueKey, QueueSettings
from skep.store.sqlite import SqliteStore
from skep.store.sqlite.checkpoints import LONG_BYTES, SHORTEN_BYTES, Checkpoints, Cut

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
    cut = Checkpoints.cut

    def noted(checkpoints: Checkpoints) -> Cut:
        result = cut(checkpoints)
        sizes.append(log_of(tmp_path).stat().st_size)
        return result

    monkeypatch.setattr(Checkpoints, "cut", noted)
    checkpoints_of(store).cut_soon()

    await store.maintain()

    assert len(sizes) > 5
    assert all(before - after <= SHORTEN_BYTES for before, after in pairwise(sizes[:-1]))
    assert sizes[-2] <= LONG_BYTES
    assert sizes[-1] == 0


async def test_I1_pushes_between_the_steps_of_a_cut_are_kept(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    stored, step, cut = 30, 0, Cut.SHORTER
    while cut is Cut.SHORTER:
        step, cut = step + 1, checkpoints.cut()
        assert await messages_of_a_copy(tmp_path, tmp_path / f"cut {step}") == stored
        await pushed(store)
        stored += 1
        if step % 2:
            checkpoints.end()  # as after a checkpoint that began before the cut
        assert await messages_of_a_copy(tmp_path, tmp_path / f"pushed {step}") == stored

    assert step > 5
    assert cut is Cut.DONE


async def test_I1_what_another_process_commits_between_the_steps_is_kept(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    other = apsw.Connection(str(tmp_path / "skep.db"))
    other.execute("CREATE TABLE notes (text)")
    written, cut = 0, Cut.SHORTER
    while cut is Cut.SHORTER:
        cut = checkpoints.cut()
        if written < 3:
            other.execute("INSERT INTO notes VALUES (?)", ("x" * 2_000_000,))
            written += 1
        assert other.execute("SELECT count(*), sum(length(text)) FROM notes").get == (written, written * 2_000_000)
        assert await messages_of_a_copy(tmp_path, tmp_path / f"cut {written} {log_of(tmp_path).stat().st_size}") == 30
    other.close()

    assert cut is Cut.DONE
    assert written == 3


async def test_a_reader_between_the_steps_keeps_what_it_reads(store: SqliteStore, tmp_path: Path) -> None:
    checkpoints = checkpoints_of(store)
    assert checkpoints.cut() is Cut.SHORTER
    await pushed(store)
    reader = apsw.Connection(str(tmp_path / "skep.db"), flags=apsw.SQLITE_OPEN_READONLY)
    rows = reader.execute("SELECT payload FROM message")
    next(rows)
    before = log_of(tmp_path).stat().st_size

    assert checkpoints.cut() is Cut.IN_USE

    checkpoints.end()
    assert checkpoints.cut() is Cut.IN_USE
    await pushed(store)
    assert log_of(tmp_path).stat().st_size >= before
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


async def test_a_store_that_is_closed_refuses_a_cut_with_a_code(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    writer = store._writer
    assert writer is not None
    await store.close()

    with pytest.raises(SkepError) as failed:
        await writer.cut_log("the keys are destroyed")
    assert failed.value.code is Code.STOPPING


async def test_a_log_that_does_not_become_shorter_is_left_for_later(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may write in the moment in which the log could begin anew."""
    monkeypatch.setattr(Checkpoints, "_shorten", lambda *_: None)

    assert checkpoints_of(store).cut() is Cut.IN_USE
    assert checkpoints_of(store).wants_cut
