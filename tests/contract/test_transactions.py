"""Transactions: settlements and pushes that happen together or not at all."""

from __future__ import annotations

import pytest

from skep.errors import Code
from skep.model import Outcome, PushStatus, Retry, SettleStatus
from skep.model.transaction import Transaction
from tests.contract.driver import Driver, payloads


async def test_I15_acks_and_pushes_happen_together(driver: Driver) -> None:
    await driver.push("in")
    delivery = await driver.pop_one()

    outcome = await driver.transact([driver.settlement(delivery)], [driver.message("out", "next")])

    assert outcome.committed
    assert [r.status for r in outcome.settled] == [SettleStatus.COMPLETED]
    assert [(r.status, r.seq) for r in outcome.pushed.results] == [(PushStatus.STORED, 1)]
    assert (await driver.stats()).completed == 1
    assert payloads(await driver.pop("next")) == ["out"]


async def test_I15_I6_a_stale_token_undoes_the_pushes(driver: Driver) -> None:
    await driver.push("a", partition="1")
    await driver.push("b", partition="2")
    a, b = await driver.pop()
    stale = driver.settlement(b, token=driver.token())

    outcome = await driver.transact([driver.settlement(a), stale], [driver.message("out", "next")])

    assert not outcome.committed
    assert outcome.settled[1].code is Code.STALE_LEASE
    assert await driver.store.get_queue(driver.key("next")) is None
    assert (await driver.stats()).completed == 0
    assert [r.status for r in await driver.ack(a, b)] == [SettleStatus.COMPLETED] * 2


async def test_I15_a_full_queue_undoes_the_acks(driver: Driver) -> None:
    await driver.create("next", max_depth=1)
    await driver.push("in")
    delivery = await driver.pop_one()

    outcome = await driver.transact(
        [driver.settlement(delivery)], [driver.message("x", "next"), driver.message("y", "next")]
    )

    assert not outcome.committed
    assert [r.code for r in outcome.pushed.results] == [Code.QUEUE_FULL] * 2
    assert (await driver.stats()).in_flight == 1
    assert await driver.pop("next") == []
    assert [r.status for r in await driver.ack(delivery)] == [SettleStatus.COMPLETED]


async def test_I15_I11_a_burial_in_a_refused_transaction_is_undone(driver: Driver) -> None:
    await driver.push("in")
    delivery = await driver.pop_one()

    outcome = await driver.transact(
        [driver.settlement(delivery, Outcome.REJECT)], [driver.message("x", "unknown")], create_queues=False
    )

    assert not outcome.committed
    assert [r.code for r in outcome.pushed.results] == [Code.QUEUE_NOT_FOUND]
    assert await driver.dead() == []
    assert (await driver.stats()).dead == 0


async def test_I3_a_duplicate_in_a_transaction_is_no_refusal(driver: Driver) -> None:
    await driver.push("out", queue="next", transaction_id="t")
    await driver.push("in")
    delivery = await driver.pop_one()

    outcome = await driver.transact([driver.settlement(delivery)], [driver.message("out", "next", transaction_id="t")])

    assert outcome.committed
    assert [r.status for r in outcome.pushed.results] == [PushStatus.DUPLICATE]
    assert (await driver.stats()).completed == 1


async def test_a_nack_and_a_reject_may_be_part_of_it(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "ab"))
    a, b = await driver.pop()

    outcome = await driver.transact(
        [driver.settlement(a, Outcome.NACK, retry=Retry.NOW), driver.settlement(b, Outcome.REJECT)], []
    )

    assert outcome.committed
    assert [r.status for r in outcome.settled] == [SettleStatus.RETRYING, SettleStatus.DEAD]


async def test_a_message_pushed_to_its_own_queue_comes_after(driver: Driver) -> None:
    await driver.push("1")
    for n in range(2, 6):
        delivery = await driver.pop_one()
        await driver.transact([driver.settlement(delivery)], [driver.message(str(n))])

    assert payloads(await driver.pop()) == ["5"]
    assert (await driver.stats()).completed == 4


async def test_several_transactions_of_one_call_stand_for_themselves(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abc"))
    a, b, c = await driver.pop()
    transactions = [
        Transaction([driver.settlement(a)], driver.batch(driver.message("1", "next"))),
        Transaction([driver.settlement(b, token=driver.token())], driver.batch(driver.message("2", "next"))),
        Transaction([driver.settlement(c)], driver.batch(driver.message("3", "next"))),
    ]

    outcomes = await driver.store.transact(transactions, driver.now)

    await driver.check_accounts()
    assert [o.committed for o in outcomes] == [True, False, True]
    assert payloads(await driver.pop("next")) == ["1", "3"]
    assert (await driver.stats()).completed == 2


async def test_two_transactions_with_the_same_message_settle_it_once(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()
    transactions = [Transaction([driver.settlement(delivery)], driver.batch(driver.message(n, "next"))) for n in "12"]

    outcomes = await driver.store.transact(transactions, driver.now)

    assert [o.committed for o in outcomes] == [True, False]
    assert payloads(await driver.pop("next")) == ["1"]


@pytest.mark.parametrize("empty", ["settlements", "messages", "both"])
async def test_either_part_may_be_empty(driver: Driver, empty: str) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()
    settlements = [driver.settlement(delivery)] if empty == "messages" else []
    messages = [driver.message("b", "next")] if empty == "settlements" else []

    outcome = await driver.transact(settlements, messages)

    assert outcome.committed
    assert (len(outcome.settled), len(outcome.pushed.results)) == (len(settlements), len(messages))
