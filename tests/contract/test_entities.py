"""Entities and their events: written with what caused them or not at all, and only onto the version they were made from."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Code, SkepError
from skep.model import PushStatus, SettleStatus
from skep.model.record import Effect, NewEvent
from skep.model.transaction import Transaction
from tests.contract.driver import Driver, payloads


async def test_I15_ack_effect_receipt_and_push_happen_together(driver: Driver) -> None:
    await driver.push("in")
    delivery = await driver.pop_one()

    outcome = await driver.transact(
        [driver.settlement(delivery)],
        [driver.message("out", "next")],
        effects=[driver.effect(0, 1, 2, cause=delivery.id)],
        receipts=[driver.receipt("k")],
    )

    assert outcome.committed
    assert outcome.conflict is None
    assert await driver.counters("1") == [(2, 3)]
    assert await driver.recorded("k") == ['"done"']
    assert payloads(await driver.pop("next")) == ["out"]
    assert (await driver.stats()).completed == 1
    events = await driver.store.records.entity_events(driver.entity("1"))
    assert [(e.number, e.name, e.data, e.cause, e.at) for e in events] == [
        (1, "Added", b'{"by":1}', delivery.id, driver.now),
        (2, "Added", b'{"by":2}', delivery.id, driver.now),
    ]


@pytest.mark.parametrize("version", [0, 2])
async def test_I15_an_effect_on_another_version_undoes_everything(driver: Driver, version: int) -> None:
    await driver.transact([], [], effects=[driver.effect(0, 1)])
    await driver.push("in")
    delivery = await driver.pop_one()
    good = driver.effect(0, 5, id_="new")

    outcome = await driver.transact(
        [driver.settlement(delivery)],
        [driver.message("out", "next")],
        effects=[good, driver.effect(version, 7)],
        receipts=[driver.receipt("k")],
    )

    assert (outcome.committed, outcome.conflict, outcome.conflict_at) == (False, Code.ENTITY_CHANGED, 1)
    assert [r.code for r in outcome.settled] == [Code.BATCH_REFUSED]
    assert [(r.status, r.code) for r in outcome.pushed.results] == [(PushStatus.REFUSED, Code.BATCH_REFUSED)]
    assert await driver.counters("1", "new") == [(1, 1), None]
    assert await driver.store.records.entity_events(driver.entity("new")) == []
    assert await driver.recorded("k") == [None]
    assert await driver.store.get_queue(driver.key("next")) is None
    assert [r.status for r in await driver.ack(delivery)] == [SettleStatus.COMPLETED]


async def test_an_effect_on_an_entity_that_is_not_there_is_refused(driver: Driver) -> None:
    outcome = await driver.transact([], [], effects=[driver.effect(3, 1)])

    assert outcome.conflict is Code.ENTITY_CHANGED
    assert await driver.counters("1") == [None]


async def test_I15_a_receipt_that_exists_undoes_everything(driver: Driver) -> None:
    await driver.transact([], [], receipts=[driver.receipt("k", '"first"')])

    outcome = await driver.transact(
        [], [driver.message("out")], effects=[driver.effect(0, 1)], receipts=[driver.receipt("l"), driver.receipt("k")]
    )

    assert (outcome.committed, outcome.conflict, outcome.conflict_at) == (False, Code.RECEIPT_EXISTS, 1)
    assert await driver.recorded("k", "l") == ['"first"', None]
    assert await driver.counters("1") == [None]


async def test_a_receipt_twice_in_one_transaction_is_refused(driver: Driver) -> None:
    outcome = await driver.transact([], [], receipts=[driver.receipt("k"), driver.receipt("k")])

    assert (outcome.conflict, outcome.conflict_at) == (Code.RECEIPT_EXISTS, 1)
    assert await driver.recorded("k") == [None]


async def test_I15_a_stale_token_undoes_effects_and_receipts(driver: Driver) -> None:
    await driver.push("in")
    delivery = await driver.pop_one()
    stale = driver.settlement(delivery, token=driver.token())

    outcome = await driver.transact([stale], [], effects=[driver.effect(0, 1)], receipts=[driver.receipt("k")])

    assert (outcome.committed, outcome.conflict) == (False, None)
    assert [r.code for r in outcome.settled] == [Code.STALE_LEASE]
    assert await driver.counters("1") == [None]
    assert await driver.recorded("k") == [None]


async def test_I15_a_full_queue_undoes_effects_and_receipts(driver: Driver) -> None:
    await driver.create("next", max_depth=1)
    messages = [driver.message("x", "next"), driver.message("y", "next")]

    outcome = await driver.transact([], messages, effects=[driver.effect(0, 1)], receipts=[driver.receipt("k")])

    assert [r.code for r in outcome.pushed.results] == [Code.QUEUE_FULL] * 2
    assert outcome.conflict is None
    assert await driver.counters("1") == [None]
    assert await driver.recorded("k") == [None]


async def test_effects_on_one_entity_follow_one_another_in_a_transaction(driver: Driver) -> None:
    effects = [driver.effect(0, 1, 2), driver.effect(2, 3, state=3), driver.effect(3, 4, 5, state=6)]

    outcome = await driver.transact([], [], effects=effects)

    assert outcome.committed
    assert await driver.counters("1") == [(5, 15)]
    assert not (await driver.transact([], [], effects=[driver.effect(5, 1, state=15), driver.effect(5, 1)])).committed
    assert await driver.counters("1") == [(5, 15)]


async def test_transactions_of_one_call_see_those_before_them(driver: Driver) -> None:
    def transaction(key: str, *effects: Effect) -> Transaction:
        return Transaction([], driver.batch(driver.message(key)), list(effects), [driver.receipt(key)])

    outcomes = await driver.store.transact(
        [
            transaction("a", driver.effect(0, 1)),
            transaction("b", driver.effect(0, 1)),
            transaction("a", driver.effect(1, 1, state=1), driver.effect(0, 1, id_="never")),
            transaction("b", driver.effect(1, 2, state=1), driver.effect(0, 9, id_="2")),
            transaction("c", driver.effect(4, 1)),
        ],
        driver.now,
    )

    assert [o.conflict for o in outcomes] == [
        None, Code.ENTITY_CHANGED, Code.RECEIPT_EXISTS, None, Code.ENTITY_CHANGED,
    ]  # fmt: skip
    assert await driver.counters("1", "2", "never") == [(2, 3), (1, 9), None]
    assert [e.key.id for e in await driver.store.records.list_entities(driver.tenant, "Counter")] == ["1", "2"]
    assert await driver.recorded("a", "b", "c") == ['"done"', '"done"', None]
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_entities_are_found_by_type_and_in_pages(driver: Driver) -> None:
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    await driver.transact([], [], effects=[driver.effect(0, 1, id_=id_) for id_ in ("b", "ä", "a", "c")])
    lamp = Effect(driver.entity("x", "Lamp"), 0, [NewEvent("Lit", b"{}")], b"{}")
    await driver.transact([], [], effects=[lamp])
    await other.transact([], [], effects=[other.effect(0, 1, id_="theirs")])

    assert await driver.store.records.entity_types(driver.tenant) == ["Counter", "Lamp"]
    assert await driver.store.records.entity_types("nobody") == []
    page = await driver.store.records.list_entities(driver.tenant, "Counter", limit=2)
    assert [e.key for e in page] == [driver.entity("a"), driver.entity("b")]
    rest = await driver.store.records.list_entities(driver.tenant, "Counter", "b", 9)
    assert [(e.key.id, e.version, e.state) for e in rest] == [("c", 1, b"1"), ("ä", 1, b"1")]


async def test_events_come_in_pages(driver: Driver) -> None:
    await driver.transact([], [], effects=[driver.effect(0, *range(1, 6))])

    events = await driver.store.records.entity_events(driver.entity("1"), 2, 2)

    assert [(e.number, e.data, e.cause) for e in events] == [(3, b'{"by":3}', None), (4, b'{"by":4}', None)]
    assert await driver.store.records.entity_events(driver.entity("1"), 5) == []


async def test_a_page_ends_with_the_entity_or_the_event_that_reaches_its_bytes(driver: Driver) -> None:
    for id_ in "abcd":
        await driver.transact([], [], effects=[driver.effect(0, 1, 2, 3, id_=id_)])
    store, keys = driver.store, [driver.entity(id_) for id_ in "abxcd"]
    (entity,) = await store.records.entities([driver.entity("a")])
    assert entity is not None
    size = len(entity.state)
    data = len((await store.records.entity_events(driver.entity("a")))[0].data)

    listed = [
        "".join(one.key.id for one in await store.records.list_entities(driver.tenant, "Counter", "", 3, most))
        for most in (1, size, size + 1, 9 * size)
    ]
    events = [
        [event.number for event in await store.records.entity_events(driver.entity("a"), 1, 9, most)]
        for most in (1, data, data + 1, 9 * data)
    ]

    assert listed == ["a", "a", "ab", "abc"]
    assert events == [[2], [2], [2, 3], [2, 3]]
    assert [one and one.key.id for one in await store.records.entities(keys, 3 * size + 1)] == [
        "a",
        "b",
        None,
        "c",
        "d",
    ]
    with pytest.raises(SkepError, match="PAYLOAD_TOO_LARGE"):
        await store.records.entities(keys, 3 * size)
    assert [one and one.key.id for one in await store.records.entities(keys[:1], 1)] == ["a"]


async def test_an_entity_says_when_it_was_made_and_changed(driver: Driver) -> None:
    made = driver.now
    await driver.transact([], [], effects=[driver.effect(0, 1)])
    driver.clock.advance(5)
    await driver.transact([], [], effects=[driver.effect(1, 1, state=1)])

    (entity,) = await driver.store.records.entities([driver.entity("1")])

    assert entity is not None
    assert (entity.created_at, entity.updated_at) == (made, driver.now)


async def test_entities_outlive_their_queues(driver: Driver) -> None:
    await driver.transact([], [driver.message("x")], effects=[driver.effect(0, 1)])
    await driver.delete()
    await driver.store.sweep(driver.now, 1000)

    assert await driver.counters("1") == [(1, 1)]


async def test_I15_of_many_transactions_on_the_same_entities_each_version_is_made_once(driver: Driver) -> None:
    """Each reads, computes and writes until it got through; nothing is lost, and nothing deadlocks."""
    ids = ["a", "b", "c"]

    async def add(number: int) -> None:
        for _ in range(60):
            chosen = ids[number % 3 :] + ids[: number % 3]
            found = await driver.store.records.entities([driver.entity(id_) for id_ in chosen])
            effects = [
                driver.effect(e.version if e else 0, 1, id_=id_, state=int(e.state) if e else 0)
                for id_, e in zip(chosen, found, strict=True)
            ]
            transaction = Transaction([], driver.batch(), effects, [driver.receipt(f"k{number}")])
            (outcome,) = await driver.store.transact([transaction], driver.now)
            if outcome.committed:
                return
        raise AssertionError("never got through")

    await asyncio.gather(*(add(number) for number in range(12)))

    assert await driver.counters(*ids) == [(12, 12)] * 3
