"""Receipts, entities, quarantine, apps and endpoints through the engine: merged, checked, and announced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import PushStatus, QueueKey
from skep.model.record import Effect, EntityKey, NewEvent, Receipt, ReceiptKey, Report
from tests.engine.driver import ORDERS, EngineDriver, message, settlement

LAMP = EntityKey("Lamp", "1")
LONG = "x" * 256


def receipt(key: str = "k", answer: bytes = b'"done"', **fields: Any) -> Receipt:
    return Receipt(ReceiptKey("hook", key, **fields), answer, Instant(2**52))


def effect(version: int = 0, state: bytes = b"{}", entity: EntityKey = LAMP, events: int = 1, **fields: Any) -> Effect:
    return Effect(entity, version, [NewEvent("Lit", b"{}")] * events, state, **fields)


async def test_pushes_with_receipts_are_merged_into_one_store_call(driver: EngineDriver) -> None:
    outcomes = await asyncio.gather(
        *(driver.engine.push([message(str(n))], receipt=receipt(str(n % 50), b"%d" % n)) for n in range(100))
    )

    assert len(driver.store.calls["push"]) == 1
    assert [outcome.recorded for outcome in outcomes] == [None] * 50 + [b"%d" % n for n in range(50)]
    assert len(await driver.pop(batch=100)) == 50


async def test_only_a_transaction_that_settles_has_a_fingerprint(driver: EngineDriver) -> None:
    await driver.engine.transact([], [message()])
    await driver.engine.transact([settlement(one) for one in await driver.pop()], [message()])

    [[pushes], [settles]] = driver.store.calls["transact"]
    assert pushes.fingerprint == b""
    assert settles.fingerprint != b""


async def test_transactions_with_effects_are_merged_and_each_is_told_its_own(driver: EngineDriver) -> None:
    await driver.engine.records.entity_types()
    outcomes = await asyncio.gather(
        *(driver.engine.transact([], [], effects=[effect(version)], receipts=[receipt(str(version))]) for version in (0, 1, 0, 2))
    )  # fmt: skip

    assert len(driver.store.calls["transact"]) == 1
    assert [outcome.committed for outcome in outcomes] == [True, True, False, True]
    assert outcomes[2].conflict is Code.RECEIPT_EXISTS
    assert (await driver.engine.records.entity(LAMP)).version == 3
    assert [e.number for e in await driver.engine.records.entity_events(LAMP, after=1)] == [2, 3]


async def test_entities_and_receipts_are_read_together(driver: EngineDriver) -> None:
    await driver.push("1")
    (delivery,) = await driver.pop()
    await driver.engine.transact([settlement(delivery)], [], effects=[effect(cause=delivery.id)], receipts=[receipt()])

    states, receipts = await driver.engine.records.read([EntityKey("Lamp", "2"), LAMP], [receipt().key])

    assert [state and state.version for state in states] == [None, 1]
    assert receipts == [receipt()]
    assert await driver.engine.records.read([], []) == ([], [])
    assert [state.key for state in await driver.engine.records.list_entities("Lamp")] == [LAMP]


async def test_a_receipt_runs_out_after_its_window(driver: EngineDriver) -> None:
    made = driver.engine.records.receipt(ReceiptKey("s", "k"), b"1", 2.5)

    assert made.expires_at == driver.clock.now() + seconds(2.5)


async def test_a_message_in_quarantine_wakes_who_waits_for_dead_letters(driver: EngineDriver) -> None:
    await driver.engine.records.quarantine(message("1"), "bad")
    await driver.pop(QueueKey("orders.dead"), auto_ack=True)
    waiting = await driver.polling(QueueKey("orders.dead"))

    outcome = await driver.engine.records.quarantine(message("no json"), "bad\x00", receipt())

    assert outcome.results[0].status is PushStatus.STORED
    (delivery,) = (await waiting).deliveries
    assert (delivery.payload, delivery.content_type) == (b"no json", "application/octet-stream")


async def test_apps_are_put_and_deleted(driver: EngineDriver) -> None:
    records = driver.engine.records
    first = await records.put_app("incidents", b"{}")

    assert await records.apps() == [first]
    assert await records.apps_revision() == first.revision
    await records.delete_app("incidents")
    with pytest.raises(SkepError) as refused:
        await records.delete_app("incidents")
    assert refused.value.code is Code.APP_NOT_FOUND


async def test_endpoints_are_reported_and_reset(driver: EngineDriver) -> None:
    records = driver.engine.records
    endpoint = await records.report_endpoint("http://x", Report.FAILED, threshold=1, open_seconds=5, reason="a\x00")

    assert (endpoint.open_until, endpoint.reason) == (driver.clock.now() + seconds(5), "a\ufffd")
    assert await records.endpoints() == [endpoint]
    assert await records.reset_endpoint("http://x")


BAD_CALLS: list[tuple[Callable[[Engine], Awaitable[object]], Code]] = [
    (lambda e: e.push([message()], receipt=receipt("")), Code.INVALID_NAME),
    (lambda e: e.push([message()], receipt=receipt(LONG)), Code.INVALID_NAME),
    (lambda e: e.push([message()], receipt=Receipt(ReceiptKey(*["🐝" * 255] * 3), b"1", Instant(2**52))), Code.INVALID_NAME),
    (lambda e: e.push([message()], receipt=receipt(answer=b"no json")), Code.INVALID_REQUEST),
    (lambda e: e.push([message()], receipt=Receipt(receipt().key, b"1", Instant(2**62))), Code.INVALID_TIME),
    (lambda e: e.transact([], [], receipts=[receipt("\x00")]), Code.INVALID_NAME),
    (lambda e: e.transact([], [], effects=[effect(-1)]), Code.INVALID_REQUEST),
    (lambda e: e.transact([], [], effects=[effect(2**63)]), Code.INVALID_REQUEST),
    (lambda e: e.transact([], [], effects=[effect(events=0)]), Code.INVALID_REQUEST),
    (lambda e: e.transact([], [], effects=[effect(events=1_001)]), Code.INVALID_REQUEST),
    (lambda e: e.transact([], [], effects=[effect(state=b"{")]), Code.INVALID_REQUEST),
    (lambda e: e.transact([], [], effects=[effect(cause=Id(b"short"))]), Code.INVALID_REQUEST),
    (lambda e: e.transact([], [], effects=[effect(entity=EntityKey("", "1"))]), Code.INVALID_NAME),
    (lambda e: e.transact([], [], effects=[effect(n, b'"' + b"x" * 2**22 + b'"') for n in range(2)]), Code.PAYLOAD_TOO_LARGE),
    (lambda e: e.records.entity(LAMP), Code.ENTITY_NOT_FOUND),
    (lambda e: e.records.entity_events(LAMP), Code.ENTITY_NOT_FOUND),
    (lambda e: e.records.read([LAMP] * 10_001, []), Code.INVALID_REQUEST),
    (lambda e: e.records.read([EntityKey("a", LONG)], []), Code.INVALID_NAME),
    (lambda e: e.records.list_entities("Lamp", limit=0), Code.INVALID_REQUEST),
    (lambda e: e.records.quarantine(message(partition=""), "bad"), Code.INVALID_PARTITION),
    (lambda e: e.records.report_endpoint("", Report.FAILED, threshold=1, open_seconds=1), Code.INVALID_REQUEST),
    (lambda e: e.records.report_endpoint("x", Report.FAILED, threshold=0, open_seconds=1), Code.INVALID_REQUEST),
    (lambda e: e.records.reset_endpoint("x" * 2_001), Code.INVALID_REQUEST),
    (lambda e: e.records.put_app("", b"{}"), Code.INVALID_NAME),
]  # fmt: skip


@pytest.mark.parametrize(("call", "code"), BAD_CALLS)
async def test_a_bad_call_is_refused_with_its_code_and_leaves_nothing(
    driver: EngineDriver, call: Callable[[Engine], Awaitable[object]], code: Code
) -> None:
    with pytest.raises(SkepError) as refused:
        await call(driver.engine)

    assert refused.value.code is code
    assert not driver.store.calls["push"]
    assert not driver.store.calls["transact"]


@pytest.mark.parametrize("window", [0, -1, float("nan"), float("inf"), 1e12])
def test_a_window_out_of_range_is_refused(engine: Engine, window: float) -> None:
    with pytest.raises(SkepError) as refused:
        engine.records.receipt(ReceiptKey("s", "k"), b"1", window)
    assert refused.value.code is Code.INVALID_TIME


async def test_an_effect_on_a_changed_entity_leaves_the_message_to_be_settled(driver: EngineDriver) -> None:
    await driver.push("1")
    (delivery,) = await driver.pop()

    outcome = await driver.engine.transact([settlement(delivery)], [message("2")], effects=[effect(4)])

    assert (outcome.committed, outcome.conflict, outcome.conflict_at) == (False, Code.ENTITY_CHANGED, 0)
    assert (await driver.engine.browse.queue_stats(ORDERS)).last_seq == 1
    assert (await driver.ack([delivery]))[0].code is None
