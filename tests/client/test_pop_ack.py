"""A pop that acks earlier messages: one request for both."""

from __future__ import annotations

import pytest

import skep
from skep.errors import Code, SkepError
from skep.wire.messages import AckStatus


def counters(client: skep.Client) -> tuple[int, int]:
    [group] = client.stats("orders").groups
    return group.completed, group.in_flight


def test_earlier_messages_are_acked_by_the_pop_of_the_next(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3, 4])
    done = client.pop("orders", batch=2)

    found = client.pop("orders", ack=done, batch=2)

    assert [message.json() for message in found] == [3, 4]
    assert {message.settled for message in done} == {AckStatus.COMPLETED}
    assert counters(client) == (2, 2)


def test_the_handle_of_a_partition_does_so_too(client: skep.Client) -> None:
    client.push("orders", 1, partition="a")
    done = client.pop("orders")
    client.push("orders", 2, partition="b")

    found = client.queue("orders", partition="b").pop(ack=done)

    assert [message.json() for message in found] == [2]
    assert done[0].settled is AckStatus.COMPLETED
    assert counters(client) == (1, 1)


async def test_the_asynchronous_client_does_so_too(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1, 2, 3])
    queue = async_client.queue("orders")
    done = await queue.pop()

    found = await queue.pop(ack=done, batch=2)

    assert [message.json() for message in found] == [2, 3]
    assert done[0].settled is AckStatus.COMPLETED


def test_a_loop_of_pops_finishes_all_it_has_worked_on(client: skep.Client) -> None:
    client.push("orders", list(range(10)))
    worked: list[int] = []
    done: list[skep.Message] = []
    while done := client.pop("orders", ack=done, batch=3):
        worked += [message.json() for message in done]

    assert worked == list(range(10))
    assert counters(client) == (10, 0)


def test_I6_a_refused_ack_leaves_its_message_unsettled_and_keeps_nothing_away(client: skep.Client) -> None:
    client.push("orders", 1)
    [stale] = client.pop("orders")
    client.release(stale.lease_id)
    [message] = client.pop("orders")
    client.push("orders", 2, partition="b")

    found = client.pop("orders", ack=[stale])

    assert [one.json() for one in found] == [2]
    assert stale.settled is None
    assert message.ack().status == "completed"


def test_what_is_no_message_is_told_with_the_cure(client: skep.Client) -> None:
    with pytest.raises(SkepError, match="a popped message is wanted") as raised:
        client.pop("orders", ack=["1"])  # type: ignore[list-item]
    assert raised.value.code is Code.INVALID_REQUEST
