"""Popping and settling with the client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta

import pytest

import skep
from skep.errors import Code
from skep.model import Ordering, QueueChanges, QueueKey, SettleStatus
from skep.testing.server import RunningServer, running_server


def test_a_message_is_acked_when_its_block_ends(client: skep.Client) -> None:
    client.push("orders", [1])

    with client.pop("orders")[0] as message:
        assert message.json() == 1

    assert message.settled == "completed"
    assert client.pop("orders") == []


def test_a_message_is_nacked_when_its_block_fails(client: skep.Client) -> None:
    client.push("orders", [1])

    with pytest.raises(ZeroDivisionError), client.pop("orders")[0] as message:
        _ = 1 / 0

    assert message.settled == "failed"


def test_a_block_leaves_alone_what_was_settled_within(client: skep.Client) -> None:
    client.push("orders", [1])

    with client.pop("orders")[0] as message:
        assert message.reject(error="no").dead_letter_queue == "orders.dead"

    assert message.settled == "dlq"


def test_a_popped_dead_letter_says_where_it_comes_from_and_why_it_died(client: skep.Client) -> None:
    client.push("orders", [1], partition="ann")
    client.pop("orders", group="billing")[0].reject(error="no such card")

    [letter] = client.pop("orders.dead")

    story = letter.dead_letter
    assert story is not None
    assert (story.source_queue, story.source_seq, story.partition) == ("orders", 1, "ann")
    assert (story.consumer_group, story.reason, story.error, story.attempts) == (
        "billing",
        "rejected",
        "no such card",
        1,
    )
    assert story.failed_at == letter.created_at
    assert client.pop("orders")[0].dead_letter is None


def test_a_nack_says_when_the_message_comes_again(client: skep.Client) -> None:
    client.push("orders", [1])

    [message] = client.pop("orders")
    assert message.nack(error="not yet", delay=0).status is SettleStatus.RETRYING
    [message] = client.pop("orders")
    assert message.attempt == 2
    later = datetime.now(UTC) + timedelta(hours=1)
    result = message.nack(retry_at=later)

    assert result.retry_at == later
    assert client.pop("orders") == []


def test_a_delay_and_a_time_at_once_are_refused(client: skep.Client) -> None:
    client.push("orders", [1])
    [message] = client.pop("orders")

    with pytest.raises(skep.SkepError, match="not both"):
        message.nack(delay=1, retry_at=datetime.now(UTC))


def test_I6_an_ack_of_a_lease_that_ended_is_raised(client: skep.Client) -> None:
    client.push("orders", [1])
    [first] = client.pop("orders")
    first.nack(delay=0)
    [second] = client.pop("orders")

    with pytest.raises(skep.SkepError) as raised:
        first.ack()

    assert raised.value.code is Code.STALE_LEASE
    assert second.ack().status is SettleStatus.COMPLETED


def test_settling_several_tells_of_each(client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(n, partition=str(n)) for n in range(3)])
    messages = client.pop("orders", batch=3)
    messages[0].ack()

    results = client.ack(*messages)

    assert [result.status for result in results] == ["completed", "completed", "completed"]
    assert [result.repeated is True for result in results] == [True, False, False]
    assert [message.settled for message in messages] == ["completed", "completed", "completed"]
    assert client.ack() == []


def test_a_lease_is_kept_for_longer(client: skep.Client) -> None:
    client.push("orders", [1])
    [message] = client.pop("orders", lease_seconds=10)
    before = message.lease_deadline

    assert message.renew(600) > before + timedelta(seconds=500)
    [extended] = client.renew(message, lease_seconds=900)

    assert extended.lease_deadline is not None
    assert extended.lease_deadline > message.lease_deadline


def test_a_pop_waits_for_the_first_message() -> None:
    with running_server() as server, skep.Client(server.url) as client, ThreadPoolExecutor(1) as pool:
        client.push("orders", [0])
        client.pop("orders")[0].ack()

        waiting = pool.submit(client.pop, "orders", wait_seconds=30)
        while not server.engine.parked_polls and not waiting.done():
            wait([waiting], timeout=0.01)
        client.push("orders", [1])

        assert [message.json() for message in waiting.result()] == [1]


def test_consuming_goes_on_from_batch_to_batch(client: skep.Client) -> None:
    client.push("orders", list(range(5)))
    seen = []

    for message in client.consume("orders", batch=2):
        with message:
            seen.append(message.json())
        if len(seen) == 5:
            break

    assert seen == [0, 1, 2, 3, 4]


def test_what_consuming_did_not_hand_out_is_given_back(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    consuming = client.consume("orders", batch=3)
    next(consuming).ack()

    consuming.close()  # type: ignore[attr-defined] # it is a generator

    assert [message.json() for message in client.pop("orders", batch=3)] == [2]


def test_nothing_is_given_back_under_a_message_that_is_worked_on(client: skep.Client) -> None:
    client.push("orders", [1, 2])
    consuming = client.consume("orders", batch=2)
    first = next(consuming)

    consuming.close()  # type: ignore[attr-defined] # it is a generator

    assert first.ack().status is SettleStatus.COMPLETED


def test_after_a_nack_the_rest_of_an_ordered_lease_is_not_handed_out_stale(client: skep.Client) -> None:
    client.push("orders", [1, 2])
    consuming = client.consume("orders", batch=2)
    first = next(consuming)
    first.nack(delay=0)

    again = next(consuming)

    assert (again.json(), again.attempt) == (1, 2)
    assert again.ack().status is SettleStatus.COMPLETED


def test_after_a_nack_the_rest_of_an_unordered_lease_is_still_good(
    client: skep.Client, server: RunningServer, tenant: str
) -> None:
    changes = QueueChanges(ordering=Ordering.UNORDERED)
    server.run(server.engine.configure_queue(QueueKey("mails", tenant), changes))
    client.push("mails", [1, 2])
    consuming = client.consume("mails", batch=2)
    next(consuming).nack(retry_at=datetime.now(UTC) + timedelta(hours=1))

    second = next(consuming)

    assert (second.json(), second.attempt) == (2, 1)
    assert second.ack().status is SettleStatus.COMPLETED


def test_a_queue_repeats_its_partition_and_group(client: skep.Client) -> None:
    one = client.queue("orders", partition="p-1", group="billing")
    one.push([1])
    client.push("orders", [2], partition="p-2")

    messages = one.pop(batch=10)

    assert [(message.json(), message.group) for message in messages] == [(1, "billing")]
    assert [message.json() for message in one.pop(partition="p-2")] == [2]
    assert [message.json() for message in client.pop("orders", batch=10)] == [1, 2]


def test_a_group_may_begin_with_what_comes_from_now_on(client: skep.Client) -> None:
    client.push("orders", [1, 2])

    assert client.pop("orders", group="late", start="new") == []
    assert [m.json() for m in client.pop("orders", group="second", start=2)] == [2]
    assert [m.json() for m in client.pop("orders", group="old", start=datetime(2000, 1, 1, tzinfo=UTC))] == [1]


def test_names_may_have_slashes_and_spaces(client: skep.Client) -> None:
    client.push("a/b c?", [1], partition="x/y %")

    assert client.queue("a/b c?", partition="x/y %").pop()[0].json() == 1


def test_auto_ack_settles_what_it_hands_out(client: skep.Client) -> None:
    client.push("orders", [1])

    assert client.pop("orders", auto_ack=True)[0].json() == 1
    assert client.pop("orders") == []


def test_a_payload_that_does_not_fit_says_why(client: skep.Client) -> None:
    client.push("orders", [{"n": "x"}])
    [message] = client.pop("orders")

    with pytest.raises(skep.SkepError, match="does not fit"):
        message.as_(int)


async def test_the_asynchronous_client_consumes_alike(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1, 2, 3])
    seen = []

    async for message in async_client.consume("orders", batch=2):
        async with message:
            seen.append(message.json())
        if len(seen) == 3:
            break

    assert seen == [1, 2, 3]


def test_what_failed_in_a_block_is_raised_though_the_lease_is_lost(client: skep.Client) -> None:
    client.push("orders", 1)
    [message] = client.pop("orders")
    message.ack()

    def work() -> None:
        message.settled = None
        with message:
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause") as raised:
        work()

    assert "could not be nacked" in raised.value.__notes__[0]


def test_a_word_that_means_nothing_is_no_option(client: skep.Client) -> None:
    with pytest.raises(TypeError, match="'partitoin'"):
        client.push("orders", 1, partitoin="p")  # type: ignore[call-arg] # the mistake
    with pytest.raises(TypeError, match="'wait'"):
        client.pop("orders", wait=3)  # type: ignore[call-arg] # the mistake
    with pytest.raises(TypeError, match="'on_success'"), client.buffer("orders") as out:
        out.push(1, on_success=print)  # type: ignore[call-arg] # the mistake


@pytest.mark.parametrize("url", ["http://localhost:99999", "http://local host:1"])
def test_a_url_that_is_none_is_a_mistake(url: str) -> None:
    with skep.Client(url) as wrong, pytest.raises(skep.SkepError, match="INVALID_REQUEST"):
        wrong.push("orders", 1)


def test_a_wait_beyond_all_measure_is_a_mistake(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError, match="INVALID_REQUEST"):
        client.pop("orders", wait_seconds=1e20)
