"""Room that is free goes back to the disk: by itself in files that were made for it, and at once when a file is written anew."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.store.sqlite import SqliteStore, vacuum
from skep.store.sqlite.connection import migrate
from tests.contract.driver import Driver

SECRET = "4711-" * 600
KEPT = 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "skep.db"


@pytest.fixture
def old_file(file: Path) -> Path:
    """A file as an older Skep made it."""
    db = apsw.Connection(os.fspath(file))
    db.pragma("journal_mode", "WAL")
    migrate(db, os.fspath(file))
    assert db.pragma("auto_vacuum") == 0
    db.close()
    return file


@pytest.fixture
async def driver(file: Path) -> AsyncIterator[Driver]:
    driver = await opened(file)
    yield driver
    await driver.store.close()


async def opened(file: Path) -> Driver:
    store = SqliteStore(file)
    await store.open()
    return Driver(store, ManualClock(), "tenant")


def size_of(file: Path) -> int:
    return file.stat().st_size


def mode_of(file: Path) -> int:
    return file.stat().st_mode & 0o777


async def pragma(driver: Driver, name: str) -> int:
    assert isinstance(driver.store, SqliteStore)
    return await driver.store._write(lambda session: int(str(session.db.pragma(name))))


async def fill_and_retain(driver: Driver) -> None:
    """Push much, keep a little, and let retention take the rest."""
    await driver.create("q", retention_seconds=10, retention_ignores_groups=True)
    for _ in range(12):
        await driver.push_messages(*(driver.message(SECRET) for _ in range(150)))
    driver.clock.advance(60)
    await driver.push(*map(str, range(KEPT)))
    while (await driver.retain()).more:
        pass


async def keep_house(driver: Driver) -> None:
    """Chores, as often as it takes until it does nothing more."""
    pages = -1
    while pages != (pages := await pragma(driver, "page_count")):
        await driver.store.maintain()
    await driver.store.maintain()


async def test_the_file_is_smaller_after_retention_and_chores(driver: Driver, file: Path) -> None:
    await fill_and_retain(driver)
    await driver.store.maintain()
    full = await pragma(driver, "page_count") + vacuum.STEPS * vacuum.STEP_PAGES

    await keep_house(driver)

    pages = await pragma(driver, "page_count")
    assert pages < full / 8
    assert size_of(file) == pages * await pragma(driver, "page_size")
    assert len((await driver.browse()).messages) == KEPT


async def test_a_step_gives_back_a_few_pages_only(driver: Driver) -> None:
    await fill_and_retain(driver)
    before = await pragma(driver, "page_count")

    await driver.store.maintain()

    given_back = before - await pragma(driver, "page_count")
    # Pages that say where others are come and go with these.
    assert 0 < given_back <= vacuum.STEPS * (vacuum.STEP_PAGES + 1)


async def test_what_a_queue_needs_again_soon_is_not_given_back(driver: Driver) -> None:
    await driver.create("q", retention_seconds=10, retention_ignores_groups=True)
    for _ in range(12):
        await driver.push_messages(*(driver.message(SECRET) for _ in range(150)))
        driver.clock.advance(1)
    await driver.retain()
    while (await driver.retain()).more:
        pass
    free = await pragma(driver, "freelist_count")

    await keep_house(driver)

    assert await pragma(driver, "freelist_count") == free > 0


async def test_what_was_destroyed_is_nowhere_in_the_files_after_they_shrank(driver: Driver, file: Path) -> None:
    await fill_and_retain(driver)
    await keep_house(driver)

    assert SECRET[:40].encode() not in b"".join(one.read_bytes() for one in file.parent.iterdir())


async def test_a_file_of_an_older_version_shrinks_once_it_was_written_anew(old_file: Path) -> None:
    driver = await opened(old_file)
    await fill_and_retain(driver)
    full = await pragma(driver, "page_count")
    await keep_house(driver)
    assert await pragma(driver, "page_count") == full
    await driver.store.close()
    size = size_of(old_file)

    done = vacuum.rewrite(old_file)

    assert (done.bytes_before, done.bytes_after) == (size, size_of(old_file))
    assert done.bytes_after < size / 8
    driver = await opened(old_file)
    assert await pragma(driver, "auto_vacuum") == vacuum.INCREMENTAL
    assert len((await driver.browse()).messages) == KEPT
    await driver.update(retention_seconds=3_600)
    await fill_again(driver)
    before = await pragma(driver, "page_count")
    await keep_house(driver)
    assert await pragma(driver, "page_count") < before / 8
    await driver.store.close()


async def fill_again(driver: Driver) -> None:
    for _ in range(12):
        await driver.push_messages(*(driver.message(SECRET) for _ in range(150)))
    driver.clock.advance(7_200)
    while (await driver.retain()).more:
        pass


async def test_what_the_old_file_held_is_overwritten(driver: Driver, file: Path) -> None:
    await fill_and_retain(driver)
    await driver.store.close()
    os.link(file, file.with_name("same"))

    vacuum.rewrite(file)

    assert not any(file.with_name("same").read_bytes())
    assert sorted(one.name for one in file.parent.iterdir()) == ["same", "skep.db", "skep.db.lock"]
    assert mode_of(file) == 0o600
    await driver.store.open()


async def test_a_file_that_a_server_has_is_not_written_anew(driver: Driver, file: Path) -> None:
    await driver.push("1")

    with pytest.raises(SkepError) as refused:
        vacuum.rewrite(file)

    assert refused.value.code is Code.STORE_BUSY
    assert len((await driver.browse()).messages) == 1


async def test_what_a_rewriting_left_that_was_cut_short_goes_when_the_file_is_opened(
    driver: Driver, file: Path
) -> None:
    await driver.store.close()
    left = vacuum.new_file(file)
    left.write_text(SECRET)
    os.link(left, file.with_name("same"))

    await driver.store.open()

    assert not left.exists()
    assert not any(file.with_name("same").read_bytes())


def test_a_file_that_is_not_there_is_not_made(file: Path) -> None:
    with pytest.raises(SkepError) as refused:
        vacuum.rewrite(file)

    assert refused.value.code is Code.STORE_UNAVAILABLE
    assert list(file.parent.iterdir()) == []
