"""Acks and pushes that happen together or not at all."""

from __future__ import annotations

import pytest

import skep
from skep.errors import Code


def test_I15_a_transaction_acks_and_pushes_when_its_block_ends(client: skep.Client) -> None:
    client.push("orders", [1])
    [order] = client.pop("orders")

    with client.transaction() as tx:
        tx.ack(order)
        tx.push("bills", {"order": order.json()}, partition="c-1")
        assert tx.pushed == []

    assert [message.status for message in tx.pushed] == ["stored"]
    assert order.settled == "completed"
    assert client.pop("orders") == []
    assert client.pop("bills")[0].json() == {"order": 1}


def test_I15_nothing_of_a_transaction_happens_on_an_exception(client: skep.Client) -> None:
    client.push("orders", [1])
    client.push("bills", [0], partition="other")
    [order] = client.pop("orders")

    tx = client.transaction()
    tx.ack(order)
    tx.push("bills", 1)

    with pytest.raises(ZeroDivisionError), tx:
        _ = 1 / 0

    assert tx.committed is None
    assert [message.json() for message in client.pop("bills", batch=10)] == [0]
    assert order.ack().status == "completed"


def test_I15_nothing_of_a_transaction_happens_when_a_lease_has_ended(client: skep.Client) -> None:
    client.push("orders", [1])
    client.push("bills", [0], partition="other")
    [order] = client.pop("orders")
    order.nack(delay=0)

    tx = client.transaction()
    tx.ack(order)
    tx.push("bills", 1)

    with pytest.raises(skep.SkepError) as raised:
        tx.commit()

    assert raised.value.code is Code.STALE_LEASE
    assert [message.json() for message in client.pop("bills", batch=10)] == [0]


def test_a_message_is_acked_with_what_comes_of_it(client: skep.Client) -> None:
    client.push("orders", [1])

    for message in client.pop("orders"):
        with message, message.transaction() as tx:
            tx.push("bills", message)

    assert message.settled == "completed"
    assert client.pop("bills")[0].json() == 1


def test_a_transaction_of_nothing_asks_nobody(client: skep.Client) -> None:
    client.close()

    with client.transaction() as tx:
        pass

    assert tx.committed is None


def test_a_committed_transaction_takes_nothing_more(client: skep.Client) -> None:
    with client.transaction() as tx:
        tx.push("orders", 1)
        tx.commit()
        with pytest.raises(skep.SkepError, match="committed"):
            tx.push("orders", 2)

    assert [message.json() for message in client.pop("orders", batch=10)] == [1]


def test_nacks_and_rejects_may_be_part_of_it(client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(1, partition="a"), skep.NewMessage(2, partition="b")])
    messages = client.pop("orders", batch=2)

    with client.transaction() as tx:
        tx.nack(messages[0], delay=0, error="later")
        tx.reject(messages[1], error="never")

    assert tx.committed is not None
    assert [result.status for result in tx.committed.results] == ["retrying", "dead"]


async def test_the_asynchronous_client_commits_alike(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1])
    [order] = await async_client.pop("orders")

    async with order.transaction() as tx:
        tx.push("bills", 2)

    assert await async_client.pop("orders") == []
    assert (await async_client.pop("bills"))[0].json() == 2


def test_I2_what_is_committed_is_what_was_pushed_though_the_object_changed_since(client: skep.Client) -> None:
    row = {}
    with client.transaction() as tx:
        for number in range(3):
            row["number"] = number
            tx.push("bills", row)

    assert [message.json()["number"] for message in client.pop("bills", batch=10)] == [0, 1, 2]
