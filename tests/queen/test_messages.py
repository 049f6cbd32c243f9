"""Push, pop and ack with Queen's published client."""

from __future__ import annotations

from tests.queen.driver import GROUP, Queen


async def test_a_message_is_pushed_popped_and_acked(queen: Queen) -> None:
    made = await queen.create(lease_time=60, retry_limit=2, max_size=100)
    assert made["configured"] is True
    assert (made["options"]["leaseTime"], made["options"]["retryLimit"], made["options"]["maxSize"]) == (60, 2, 100)
    [pushed] = await queen.queue().push([{"data": {"n": 1}, "transactionId": "t1"}])
    assert (pushed["status"], pushed["transaction_id"]) == ("queued", "t1")
    [message] = await queen.pop()
    assert message["data"] == {"n": 1}
    assert message["id"] == pushed["message_id"]
    assert (message["transactionId"], message["queue"], message["partition"]) == ("t1", "q", "Default")
    assert (message["retryCount"], message["consumerGroup"]) == (0, GROUP)
    assert message["partitionId"]
    assert message["leaseId"]
    done = await queen.client.ack(message)
    assert (done["success"], done["transactionId"]) == (True, "t1")
    assert await queen.pop() == []
    queen.pass_seconds(61)
    assert await queen.pop() == []


async def test_a_repeated_transaction_id_is_a_duplicate_of_the_first_message(queen: Queen) -> None:
    [first] = await queen.queue().push([{"data": 1, "transactionId": "t"}])
    again = await queen.queue().push([{"data": 2, "transactionId": "t"}, {"data": 3, "transactionId": "u"}])
    assert [(one["status"], one["index"]) for one in again] == [("duplicate", 0), ("queued", 1)]
    assert again[0]["message_id"] == first["message_id"]
    assert await queen.data() == [1, 3]


async def test_an_empty_push_is_an_empty_array(queen: Queen) -> None:
    assert await queen.queue().push([]) == []
    assert await queen.post("/api/v1/push", {"items": []}) == (201, [])


async def test_a_lease_that_ran_out_is_redelivered_and_its_ack_refused(queen: Queen) -> None:
    await queen.create(lease_time=10)
    await queen.push("x")
    [first] = await queen.pop()
    queen.pass_seconds(11)
    assert (await queen.client.ack(first))["success"] is False
    [second] = await queen.pop()
    assert second["retryCount"] == 1
    refused = await queen.client.ack(first)
    assert refused["success"] is False
    assert "lease" in refused["error"]
    assert (await queen.client.ack(second))["success"] is True


async def test_a_batch_is_acked_row_by_row(queen: Queen) -> None:
    await queen.create(retry_limit=1)
    await queen.push(1, 2, 3)
    popped = await queen.pop(3)
    popped[1]["_status"], popped[1]["_error"] = False, "two is odd"
    told = await queen.client.ack(popped)
    assert [one["success"] for one in told["results"]] == [True, True, True]
    [again] = await queen.pop(10)
    assert (again["data"], again["retryCount"]) == (2, 1)
    assert (await queen.client.ack(again, False, {"error": "two again"}))["dlq"] is True
    assert await queen.pop() == []
