"""Spooled pushes that the store does not take: they wait and hold only their own queue or partition, or are given up."""

from __future__ import annotations

import asyncio

import pytest

from skep.engine.push.spool.spool import SpoolState
from skep.errors import Code, SkepError
from skep.model import (
    SEALED_TYPE,
    DeadLetterFilter,
    PopRequest,
    PushStatus,
    QueueChanges,
    QueueKey,
    QueueSettings,
)
from tests.engine.test_encryption import MASTERS
from tests.spool.driver import SpoolDriver
from tests.spool.outage import CutOff
from tests.spool.words import Q, statuses


async def test_a_full_queue_makes_its_own_records_wait_and_no_others(driver: SpoolDriver, store: CutOff) -> None:
    await driver.engine.create_queue(Q, QueueSettings(max_depth=3))
    await driver.push("0", "1")
    await driver.cut()
    await driver.push("2", "3")
    await driver.push("4")
    await driver.push("other", queue="r")
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 1, passing=0.5)
    assert await driver.log("r") == ["other"]
    popped = await driver.engine.pop(PopRequest(Q, batch=2))
    await driver.engine.settle([delivery.settlement() for delivery in popped.deliveries])
    await driver.drained()
    # "4" would have fitted before, and must not have overtaken.
    assert await driver.log() == ["0", "1", "2", "3", "4"]


async def test_what_finds_no_room_becomes_dead_letters_and_is_counted(driver: SpoolDriver, store: CutOff) -> None:
    await driver.engine.create_queue(Q, QueueSettings(max_depth=1))
    await driver.push("0")
    await driver.cut()
    await driver.push("1", "2")
    await driver.mend()
    assert (driver.figures.failed, driver.figures.flushed) == (2, 0)
    dead = await store.inner.dead_letters(DeadLetterFilter(queue=QueueKey("q.dead")), None, 10)
    assert sorted(letter.payload for letter in dead) == [b"1", b"2"]
    assert "QUEUE_FULL" in (dead[0].error or "")
    assert not list(driver.folder.rglob("*.record"))


async def test_what_no_dead_letter_queue_takes_is_set_aside(driver: SpoolDriver, store: CutOff) -> None:
    await driver.engine.create_queue(Q, QueueSettings(max_depth=1, dead_letter_queue="none"))
    await driver.push("0")
    await driver.cut()
    await driver.push("1")
    await driver.mend()
    assert driver.figures.failed == 1
    (aside,) = driver.folder.rglob("*.record")
    assert aside.parent.name == "refused"
    assert not list(driver.folder.rglob("pushes.db*"))


async def test_I13_a_record_that_makes_the_store_fail_holds_its_partition_for_hours_and_no_other(
    driver: SpoolDriver, store: CutOff
) -> None:
    store.spoil = {b"poison"}
    await driver.cut()
    await driver.push("1")
    await driver.push("poison")
    await driver.push("2")
    await driver.push("elsewhere", partition="b")
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 2, passing=0.5)
    for _ in range(1_000):  # more than four hours
        driver.clock.advance(15)
        await asyncio.sleep(0)
    assert (driver.figures.failed, driver.figures.pending) == (0, 2)
    assert await driver.log(partition="p") == ["1"]
    assert await driver.log(partition="b") == ["elsewhere"]

    store.spoil = set()
    await driver.until(lambda: driver.figures.pending == 0, passing=5)
    assert await driver.log(partition="p") == ["1", "poison", "2"]


async def test_a_record_that_fails_of_itself_for_longer_than_is_set_becomes_a_dead_letter(
    driver: SpoolDriver, store: CutOff
) -> None:
    store.spoil = {b"poison"}
    await driver.cut()
    await driver.push("1")
    await driver.push("poison")
    await driver.push("2")
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 1, passing=0.5)
    await driver.until(lambda: driver.figures.state is SpoolState.UP, passing=60)
    assert await driver.log(partition="p") == ["1", "2"]
    assert driver.figures.failed == 1
    dead = await store.inner.dead_letters(DeadLetterFilter(queue=QueueKey("q.dead")), None, 10)
    assert [letter.payload for letter in dead] == [b"poison"]


@pytest.mark.parametrize("code", [Code.STORE_BUSY, Code.STORE_FULL, Code.STORE_CORRUPT, Code.STORE_UNAVAILABLE])
async def test_I13_what_the_store_cannot_take_now_is_never_given_up(
    driver: SpoolDriver, store: CutOff, code: Code
) -> None:
    store.spoil, store.spoiled_by = {b"1"}, code
    await driver.cut()
    await driver.push("1")
    await driver.push("2")
    store.down = False
    for _ in range(2_000):  # more than a day
        driver.clock.advance(60)
        await asyncio.sleep(0)
    assert (driver.figures.failed, driver.figures.pending, driver.figures.flushed) == (0, 2, 0)

    store.spoil = set()
    await driver.drained()
    assert await driver.log() == ["1", "2"]


@pytest.mark.parametrize("wait_seconds", [0, 6])
async def test_I13_a_busy_queue_holds_its_own_records_and_no_others(
    driver: SpoolDriver, store: CutOff, wait_seconds: float
) -> None:
    store.spoil, store.spoiled_by = {b"1"}, Code.STORE_BUSY
    store.on_spoiled = lambda: driver.clock.advance(wait_seconds)
    await driver.cut()
    await driver.push("1", queue="busy")
    await driver.push("first", queue="free")
    await driver.push("2", queue="busy")
    await driver.push("second", queue="free")
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 2, passing=0.5)
    assert await driver.log("free") == ["first", "second"]
    assert statuses(await driver.push("third", queue="free")) == {PushStatus.STORED}
    assert statuses(await driver.push("3", queue="busy")) == {PushStatus.BUFFERED}
    for _ in range(1_000):  # hours
        driver.clock.advance(15)
        await asyncio.sleep(0)
    assert (driver.figures.failed, driver.figures.pending) == (0, 3)

    store.spoil = set()
    await driver.drained()
    assert await driver.log("busy") == ["1", "2", "3"]


async def test_I13_a_queue_that_was_busy_is_tried_after_the_others(driver: SpoolDriver, store: CutOff) -> None:
    """Each try of a busy queue takes as long as the store waits for its lock, and the others must not wait for that."""
    flushed_at_failure: list[int] = []
    store.spoil, store.spoiled_by = {b"1", b"3"}, Code.STORE_BUSY
    store.on_spoiled = lambda: flushed_at_failure.append(len(store.pushes))
    await driver.cut()
    await driver.push("1", queue="busy")
    await driver.push("2", queue="free")
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 1, passing=0.5)
    await driver.cut()
    flushed_at_failure.clear()
    await driver.push("3", queue="busy", partition="b")
    await driver.push("4", queue="free")
    driver.clock.advance(60)
    store.down = False
    await driver.until(lambda: len(flushed_at_failure) > 1, passing=0.5)
    assert set(flushed_at_failure) == {2}
    assert store.pushes == [["2"], ["4"]]


async def test_I13_a_push_to_a_busy_queue_and_another_keeps_its_place_in_both(
    driver: SpoolDriver, store: CutOff
) -> None:
    store.spoil, store.spoiled_by = {b"1", b"both"}, Code.STORE_BUSY
    await driver.cut()
    await driver.push("1", queue="busy")
    await driver.push("before", queue="free")
    await driver.engine.push([driver.message("both", "busy"), driver.message("both", "free")], json_checked=True)
    await driver.push("after", queue="free")
    await driver.push("elsewhere", queue="free", partition="b")
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 2, passing=0.5)
    for _ in range(100):
        driver.clock.advance(15)
        await asyncio.sleep(0)
    assert await driver.log("free") == ["before", "elsewhere"]

    store.spoil = set()
    await driver.drained()
    assert await driver.log("busy") == ["1", "both"]
    assert await driver.log("free", partition="p") == ["before", "both", "after"]


@pytest.mark.parametrize("code", [Code.STORE_FULL, Code.STORE_UNAVAILABLE])
async def test_I13_a_store_that_takes_nothing_holds_all_queues(driver: SpoolDriver, store: CutOff, code: Code) -> None:
    store.spoil, store.spoiled_by = {b"1"}, code
    await driver.cut()
    await driver.push("1", queue="a")
    await driver.push("2", queue="b")
    store.down = False
    for _ in range(500):
        driver.clock.advance(1)
        await asyncio.sleep(0)
    assert (store.pushes, driver.figures.pending) == ([], 2)

    store.spoil = set()
    await driver.drained()
    assert store.pushes == [["1", "2"]]


@pytest.mark.parametrize("code", [Code.STORE_BUSY, Code.KEY_UNAVAILABLE])
async def test_I13_what_cannot_be_encrypted_now_waits_and_is_not_set_aside(
    driver: SpoolDriver, store: CutOff, code: Code
) -> None:
    driver.masters = MASTERS
    await driver.restart()
    await driver.push("0")
    await driver.cut()
    await driver.push('"secret"')
    await store.inner.update_queue(Q, QueueChanges(encryption_enabled=True), driver.clock.now())
    store.no_key = SkepError(code, "no key now")
    store.down = False
    for _ in range(200):
        driver.clock.advance(60)
        await asyncio.sleep(0)
    assert (driver.figures.failed, driver.figures.pending) == (0, 1)
    assert not list(driver.folder.rglob("*.record"))

    store.no_key = None
    await driver.drained()
    popped = await driver.engine.pop(PopRequest(Q, batch=3))
    assert [delivery.payload for delivery in popped.deliveries] == [b"0", b'"secret"']


@pytest.mark.parametrize("no_key", [None, SkepError(Code.KEY_UNAVAILABLE, "no key now")])
@pytest.mark.parametrize("is_full", [True, False])
async def test_what_was_spooled_before_its_queue_was_encrypted_is_given_up_encrypted(
    driver: SpoolDriver, store: CutOff, is_full: bool, no_key: SkepError | None
) -> None:
    """For a queue that stays full, and for a fault that comes before anybody says that it must be encrypted."""
    driver.masters = MASTERS
    await driver.restart()
    await driver.engine.create_queue(Q, QueueSettings(max_depth=1))
    await driver.push("0")
    await driver.cut()
    await driver.push('"secret"', '"other"')
    await store.inner.update_queue(Q, QueueChanges(encryption_enabled=True), driver.clock.now())
    store.spoil = set() if is_full else {b'"secret"'}
    store.no_key = no_key
    store.down = False
    if no_key is not None:
        later = driver.clock.now() + 300 * 60_000_000
        await driver.until(lambda: driver.clock.now() >= later, passing=60)
        assert driver.figures.failed == 0
        store.no_key = None
    await driver.until(lambda: driver.figures.state is SpoolState.UP, passing=60)

    assert driver.figures.failed == 2
    assert not list(driver.folder.rglob("*.record"))
    raw = await store.inner.dead_letters(DeadLetterFilter(queue=QueueKey("q.dead")), None, 10)
    assert [letter.content_type for letter in raw] == [SEALED_TYPE] * 2
    opened = await driver.engine.dead_letters.page(DeadLetterFilter(queue=QueueKey("q.dead")))
    assert [letter.payload for letter in opened] == [b'"other"', b'"secret"']


async def test_I13_a_record_given_up_half_way_is_not_stored_after_all(driver: SpoolDriver, store: CutOff) -> None:
    """The server dies when one of its messages is a dead letter already, and then there is room."""
    await driver.engine.create_queue(Q, QueueSettings(max_depth=1))
    await driver.push("0")
    await driver.cut()
    await driver.push("1", "2")
    real = store.inner.quarantine
    calls = []

    async def dying(message: object, *args: object) -> object:
        calls.append(message)
        if len(calls) > 1:
            raise SkepError(Code.STORE_UNAVAILABLE, "cut off")
        return await real(message, *args)  # type: ignore[arg-type]

    store.inner.quarantine = dying  # type: ignore[method-assign,assignment]
    store.down = False
    await driver.until(lambda: len(calls) > 1, passing=1)
    await driver.stop()
    store.inner.quarantine = real  # type: ignore[method-assign]
    store.down = store.suspended = False
    await driver.start()
    await driver.engine.update_queue(Q, QueueChanges(max_depth=100))
    await driver.drained()
    assert await driver.log() == ["0"]
    dead = await store.inner.dead_letters(DeadLetterFilter(queue=QueueKey("q.dead")), None, 10)
    assert sorted(letter.payload for letter in dead) == [b"1", b"2"]
