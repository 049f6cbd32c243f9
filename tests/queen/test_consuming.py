"""Consumers, groups and transactions of Queen's published client, as its users write them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from skep.model import QueueKey
from tests.queen.driver import Queen
from tests.support.waiting import until_so


async def test_consumers_share_the_partitions_and_each_keeps_its_order(queen: Queen) -> None:
    await queen.create()
    for partition in ("a", "b", "c"):
        await queen.push(*range(4), partition=partition)
    seen: dict[str, list[int]] = {}

    async def handle(message: dict[str, Any]) -> None:
        seen.setdefault(message["partition"], []).append(message["data"])

    await queen.queue().concurrency(3).batch(2).each().wait(False).limit(4).consume(handle)
    assert seen == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3], "c": [0, 1, 2, 3]}


async def test_a_handler_that_fails_gets_the_message_again_and_then_it_is_a_dead_letter(queen: Queen) -> None:
    await queen.create(retry_limit=2)
    await queen.queue().push([{"data": {"n": 1}, "transactionId": "bad"}])
    retries: list[int] = []

    async def fail(message: dict[str, Any]) -> None:
        retries.append(message["retryCount"])
        raise ValueError("no")

    await queen.queue().wait(False).limit(3).idle_millis(5_000).consume(fail)
    assert retries == [0, 1, 2]
    assert await queen.pop() == []
    letters = await queen.queue().dlq().get()
    assert letters["total"] == 1
    [letter] = letters["messages"]
    assert (letter["transactionId"], letter["data"], letter["retryCount"]) == ("bad", {"n": 1}, 2)
    assert letter["queue"] == "q"
    # Sent back, it is delivered once more.
    assert await queen.client.admin.retry_message(letter["partitionId"], "bad") == {"success": True, "retried": 1}
    assert await queen.data() == [{"n": 1}]
    assert (await queen.queue().dlq().get())["total"] == 0


async def test_a_failure_within_a_batch_ends_the_lease_and_the_rest_comes_again(queen: Queen) -> None:
    await queen.create(retry_limit=5)
    await queen.push(*range(4))
    seen: list[tuple[int, int]] = []

    async def handle(message: dict[str, Any]) -> None:
        seen.append((message["data"], message["retryCount"]))
        if seen[-1] == (1, 0):
            raise ValueError("no")

    await queen.queue().batch(4).each().wait(False).limit(7).consume(handle)
    assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1)]
    assert await queen.pop() == []


async def test_of_acks_in_one_call_a_failed_one_takes_no_other_with_it(queen: Queen) -> None:
    await queen.create(retry_limit=5)
    await queen.push(*range(4))
    popped = await queen.pop(4)
    popped[1]["_status"] = False
    told = await queen.client.ack(popped)
    assert [one["success"] for one in told["results"]] == [True] * 4
    assert await queen.data() == [1]


async def test_groups_start_where_they_say(queen: Queen) -> None:
    await queen.push(1, 2)
    assert await queen.data(group="all") == [1, 2]
    assert await queen.data(group="old", subscription_mode="from_beginning") == [1, 2]
    assert await queen.data(group="new", subscription_mode="new") == []
    assert await queen.data(group="now", subscription_from="now") == []
    queen.pass_seconds(10)
    since = datetime.fromtimestamp(queen.clock.now() / 1_000_000, UTC).isoformat()
    await queen.push(3)
    assert await queen.data(group="late", subscription_from=since) == [3]
    assert await queen.data(group="new") == [3]
    assert await queen.data(group="now") == [3]


async def test_a_transaction_acks_and_pushes_or_does_nothing(queen: Queen) -> None:
    await queen.create(lease_time=10)
    await queen.push("in")
    [message] = await queen.pop()
    moving = queen.client.transaction().ack(message).queue("out").partition("p").push([{"data": "done"}])
    assert (await moving.commit())["success"] is True
    assert await queen.data(queue="out") == ["done"]
    await queen.push("again")
    [message] = await queen.pop()
    queen.pass_seconds(11)
    late = queen.client.transaction().ack(message).queue("out").push([{"data": "never"}])
    with pytest.raises(Exception, match="lease"):
        await late.commit()
    assert await queen.data(queue="out") == []
    assert await queen.data() == ["again"]


async def test_a_transaction_acks_for_a_group(queen: Queen) -> None:
    await queen.push(1)
    [message] = await queen.pop(group="g")
    acked = queen.client.transaction().ack(message, context={"consumer_group": "g"}).queue("out").push({"data": 2})
    assert (await acked.commit())["success"] is True
    assert await queen.data(queue="out") == [2]
    queen.pass_seconds(1_000)
    assert await queen.data(group="g") == []


async def test_a_lease_of_several_partitions_is_one_and_is_kept_as_one(queen: Queen) -> None:
    await queen.create(lease_time=10)
    for partition in ("a", "b", "c"):
        await queen.push(partition, partition=partition)
    assert len(await queen.pop(10)) == 1
    found = await queen.pop(10, partitions=5)
    assert sorted(message["data"] for message in found) == ["b", "c"]
    assert len({message["leaseId"] for message in found}) == 1
    queen.pass_seconds(8)
    kept = await queen.client.renew(found)
    assert [one["success"] for one in kept] == [True]
    assert kept[0]["newExpiresAt"]
    queen.pass_seconds(8)
    # The lease that nobody kept ran out, the other did not.
    assert await queen.data(partitions=5) == ["a"]
    assert [one["success"] for one in (await queen.client.ack(found))["results"]] == [True, True]
    refused = await queen.client.renew(found[0])
    assert refused["success"] is False


async def test_a_lease_is_kept_for_as_long_as_asked(queen: Queen) -> None:
    await queen.create(lease_time=10)
    await queen.push(1)
    [message] = await queen.pop()
    status, told = await queen.post(f"/api/v1/lease/{message['leaseId']}/extend", {"seconds": 100})
    assert (status, told["success"]) == (200, True)
    queen.pass_seconds(99)
    assert await queen.pop() == []
    assert (await queen.call("POST", f"/api/v1/lease/{message['leaseId']}/extend"))[0] == 200
    queen.pass_seconds(9)
    assert (await queen.client.ack(message))["success"] is True


async def test_the_client_for_php_keeps_a_lease(queen: Queen) -> None:
    """It sends an empty list: PHP makes no difference between that and an empty map."""
    await queen.create(lease_time=10)
    await queen.push(1)
    [message] = await queen.pop()
    queen.pass_seconds(8)
    assert (await queen.post(f"/api/v1/lease/{message['leaseId']}/extend", []))[0] == 200
    queen.pass_seconds(8)
    assert (await queen.post(f"/api/v1/lease/{message['leaseId']}/extend", [60]))[0] == 400
    assert (await queen.client.ack(message))["success"] is True


async def test_a_pop_waits_also_for_a_queue_that_is_not_there_yet(queen: Queen) -> None:
    assert await queen.get("/api/v1/pop/queue/none") == (204, None)
    waiting = asyncio.create_task(queen.queue("later").wait(True).timeout_millis(60_000).pop())
    await queen.push("here", queue="later")
    await until_so(waiting.done, lambda: queen.pass_seconds(1))
    assert [message["data"] for message in waiting.result()] == ["here"]


async def waiting_for_a_queue(queen: Queen) -> asyncio.Task[Any]:
    """A pop that waits for five seconds, and has looked once: its queue is not there."""
    answers = queen.server.app.answers
    answers.peak_bytes = 0
    waiting = asyncio.create_task(queen.get("/api/v1/pop/queue/none", wait="true", timeout=5_000))
    await until_so(lambda: answers.peak_bytes)
    return waiting


async def test_a_pop_waits_for_a_queue_no_longer_when_the_clock_is_put_back(queen: Queen) -> None:
    waiting = await waiting_for_a_queue(queen)
    begun = queen.clock.put_back(3_600)
    await until_so(waiting.done, lambda: queen.pass_seconds(1))
    passed = queen.clock.now() - begun
    queen.pass_seconds(3_600)  # other tests have the same clock
    assert waiting.result() == (204, None)
    assert passed < 600_000_000


async def test_a_pop_that_waits_for_a_queue_takes_no_room_of_answers(queen: Queen) -> None:
    answers = queen.server.app.answers

    async def hold(size: int) -> None:
        answers.add(size)

    waiting = await waiting_for_a_queue(queen)
    waited = answers.waited
    queen.server.run(hold(answers.most_bytes))
    try:
        await until_so(waiting.done, lambda: queen.pass_seconds(1))
    finally:
        queen.server.run(hold(-answers.most_bytes))
    assert waiting.result() == (204, None)
    assert answers.waited == waited


async def test_a_pop_that_waits_gets_nothing_after_its_time(queen: Queen) -> None:
    await queen.create()
    waiting = asyncio.create_task(queen.queue().wait(True).timeout_millis(5_000).pop())
    await until_so(lambda: queen.server.engine.parked_polls)
    queen.pass_seconds(6)
    assert await waiting == []


async def test_a_namespace_and_a_task_are_popped_together(queen: Queen) -> None:
    await queen.queue("a").namespace("n").task("t").create()
    await queen.queue("b").namespace("n").task("u").create()
    await queen.push("a", queue="a")
    await queen.push("b", queue="b")
    both = queen.client.queue().namespace("n").batch(10).partitions(10).wait(False)
    found = await both.pop()
    assert sorted(message["data"] for message in found) == ["a", "b"]
    assert all([(await queen.client.ack(message))["success"] for message in found])
    assert await queen.client.queue().namespace("n").task("t").wait(False).pop() == []


async def test_what_is_acked_as_it_is_popped_comes_once(queen: Queen) -> None:
    await queen.create(lease_time=1)
    await queen.push(1, 2)
    found = await queen.pop(2, auto_ack=False) + await queen.pop(1)
    assert [message["data"] for message in found] == [1, 2]
    await queen.queue("fast").push([{"data": 1}])
    status, told = await queen.get("/api/v1/pop/queue/fast", autoAck="true")
    assert (status, told["messages"][0]["leaseId"]) == (200, None)
    queen.pass_seconds(1_000)
    assert await queen.data(queue="fast") == []


async def test_delayed_messages_and_a_window(queen: Queen) -> None:
    await queen.create(delayed_processing=30)
    await queen.push(1)
    assert await queen.data() == []
    queen.pass_seconds(31)
    assert await queen.data() == [1]
    await queen.create("w", window_buffer=5)
    await queen.push(1, queue="w")
    await queen.push(2, queue="w")
    assert await queen.data(queue="w") == []
    queen.pass_seconds(6)
    assert await queen.data(queue="w") == [1, 2]


async def test_buffered_pushes_arrive_in_order(queen: Queen) -> None:
    for number in range(5):
        await queen.queue().buffer({"message_count": 2, "time_millis": 60_000}).push({"data": number})
    await queen.client.flush_all_buffers()
    assert await queen.data() == [0, 1, 2, 3, 4]


async def test_a_consumer_traces_its_messages(queen: Queen) -> None:
    await queen.queue().push([{"data": 1, "transactionId": "t"}])

    async def handle(message: dict[str, Any]) -> None:
        told = await message["trace"]({"traceName": ["charge", "order-1"], "eventType": "step", "data": {"amount": 5}})
        assert told["success"] is True

    await queen.queue().wait(False).limit(1).consume(handle)
    admin = queen.client.admin
    [event] = (await admin.get_traces_by_name("charge"))["traces"]
    assert (event["transactionId"], event["eventType"], event["data"]) == ("t", "step", {"amount": 5})
    of_message = await admin.get_traces_for_message(event["partitionId"], "t")
    assert [one["traceName"] for one in of_message["traces"]] == ["charge", "order-1"]
    assert [one["traceName"] for one in (await admin.get_trace_names())["traceNames"]] == ["charge", "order-1"]


async def test_two_doors_have_the_same_messages(queen: Queen) -> None:
    await queen.push({"n": 1})
    queen.api.push("q", {"n": 2}, {"n": 3}, headers={"x": "y"})
    first = await queen.pop(2)
    assert [message["data"] for message in first] == [{"n": 1}, {"n": 2}]
    assert first[1]["headers"] == {"x": "y"}
    # One that came without a transaction id is named by its id.
    assert first[1]["transactionId"] == first[1]["id"]
    assert [one["success"] for one in (await queen.client.ack(first))["results"]] == [True, True]
    key = QueueKey("q", queen.tenant)
    stats = queen.server.run(queen.server.engine.browse.queue_stats(key))
    assert (stats.groups[0].completed, stats.groups[0].pending) == (2, 1)


async def test_a_reader_of_the_log_has_what_was_acked_too(queen: Queen) -> None:
    """Spark reads the log, as Arrow."""
    await queen.queue().push([{"data": {"n": 1}, "transactionId": "t"}])
    [message] = await queen.pop()
    await queen.client.ack(message)
    reply = queen.api.request(
        "GET", "/api/v1/log/q?from=1&limit=10", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    [row] = pa.ipc.open_stream(reply.body).read_all().to_pylist()
    assert (bytes(row["payload"]), row["transaction_id"], row["partition"]) == (b'{"n":1}', "t", "Default")
