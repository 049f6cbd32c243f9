"""Scheduled messages with the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
