"""Scheduled messages with the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import skep
from skep.errors import Code

SOON = datetime(2101, 1, 1, tzinfo=UTC)


def test_all_are_listed_over_several_pages(client: skep.Client) -> None:
    client.push("orders", list(range(150)), deliver_at=SOON)
    client.push("mails", "x", deliver_at=SOON + timedelta(days=1), transaction_id="t")

    assert [int(bytes(one.payload)) for one in client.scheduled("orders")] == list(range(150))
    assert len(list(client.scheduled())) == 151
    [mail] = client.scheduled(transaction_id="t")
    assert (mail.queue, mail.deliver_at) == ("mails", SOON + timedelta(days=1))
    assert client.scheduled_message("mails", mail.id) == mail


def test_they_are_cancelled_moved_and_run(client: skep.Client) -> None:
    first, second, third = client.push("orders", [1, 2, 3], deliver_at=SOON).messages

    moved = client.move_scheduled("orders", SOON + timedelta(days=1), ids=[first.message_id])
    would = client.cancel_scheduled("orders", due_before=SOON + timedelta(hours=1), dry_run=True)
    ran = client.run_scheduled("orders", ids=[third.message_id])
    did = client.cancel_scheduled("orders", due_before=SOON + timedelta(hours=1), mark=would.mark)

    assert (moved.count, would.count, ran.count, did.count) == (1, 2, 1, 1)
    assert [one.id for one in did.messages] == [second.message_id]
    assert [one.id for one in client.scheduled("orders")] == [first.message_id]
    assert [message.json() for message in client.pop("orders", batch=5)] == [3]
    with pytest.raises(skep.SkepError) as raised:
        client.scheduled_message("orders", second.message_id)
    assert raised.value.code is Code.MESSAGE_NOT_FOUND


def test_a_wish_that_there_is_not_is_refused_here(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError) as raised:
        client.cancel_scheduled("orders", partitions="p")  # type: ignore[call-arg] # that is the point

    assert raised.value.code is Code.INVALID_REQUEST


async def test_the_same_for_asyncio(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1, 2], deliver_at=SOON)

    [first, second] = [one async for one in async_client.scheduled("orders")]
    assert (await async_client.run_scheduled("orders", ids=[first.id])).count == 1
    assert (await async_client.move_scheduled("orders", SOON, ids=[second.id])).count == 1
    assert (await async_client.scheduled_message("orders", second.id)).id == second.id
    assert (await async_client.cancel_scheduled("orders")).count == 1


@pytest.mark.parametrize("delay", [3_600, 3_600.0, timedelta(hours=1)])
def test_a_push_with_a_delay_is_due_that_long_after_the_call(client: skep.Client, delay: float | timedelta) -> None:
    before = datetime.now(UTC)
    client.push("orders", 1, delay=delay)
    after = datetime.now(UTC)

    [one] = client.scheduled("orders")
    slack = timedelta(seconds=1)
    assert before + timedelta(hours=1) - slack <= one.deliver_at <= after + timedelta(hours=1) + slack


def test_what_a_message_says_of_its_time_goes_before_what_is_said_of_all(client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(1, deliver_at=SOON), skep.NewMessage(2, delay=0), 3], delay=60)

    assert [bytes(one.payload) for one in client.scheduled("orders")] == [b"3", b"1"]
    assert [message.json() for message in client.pop("orders")] == [2]


def test_a_message_of_a_transaction_may_have_a_delay(client: skep.Client) -> None:
    client.push("orders", 1)
    [message] = client.pop("orders")
    with client.transaction() as tx:
        tx.ack(message)
        tx.push("mails", "later", delay=60)

    assert [bytes(one.payload) for one in client.scheduled("mails")] == [b'"later"']


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"delay": 1, "deliver_at": SOON}, Code.INVALID_REQUEST),
        ({"delay": -1}, Code.INVALID_TIME),
        ({"delay": float("nan")}, Code.INVALID_TIME),
        ({"delay": float("inf")}, Code.INVALID_TIME),
        ({"delay": 1e300}, Code.INVALID_TIME),
        ({"delay": "soon"}, Code.INVALID_TIME),
        ({"delay": timedelta(days=-1)}, Code.INVALID_TIME),
    ],
)
def test_a_delay_that_cannot_be_meant_is_refused(client: skep.Client, options: dict[str, Any], code: Code) -> None:
    with pytest.raises(skep.SkepError) as raised:
        client.push("orders", 1, **options)

    assert raised.value.code is code
