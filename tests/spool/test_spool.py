"""Pushes while the store is away: on disk before the answer, stored once and in order when it is back."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from skep.clock import Instant
from skep.engine.push.spool.inspect import records
from skep.engine.push.spool.spool import SpoolState
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    Ordering,
    PopRequest,
    PushBatch,
    PushStatus,
    QueueChanges,
    QueueSettings,
    Token,
)
from skep.model.operation import ClaimLimits, NewOperations, OperationKind
from skep.model.record import Receipt, ReceiptKey
from tests.engine.test_encryption import MASTERS
from tests.spool.driver import SpoolDriver
from tests.spool.outage import CutOff
from tests.spool.words import ALL, Q, has_logged, raw_log, statuses
from tests.support.waiting import until_asked


async def test_I1_a_push_is_on_disk_with_its_ids_before_it_is_answered(driver: SpoolDriver) -> None:
    await driver.cut()
    results = await driver.push("1", "2")
    assert statuses(results) == {PushStatus.BUFFERED}
    assert driver.figures.pending == 2
    assert driver.figures.size_bytes > 0
    assert [record.batch.ids for record in records(driver.folder)] == [[result.id for result in results]]

    await driver.mend()

    assert await driver.log() == ["1", "2"]
    page = await driver.engine.browse.messages(ALL)
    assert [m.id for m in page.messages] == [result.id for result in results]
    assert (driver.figures.flushed, driver.figures.pending, driver.figures.size_bytes) == (2, 0, 0)
    assert statuses(await driver.push("3")) == {PushStatus.STORED}


async def test_a_failed_push_makes_the_server_notice_and_is_spooled_itself(driver: SpoolDriver, store: CutOff) -> None:
    await driver.push("0")
    store.down = True
    assert statuses(await driver.push("1")) == {PushStatus.BUFFERED}
    await driver.until(lambda: driver.figures.state is SpoolState.AWAY)
    calls = len(store.pushes)
    await driver.push("2")
    assert len(store.pushes) == calls  # no try
    with pytest.raises(SkepError) as caught:
        await driver.engine.pop(PopRequest(Q))
    assert caught.value.code is Code.STORE_UNAVAILABLE

    await driver.mend()
    assert await driver.log() == ["0", "1", "2"]


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_I13_a_push_of_which_only_the_answer_may_be_lost_is_stored_once(
    driver: SpoolDriver, store: CutOff, lost: str
) -> None:
    store.lose = [lost]
    (result,) = await driver.push("1")
    assert result.status is PushStatus.BUFFERED
    await driver.drained()
    assert await driver.log() == ["1"]
    assert (await driver.engine.browse.messages(ALL)).messages[0].id == result.id
    assert store.resumes == 1  # sessions of before are fenced before the log is believed


async def test_one_broken_session_is_no_outage(driver: SpoolDriver, store: CutOff) -> None:
    store.lose = ["after"]
    await driver.push("1", partition="a")
    assert driver.figures.state is not SpoolState.AWAY
    assert statuses(await driver.push("2", partition="b")) <= {PushStatus.STORED, PushStatus.BUFFERED}
    await driver.drained()
    assert not store.suspended


async def test_a_store_that_hangs_is_away(driver: SpoolDriver, store: CutOff) -> None:
    store.waited = 100.0
    driver.clock.advance(5)
    await asyncio.sleep(0)
    assert driver.figures.state is SpoolState.UP  # it answers a probe: something is slow, no more
    store.down = True
    await driver.until(lambda: driver.figures.state is SpoolState.AWAY, passing=0.1)
    store.waited = 0.0
    store.down = False
    await driver.drained()


async def test_I13_a_later_push_to_the_partition_follows_though_the_store_is_back(
    driver: SpoolDriver, store: CutOff
) -> None:
    await driver.push("0")
    await driver.push("a0", partition="free")
    await driver.cut()
    await driver.push("1")
    # Stored, but not known to be: until then the partition stays diverted.
    store.held = asyncio.Event()
    store.down = False
    await driver.until(lambda: ["1"] in store.pushes, passing=0.5)
    assert driver.figures.state is SpoolState.DRAINING
    late = asyncio.ensure_future(driver.push("2"))
    await driver.until(lambda: late.done() or ["2"] in store.pushes)
    if not late.done():
        store.held.set()  # else it would hang, and not fail
    assert statuses(await late) == {PushStatus.BUFFERED}
    free = asyncio.ensure_future(driver.push("a1", partition="free"))
    await driver.until(lambda: ["a1"] in store.pushes)
    store.held.set()
    assert statuses(await free) == {PushStatus.STORED}
    await driver.drained()
    assert await driver.log(partition="p") == ["0", "1", "2"]
    assert statuses(await driver.push("3")) == {PushStatus.STORED}
    assert await driver.log(partition="p") == ["0", "1", "2", "3"]


async def test_I13_pushes_that_race_with_the_end_of_the_drain_keep_their_order(
    driver: SpoolDriver, store: CutOff
) -> None:
    """Each push begins when the one before it is answered, while the drain begins and ends again and again."""
    for round_ in range(10):
        await driver.cut()
        await driver.push(f"{round_}:0")
        store.down = False
        for number in range(1, 40):
            await driver.push(f"{round_}:{number}")
            driver.clock.advance(0.05)
            for _ in range(number % 7):
                await asyncio.sleep(0)
        await driver.drained()
    assert await driver.log() == [f"{round_}:{number}" for round_ in range(10) for number in range(40)]


async def test_I13_a_push_that_waits_to_be_written_is_not_overtaken(driver: SpoolDriver, store: CutOff) -> None:
    spool = driver.engine.spool
    assert spool is not None
    await driver.cut()
    disk = threading.Event()
    spool._thread.submit(disk.wait)
    first = asyncio.ensure_future(driver.push("0", queue="r"))
    await driver.until(lambda: driver.figures.pending == 1)  # it is being written
    second = asyncio.ensure_future(driver.push("1"))
    store.down = False
    await driver.until(lambda: not spool.away, passing=0.5)
    third = asyncio.ensure_future(driver.push("2"))
    for _ in range(100):
        await asyncio.sleep(0)
    overtakes = third.done()
    disk.set()
    assert not overtakes
    for push in (first, second, third):
        assert statuses(await push) == {PushStatus.BUFFERED}
    await driver.drained()
    assert await driver.log(partition="p") == ["1", "2"]


async def test_I13_a_fifo_queue_is_one_partition_for_the_spool_too(driver: SpoolDriver, store: CutOff) -> None:
    await driver.engine.create_queue(Q, QueueSettings(ordering=Ordering.FIFO))
    await driver.cut()
    await driver.push("1", partition="a")
    store.held = asyncio.Event()
    store.down = False
    await driver.until(lambda: ["1"] in store.pushes, passing=0.5)
    second = asyncio.ensure_future(driver.push("2", partition="b"))
    await driver.until(lambda: second.done() or ["2"] in store.pushes)
    assert ["2"] not in store.pushes
    assert statuses(await second) == {PushStatus.BUFFERED}
    store.held.set()
    await driver.drained()
    assert await driver.log() == ["1", "2"]


async def test_I13_what_was_spooled_is_stored_by_the_next_run(driver: SpoolDriver, store: CutOff) -> None:
    await driver.cut()
    for number in range(50):
        await driver.push(str(number), partition=str(number % 3))
    await driver.stop()
    store.down = store.suspended = False
    await driver.start()
    assert driver.figures.pending == 50
    # Before anything is served, and so before this one.
    await driver.push("50", partition="2")
    await driver.drained()
    assert await driver.log(partition="2") == [str(number) for number in range(2, 51, 3)]
    assert len(await driver.log()) == 51


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_I13_a_drain_that_is_cut_off_stores_each_record_once(
    driver: SpoolDriver, store: CutOff, lost: str
) -> None:
    await driver.cut()
    for number in range(20):
        await driver.push(str(number))
    store.lose = [lost, "", lost, lost]
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 20, passing=0.5)
    await driver.drained()
    assert await driver.log() == [str(number) for number in range(20)]


async def test_I13_a_server_that_dies_between_the_store_and_the_file_stores_each_record_once(
    driver: SpoolDriver, store: CutOff, tmp_path: Path
) -> None:
    """The files as they were before the drain, drained once more."""
    await driver.cut()
    for number in range(5):
        await driver.push(str(number), str(number) + "b")
    kept = {path: path.read_bytes() for path in driver.folder.rglob("pushes.db*") if path.suffix != ".db-shm"}
    await driver.mend()
    await driver.stop()
    for path, data in kept.items():
        path.write_bytes(data)
    await driver.start()
    await driver.drained()
    assert await driver.log() == [f"{number}{end}" for number in range(5) for end in ("", "b")]


async def test_I13_attempts_of_an_earlier_run_are_fenced_by_name(driver: SpoolDriver, store: CutOff) -> None:
    store.down = True
    await driver.push("1")
    await driver.stop()
    store.session, store.down, store.suspended = "skep two", False, False
    await driver.start()
    await driver.drained()
    assert store.fenced == ["skep one"]
    assert await driver.log() == ["1"]


async def test_I13_what_a_process_left_behind_is_taken_over(driver: SpoolDriver, store: CutOff) -> None:
    other = SpoolDriver(store, driver.clock, driver.folder)
    await other.start()
    assert len(list(driver.folder.iterdir())) == 2
    await driver.cut()
    await other.cut()
    await other.push("left")
    await other.stop()
    store.down = False
    await driver.until(lambda: driver.figures.flushed == 1, passing=0.5)
    assert await driver.log() == ["left"]
    await driver.until(lambda: not list(driver.folder.rglob("pushes.db*")), passing=0.5)


async def test_a_cancelled_push_is_stored_whole_or_not_at_all_and_diverts_nothing_for_good(
    driver: SpoolDriver, store: CutOff
) -> None:
    await driver.cut()
    for turns in range(8):
        push = asyncio.ensure_future(driver.push(f"{turns}a", f"{turns}b"))
        for _ in range(turns):
            await asyncio.sleep(0)
        push.cancel()
        await asyncio.gather(push, return_exceptions=True)
    await driver.push("last")
    await driver.mend()
    log = await driver.log()
    assert log[-1] == "last"
    assert all(f"{one[0]}a" in log and f"{one[0]}b" in log for one in log[:-1])
    assert statuses(await driver.push("direct")) == {PushStatus.STORED}
    assert not driver.diverted


async def test_a_full_spool_says_so_and_keeps_what_it_has(store: CutOff, tmp_path: Path, driver: SpoolDriver) -> None:
    await driver.stop()
    driver = SpoolDriver(store, driver.clock, tmp_path / "small", max_bytes=2000)
    await driver.start()
    await driver.cut()
    taken = 0

    async def fill() -> None:
        nonlocal taken
        while True:
            await driver.push(str(taken), partition=f"p{taken}")
            taken += 1

    with pytest.raises(SkepError) as caught:
        await fill()
    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert "full" in caught.value.message
    await driver.mend()
    assert await driver.log() == [str(number) for number in range(taken)]
    assert not driver.diverted
    await driver.stop()


async def test_a_transaction_id_is_stored_once_through_an_outage(driver: SpoolDriver) -> None:
    await driver.push("1", transaction_id="t")
    await driver.cut()
    await driver.push("1 again", transaction_id="t")
    await driver.push("2", transaction_id="u")
    await driver.push("2 again", transaction_id="u")
    await driver.mend()
    assert await driver.log() == ["1", "2"]


async def test_several_queues_in_one_push_stay_together(driver: SpoolDriver) -> None:
    await driver.cut()
    await driver.engine.push([driver.message("1", "a"), driver.message("2", "b")], json_checked=True)
    await driver.mend()
    assert (await driver.log("a"), await driver.log("b")) == (["1"], ["2"])


async def test_a_scheduled_message_waits_for_its_time_through_an_outage(driver: SpoolDriver) -> None:
    await driver.cut()
    await driver.push("later", deliver_at=driver.clock.now() + 3_600_000_000)
    await driver.mend()
    assert await driver.log() == []
    await driver.until(lambda: True)
    driver.clock.advance(3700)
    await until_asked(lambda: has_logged(driver, ["later"]), lambda: driver.clock.advance(1))


async def test_a_waiting_pop_is_woken_by_what_comes_out_of_the_spool(driver: SpoolDriver) -> None:
    await driver.push("0", queue="r")
    await driver.cut()
    await driver.push("1")
    await driver.mend()
    assert [d.payload for d in (await driver.engine.pop(PopRequest(Q), wait_seconds=5)).deliveries] == [b"1"]


async def test_I13_what_was_spooled_comes_after_operations_that_were_accepted_before(
    driver: SpoolDriver, store: CutOff
) -> None:
    batch = PushBatch([driver.message("1")], IdMint(driver.clock).mint_many(1))
    operation = NewOperations(OperationKind.PUSH, IdMint(driver.clock).mint_many(1), push=batch)
    token = Token(bytes(16))
    await store.enqueue([operation], driver.clock.now())
    claim = await store.claim_operations("another server", token, ClaimLimits(), driver.clock.now())
    await driver.cut()
    await driver.push("2")
    calls = len(store.pushes)
    store.down = False
    await driver.until(lambda: len(store.pushes) >= calls + 3, passing=0.5)
    assert driver.figures.pending == 1

    await store.perform(token, claim.operations, driver.clock.now())
    await driver.mend()

    assert await driver.log() == ["1", "2"]


async def test_a_push_with_a_receipt_is_stored_once_though_it_came_twice(driver: SpoolDriver) -> None:
    """A webhook that is called again since the store is away: each call is taken, and the second one is found to be one."""
    key = ReceiptKey("hook:x", "call-1")
    expires_at = Instant(driver.clock.now() + 1_000_000)  # long before the store is back
    await driver.cut()
    for number in range(2):
        receipt = Receipt(key, b'{"call": %d}' % number, expires_at)
        outcome = await driver.engine.push([driver.message(str(number))], json_checked=True, receipt=receipt)
        assert outcome.results[0].status is PushStatus.BUFFERED
    driver.clock.advance(60)
    await driver.mend()
    assert await driver.log() == ["0"]
    (kept,) = await driver.store.inner.records.receipts([key], driver.clock.now())
    assert kept is not None
    assert kept.answer == b'{"call": 0}'


async def test_I13_what_cannot_be_spooled_does_not_overtake_what_is(driver: SpoolDriver, store: CutOff) -> None:
    import pyarrow as pa

    columns = pa.record_batch({"partition": ["other"], "payload": [b"5"]})
    await driver.cut()
    await driver.push("1")
    for call in (driver.engine.transact([], [driver.message("2")]), driver.engine.push_columns(Q, columns)):
        with pytest.raises(SkepError) as caught:
            await call
        assert caught.value.code is Code.STORE_UNAVAILABLE
    store.held = asyncio.Event()
    store.down = False
    await driver.until(lambda: ["1"] in store.pushes, passing=0.5)
    for call in (driver.engine.transact([], [driver.message("3")]), driver.engine.push_columns(Q, columns)):
        with pytest.raises(SkepError) as caught:
            await call
        assert caught.value.code is Code.OPERATIONS_AHEAD
        assert caught.value.retryable
    await driver.engine.transact([], [driver.message("elsewhere", partition="free")])
    store.held.set()
    await driver.drained()
    await driver.engine.transact([], [driver.message("4")])
    await driver.engine.push_columns(Q, columns)
    assert await driver.log(partition="p") == ["1", "4"]


async def test_I3_of_spooled_messages_of_several_partitions_one_takes_an_id_that_counts_in_the_whole_queue(
    driver: SpoolDriver, store: CutOff
) -> None:
    await store.inner.create_queue(Q, QueueSettings(dedup_across_partitions=True), driver.clock.now())
    await driver.push("0", transaction_id="t")
    await driver.cut()
    for payload, partition, name in (("1", "a", "t"), ("2", "a", "u"), ("3", "b", "u"), ("4", "b", "v")):
        assert statuses(await driver.push(payload, partition=partition, transaction_id=name)) == {PushStatus.BUFFERED}
    await driver.mend()
    assert await driver.log() == ["0", "2", "4"]
    assert driver.figures.failed == 0


async def test_what_was_spooled_before_its_queue_was_encrypted_is_stored_encrypted(
    driver: SpoolDriver, store: CutOff
) -> None:
    driver.masters = MASTERS
    await driver.restart()
    await driver.push("0")
    await driver.cut()
    await driver.push('"secret"', "[1]")
    # By another server, of which this one hears nothing before it drains.
    await store.inner.update_queue(Q, QueueChanges(encryption_enabled=True), driver.clock.now())
    await driver.mend()
    assert (driver.figures.failed, driver.figures.flushed) == (0, 2)
    assert "secret" not in "".join(text for text in await raw_log(store, driver))
    popped = await driver.engine.pop(PopRequest(Q, batch=3))
    assert [delivery.payload for delivery in popped.deliveries] == [b"0", b'"secret"', b"[1]"]


async def test_I13_what_was_spooled_encrypted_does_not_overtake_what_was_spooled_before_that(
    driver: SpoolDriver, store: CutOff
) -> None:
    driver.masters = MASTERS
    await driver.restart()
    await driver.push("0")
    await driver.cut()
    await driver.push('"plain"')
    store.spoil, store.spoiled_by = {b'"plain"'}, Code.STORE_BUSY
    store.down = False
    await driver.until(lambda: driver.figures.state is SpoolState.DRAINING, passing=0.5)
    await driver.engine.update_queue(Q, QueueChanges(encryption_enabled=True))
    await driver.push('"sealed"')
    assert driver.figures.pending == 2
    store.spoil = set()
    await driver.mend()
    popped = await driver.engine.pop(PopRequest(Q, batch=3))
    assert [delivery.payload for delivery in popped.deliveries] == [b"0", b'"plain"', b'"sealed"']
