"""Only what can never be done is given up: what waits on the store waits in its place, without limit, and shows as blocked (I13)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from skep.clock import Instant, ManualClock
from skep.config import EngineSettings, OperationSettings
from skep.engine import Engine
from skep.engine.push.patience import Patience
from skep.errors import Code, Outlook, SkepError, outlook
from skep.ids import Id, IdMint
from skep.model import (
    SEALED_TYPE,
    DeadLetterFilter,
    MessageFilter,
    QueueChanges,
    QueueKey,
    QueueSettings,
    SettleStatus,
    Token,
)
from skep.model.operation import ClaimLimits, OperationKind, OperationStatus, decode_result
from tests.engine.driver import ORDERS, EngineDriver, message, settlement, until
from tests.engine.recording import RecordingStore
from tests.engine.test_encryption import MASTERS
from tests.engine.test_operations import BUSY, payloads, queue, shown

WAITS = [Code.STORE_BUSY, Code.STORE_FULL, Code.STORE_UNAVAILABLE, Code.STORE_CORRUPT, Code.KEY_UNAVAILABLE]
HOURS = 3_600.0


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings(operations=OperationSettings(fault_seconds=6 * HOURS))


async def failing(driver: EngineDriver, store: RecordingStore, error: Exception, tries: int, wait: float = 31) -> None:
    """Let so many tries fail, each when it is due."""
    store.fail_next("perform", *[error] * tries)
    for _ in range(20 * tries):
        await driver.advance(wait)
        if not store.errors["perform"]:
            return
    raise AssertionError("it is not tried any more")


@pytest.mark.parametrize("code", WAITS)
async def test_I13_a_queued_push_is_not_given_up_for_the_store(
    driver: EngineDriver, store: RecordingStore, code: Code
) -> None:
    store.fail_next("perform", SkepError(code, "not now"))
    first = await queue(driver, "1")
    await driver.quiet()

    await failing(driver, store, SkepError(code, "not now"), 25)
    later = asyncio.ensure_future(driver.push("2"))
    for _ in range(3):
        await driver.advance(31)
    async with asyncio.timeout(10):
        await later

    found = await shown(driver, first)
    assert (found.status, found.tries) == (OperationStatus.COMPLETED, 1)
    assert await payloads(driver) == ["1", "2"]
    assert driver.engine.operations.failed == {}


@pytest.mark.parametrize("code", [code for code in WAITS if code is not Code.STORE_UNAVAILABLE])
async def test_what_waits_on_the_store_shows_as_blocked(
    driver: EngineDriver, store: RecordingStore, code: Code
) -> None:
    started = driver.engine.now()
    store.fail_next("perform", SkepError(code, "not now"))

    outcome = await queue(driver, "1")
    await driver.quiet()
    await driver.advance(0.5)

    found = await shown(driver, outcome)
    assert (found.status, found.code, found.error, found.tries, found.blocked_at) == (
        OperationStatus.BLOCKED, code, "not now", 0, started,
    )  # fmt: skip
    await failing(driver, store, SkepError(code, "not now"), 5)
    assert driver.engine.operations.blocked == 1
    assert (await shown(driver, outcome)).blocked_at == started  # since the first time, and not the last
    await driver.advance(31)
    await driver.advance(1)
    assert driver.engine.operations.blocked == 0


async def test_I13_a_queued_ack_is_not_given_up_for_the_store(driver: EngineDriver, store: RecordingStore) -> None:
    await driver.push("1")
    deliveries = await driver.pop()
    store.fail_next("perform", SkepError(Code.STORE_BUSY, "not now"))
    [queued] = await driver.engine.operations.settle([settlement(deliveries[0])], OperationKind.ACK_SINGLE, BUSY)
    await driver.quiet()

    await failing(driver, store, SkepError(Code.STORE_BUSY, "not now"), 6, wait=5)
    await driver.advance(31)

    assert queued.operation is not None
    found = await driver.engine.operations.find("default", queued.operation.id)
    assert found.status is OperationStatus.COMPLETED
    assert [r.status for r in decode_result(found.result or b"").settled or []] == [SettleStatus.COMPLETED]


async def test_while_one_queue_is_busy_the_others_go_on_and_its_own_are_tried_once(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("claim_operations")
    busy = [await queue(driver, str(n), partition=f"P{n}") for n in range(5)]
    other = await queue(driver, "x", queue=QueueKey("other"))
    error = SkepError(Code.STORE_BUSY, "somebody holds the log")
    store.fail_next("perform", error, error)
    store.let_go("claim_operations")
    await driver.quiet()

    assert [len(call) for call in store.calls["perform"]] == [
        16,
        16,
        16,
    ]  # tokens: together, one of the busy queue, and the other
    assert [(await shown(driver, one)).status for one in busy] == [OperationStatus.BLOCKED] * 5
    assert (await shown(driver, other)).status is OperationStatus.COMPLETED
    await driver.advance(2)
    assert sorted(await payloads(driver)) == ["0", "1", "2", "3", "4"]


async def test_a_claim_that_a_full_store_does_not_take_back_is_kept_and_no_try(
    driver: EngineDriver, store: RecordingStore
) -> None:
    full = SkepError(Code.STORE_FULL, "no room")
    store.fail_next("perform", *[full] * 10)
    store.fail_next("give_back", *[full] * 10)
    outcome = await queue(driver, "1")
    await driver.quiet()
    await driver.advance(1)
    assert driver.engine.operations.blocked == 1  # though the store could not note it

    for _ in range(10):
        await driver.advance(31)
    await driver.advance(31)

    found = await shown(driver, outcome)
    assert (found.status, found.tries) == (OperationStatus.COMPLETED, 1)
    assert driver.engine.operations.blocked == 0


async def test_I13_an_unexpected_failure_is_not_given_up_for_hours_and_holds_its_partition(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.push("0")
    store.fail_next("perform", RuntimeError("a bug"))
    first = await queue(driver, "1")
    await driver.quiet()
    started = driver.engine.now()

    await failing(driver, store, RuntimeError("a bug"), 100)
    assert driver.engine.now() < started + 5 * HOURS * 1_000_000
    assert (await shown(driver, first)).status is OperationStatus.BLOCKED
    later = asyncio.ensure_future(driver.push("2"))
    await driver.advance(31)
    await driver.advance(31)
    async with asyncio.timeout(10):
        await later

    assert await payloads(driver) == ["0", "1", "2"]


async def test_what_fails_unexpectedly_for_longer_than_is_set_is_given_up(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.engine.create_queue(ORDERS)
    store.fail_next("perform", *[RuntimeError("a bug")] * 2)
    first = await queue(driver, "1")
    await driver.quiet()
    driver.clock.advance(7 * HOURS)
    await driver.advance(1)
    assert (await shown(driver, first)).status is OperationStatus.BLOCKED  # long enough, and not often enough

    await failing(driver, store, RuntimeError("a bug"), 2)
    await driver.advance(31)

    found = await shown(driver, first)
    assert (found.status, found.code) == (OperationStatus.FAILED, Code.INTERNAL)
    letters = await driver.engine.dead_letters.page(DeadLetterFilter(queue=QueueKey("orders.dead")))
    assert [letter.payload for letter in letters] == [b"1"]


async def test_another_reason_begins_anew(driver: EngineDriver, store: RecordingStore) -> None:
    store.fail_next("perform", *[RuntimeError("a bug")] * 2)
    outcome = await queue(driver, "1")
    await driver.quiet()
    driver.clock.advance(5 * HOURS)
    await driver.advance(1)
    await failing(driver, store, SkepError(Code.STORE_BUSY, "not now"), 1)
    await failing(driver, store, RuntimeError("a bug"), 8)
    driver.clock.advance(2 * HOURS)
    await failing(driver, store, RuntimeError("a bug"), 8)

    assert (await shown(driver, outcome)).status is OperationStatus.BLOCKED


async def test_what_can_never_be_done_is_given_up_at_the_first_try(driver: EngineDriver, store: RecordingStore) -> None:
    await driver.engine.create_queue(ORDERS)
    store.fail_next("perform", SkepError(Code.QUEUE_NOT_FOUND, "it is gone"))

    outcome = await queue(driver, "1")
    await driver.quiet()

    found = await shown(driver, outcome)
    assert (found.status, found.tries, found.code) == (OperationStatus.FAILED, 1, Code.QUEUE_NOT_FOUND)


async def test_an_operation_whose_servers_died_is_not_given_up_within_minutes(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("claim_operations")
    outcome = await queue(driver, "1")
    for number in range(6):
        await store.inner.claim_operations(f"dead {number}", Token(bytes(16)), ClaimLimits(), driver.engine.now())
        driver.clock.advance(30 * 2**number)
    store.let_go("claim_operations")
    await driver.quiet()
    await driver.advance(1)

    found = await shown(driver, outcome)
    assert (found.status, found.tries) == (OperationStatus.COMPLETED, 7)


async def test_an_operation_that_ends_its_servers_for_hours_is_given_up_unseen(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.engine.create_queue(ORDERS)
    store.hold("claim_operations")
    outcome = await queue(driver, "poison")
    for _ in range(20):
        claim = await store.inner.claim_operations("dead", Token(bytes(16)), ClaimLimits(), driver.engine.now())
        assert claim.operations
        driver.clock.advance(30 * 64)
    store.let_go("claim_operations")
    await driver.quiet()
    await driver.advance(1)

    found = await shown(driver, outcome)
    assert (found.status, found.code) == (OperationStatus.FAILED, Code.INTERNAL)
    assert "no server that had it ever came back" in (found.error or "")
    assert not store.calls["perform"]


async def test_I15_a_push_to_several_partitions_is_stored_whole_though_the_store_is_busy(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("claim_operations")
    await queue(driver, "0", partition="A")

    pushing = asyncio.ensure_future(driver.engine.push([message("1", partition="A"), message("2", partition="B")]))
    await until(lambda: bool(driver.engine.operations._waiting))
    assert not store.calls["enqueue"][1:]
    store.let_go("claim_operations")
    async with asyncio.timeout(10):
        outcome = await pushing

    assert {result.status.value for result in outcome.results} == {"stored"}
    assert await payloads(driver, partition="A") == ["0", "1"]


async def test_I15_what_cannot_wait_behind_a_blocked_push_is_refused_and_nothing_of_it_is_stored(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.engine.create_queue(ORDERS)
    store.hold("claim_operations")
    await queue(driver, "0", partition="A")

    pushing = asyncio.ensure_future(driver.engine.push([message("1", partition="A"), message("2", partition="B")]))
    async with asyncio.timeout(10):
        while not pushing.done():
            if driver.engine.operations._waiting:
                driver.clock.advance(0.05)
            await asyncio.sleep(0)

    with pytest.raises(SkepError) as refused:
        await pushing
    store.let_go("claim_operations")
    assert refused.value.code is Code.OPERATIONS_AHEAD
    assert await payloads(driver, partition="B") == []


def test_every_code_has_an_outlook_and_only_these_wait() -> None:
    later = {code for code in Code if outlook(code) is Outlook.LATER}
    doubtful = {code for code in Code if outlook(code) is Outlook.DOUBTFUL}

    assert {code for code in Code if code.startswith("STORE_")} <= later
    assert doubtful == {Code.QUEUE_FULL, Code.INTERNAL}
    assert all(SkepError(code, "").retryable for code in later - {Code.STORE_CORRUPT, Code.KEY_UNAVAILABLE})
    assert not any(SkepError(code, "").retryable for code in set(Code) - later - doubtful)


def test_waits_double_up_to_a_bound_and_patience_ends_when_it_is_set_to() -> None:
    patience = Patience(60.0, 600.0, 1.0, 30.0)
    since, now, waits = Instant(0), Instant(0), []
    while patience.lasts(Code.QUEUE_FULL, since, now):
        retry_at = patience.retry_at(since, now)
        waits.append((retry_at - now) / 1_000_000)
        now = retry_at

    assert waits == [1, 1, 2, 4, 8, 16, 30]
    assert patience.lasts(Code.INTERNAL, since, Instant(599_999_999))
    assert not patience.lasts(Code.INTERNAL, since, Instant(600_000_000))
    assert patience.lasts(Code.STORE_BUSY, since, Instant(10**15))
    assert not patience.lasts(Code.NOT_ENCRYPTED, since, since)


async def test_a_full_queue_that_is_emptied_in_time_takes_what_was_queued(driver: EngineDriver) -> None:
    small = QueueKey("small")
    await driver.engine.create_queue(small, QueueSettings(max_depth=1))
    await driver.push("0", queue=small)
    await queue(driver, "1", queue=small)
    await driver.quiet()
    for _ in range(50):
        await driver.advance(1)

    deliveries = await driver.pop(small)
    await driver.engine.settle([settlement(delivery) for delivery in deliveries])
    await driver.advance(31)

    assert await payloads(driver, small) == ["1"]


async def test_a_flush_of_qos_0_waits_behind_operations_and_loses_nothing(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.engine.create_queue(ORDERS)
    store.hold("claim_operations")
    await queue(driver, "0", partition="A")
    await driver.engine.push_buffered([message("1", partition="A"), message("2", partition="B")])
    await driver.engine.push_buffered([message("3", partition="C")])

    async with asyncio.timeout(10):
        while driver.engine.buffer.figures().pending:
            driver.clock.advance(0.05)
            await asyncio.sleep(0)
    store.let_go("claim_operations")
    await driver.quiet()
    await driver.advance(1)

    assert driver.engine.buffer.figures().lost == 0
    assert await payloads(driver, partition="A") == ["0", "1"]
    assert await payloads(driver, partition="B") == ["2"]
    assert await payloads(driver, partition="C") == ["3"]


@pytest.mark.parametrize(
    "error", [None, SkepError(Code.STORE_BUSY, "not now"), SkepError(Code.KEY_UNAVAILABLE, "no key")]
)
async def test_a_push_whose_queue_was_encrypted_while_it_waited_is_stored_encrypted(
    store: RecordingStore, clock: ManualClock, error: SkepError | None
) -> None:
    engine = Engine(store.as_store, clock, IdMint(clock), Random(7), EngineSettings(), masters=MASTERS)
    await engine.start()
    driver = EngineDriver(engine, clock, store)
    await engine.create_queue(ORDERS)
    store.hold("claim_operations")
    outcome = await queue(driver, '"secret"')
    # By another server, of which this one hears nothing.
    await store.inner.update_queue(ORDERS, QueueChanges(encryption_enabled=True), clock.now())
    if error is not None:
        store.fail_next("put_data_key", error)
    store.let_go("claim_operations")
    await driver.quiet()
    await driver.advance(2)

    found = await store.inner.operation("default", outcome.operations[0].id if outcome.operations else Id(b""))
    page = await store.inner.messages(MessageFilter(queue=ORDERS), clock.now())
    opened = await payloads(driver)
    await engine.stop()
    assert found is not None
    assert (found.status, found.code) == (OperationStatus.COMPLETED, None)
    assert [b"secret" in m.payload for m in page.messages] == [False]
    assert opened == ['"secret"']


@pytest.mark.parametrize(
    "no_key", [None, SkepError(Code.STORE_BUSY, "not now"), SkepError(Code.KEY_UNAVAILABLE, "no key")]
)
@pytest.mark.parametrize("fault", [None, SkepError(Code.INTERNAL, "it broke")])
async def test_a_push_whose_queue_was_encrypted_while_it_waited_is_given_up_encrypted(
    store: RecordingStore, clock: ManualClock, fault: SkepError | None, no_key: SkepError | None
) -> None:
    """For a queue that stays full, and for a fault that comes before anybody says that it must be encrypted."""
    settings = EngineSettings(operations=OperationSettings(full_seconds=60, fault_seconds=60, max_retries=1))
    engine = Engine(store.as_store, clock, IdMint(clock), Random(7), settings, masters=MASTERS)
    await engine.start()
    driver = EngineDriver(engine, clock, store)
    await engine.create_queue(ORDERS, QueueSettings(max_depth=1))
    await driver.push("0")
    store.hold("claim_operations")
    first, second = await queue(driver, '"secret"'), await queue(driver, '"later"')
    await store.inner.update_queue(ORDERS, QueueChanges(encryption_enabled=True), clock.now())
    if no_key is not None:
        store.fail_next("put_data_key", no_key)
    if fault is not None:
        store.fail_next("perform", *[fault] * 1_000)
    store.let_go("claim_operations")
    for _ in range(40):
        await driver.advance(10)

    grave = DeadLetterFilter(queue=QueueKey("orders.dead"))
    raw = await store.inner.dead_letters(grave, None, 10)
    opened = await engine.dead_letters.page(grave)
    ended = [await shown(driver, outcome) for outcome in (first, second)]
    await engine.stop()
    assert [one.content_type for one in raw] == [SEALED_TYPE] * 2
    assert not any(b"secret" in one.payload or b"later" in one.payload for one in raw)
    assert [one.payload for one in opened] == [b'"secret"', b'"later"']
    wanted = OperationStatus.FAILED, Code.INTERNAL if fault else Code.QUEUE_FULL, "orders.dead"
    assert [(one.status, one.code, one.dead_letter_queue) for one in ended] == [wanted] * 2
