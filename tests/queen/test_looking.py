"""What Queen's clients ask about queues, messages, groups and the server, and what they change by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from skep.http.queen.routes import AS_OURS, CALLS
from tests.queen.driver import GROUP, Queen


async def stamp(queen: Queen) -> str:
    return datetime.fromtimestamp(queen.clock.now() / 1_000_000, UTC).isoformat()


async def test_queues_are_listed_shown_and_deleted(queen: Queen) -> None:
    await queen.queue("one").namespace("n").task("t").config({"max_size": 5}).create()
    await queen.push(1, 2, queue="two")
    await queen.pop(queue="two")
    admin = queen.client.admin
    listed = await admin.list_queues()
    assert [queue["name"] for queue in listed["queues"]] == ["one", "two"]
    assert [queue["name"] for queue in (await admin.list_queues(limit=1, offset=1))["queues"]] == ["two"]
    assert [queue["name"] for queue in (await admin.list_queues(namespace="n"))["queues"]] == ["one"]
    assert [queue["name"] for queue in (await admin.list_queues(search="tw"))["queues"]] == ["two"]
    one, two = await admin.get_queue("one"), await admin.get_queue("two")
    assert (one["namespace"], one["task"], one["options"]["maxSize"]) == ("n", "t", 5)
    assert (two["messages"]["total"], two["messages"]["processing"], two["messages"]["pending"]) == (2, 1, 1)
    assert [(place["name"], place["processing"]) for place in two["partitions"]] == [("Default", 1)]
    places = await admin.get_partitions(queue="two")
    assert [place["name"] for place in places["partitions"]] == ["Default"]
    assert await queen.queue("two").delete() == {"deleted": True, "queue": "two", "existed": True}
    assert await queen.queue("two").delete() == {"deleted": True, "queue": "two", "existed": False}
    with pytest.raises(httpx.HTTPStatusError, match="no queue"):
        await admin.get_queue("two")


async def test_a_queue_is_cleared(queen: Queen) -> None:
    await queen.push(1, 2)
    await queen.pop()
    assert await queen.client.admin.clear_queue("q") == {"queue": "q", "cleared": True, "count": 2}
    assert await queen.pop() == []
    with pytest.raises(httpx.HTTPStatusError, match="whole queue"):
        await queen.client.admin.clear_queue("q", "Default")


async def test_messages_are_listed_shown_and_deleted(queen: Queen) -> None:
    await queen.queue().push([{"data": {"n": number}, "transactionId": f"t{number}"} for number in range(3)])
    [first] = await queen.pop()
    admin = queen.client.admin
    listed = (await admin.list_messages(queue="q"))["messages"]
    assert [(one["transactionId"], one["status"]) for one in listed] == [
        ("t2", "pending"), ("t1", "pending"), ("t0", "processing"),
    ]  # fmt: skip
    assert [one["transactionId"] for one in (await admin.list_messages(queue="q", offset=1, limit=1))["messages"]] == [
        "t1"
    ]
    assert [
        one["transactionId"] for one in (await admin.list_messages(queue="q", status="processing"))["messages"]
    ] == ["t0"]
    shown = await admin.get_message(first["partitionId"], "t1")
    assert (shown["data"], shown["queue"]) == ({"n": 1}, "q")
    assert (await admin.delete_message(first["partitionId"], "t1"))["deleted"] is True
    await queen.client.ack(first)
    assert await queen.data() == [{"n": 2}]
    with pytest.raises(httpx.HTTPStatusError, match="No message"):
        await admin.get_message(first["partitionId"], "none")
    with pytest.raises(httpx.HTTPStatusError, match="whoever holds it"):
        await admin.move_message_to_dlq(first["partitionId"], "t2")


async def test_a_message_is_shown_with_its_payload_and_its_status(queen: Queen) -> None:
    [pushed] = await queen.queue().push([{"data": {"n": 1}, "transactionId": "t"}])
    [popped] = await queen.pop(group="g")
    admin, place = queen.client.admin, popped["partitionId"]
    shown = await admin.get_message(place, "t")
    assert (shown["payload"], shown["status"], shown["id"]) == ({"n": 1}, "pending", pushed["message_id"])
    [own] = await queen.pop()
    assert (await admin.get_message(place, "t"))["status"] == "processing"
    await queen.client.ack(own, "dlq")
    assert (await admin.get_message(place, "t"))["status"] == "dead_letter"
    path = f"/api/v1/messages/{place}/t"
    assert (await queen.get(path, consumerGroup="g"))[1]["status"] == "processing"
    assert (await queen.get(path, consumerGroup="other"))[0] == 404


async def test_messages_are_listed_before_anybody_has_popped_without_a_group(queen: Queen) -> None:
    await queen.queue().push([{"data": number, "transactionId": f"t{number}"} for number in range(2)])
    await queen.pop(group="g")
    list_messages = queen.client.admin.list_messages
    for query in ({}, {"status": "pending"}):
        listed = (await list_messages(queue="q", **query))["messages"]
        assert [(one["transactionId"], one["status"]) for one in listed] == [("t1", "pending"), ("t0", "pending")]
    assert [one["transactionId"] for one in (await list_messages(queue="q", offset=1))["messages"]] == ["t0"]
    assert (await list_messages(queue="q", status="completed"))["messages"] == []
    with pytest.raises(httpx.HTTPStatusError, match="no group 'other'"):
        await list_messages(queue="q", consumerGroup="other")
    with pytest.raises(httpx.HTTPStatusError, match="no queue"):
        await list_messages(queue="none")


async def test_a_message_without_a_transaction_id_is_found_by_its_id(queen: Queen) -> None:
    queen.api.push("q", {"n": 1})
    [message] = await queen.pop()
    shown = await queen.client.admin.get_message(message["partitionId"], message["transactionId"])
    assert (shown["id"], shown["data"]) == (message["id"], {"n": 1})


async def test_a_message_with_a_trace_and_no_transaction_id_is_found_by_its_id(queen: Queen) -> None:
    """So it is with what a native client pushes with a `traceparent`."""
    trace = "0190a6e0-0000-7000-8000-000000000001"
    queen.api.push("q", {"n": 1}, {"n": 2}, {"n": 3}, traceId=trace)
    popped = await queen.pop(3)
    told = []
    for message in popped:
        named = {name: message[name] for name in ("transactionId", "partitionId")}
        told.append((await queen.post("/api/v1/traces", {**named, "traceNames": ["seen"], "data": {}}))[1]["success"])
    assert told == [True, True, True]
    second = popped[1]
    shown = await queen.client.admin.get_message(second["partitionId"], second["transactionId"])
    assert (shown["id"], shown["traceId"], shown["data"]) == (second["id"], trace, {"n": 2})
    events = await queen.client.admin.get_traces_for_message(second["partitionId"], second["transactionId"])
    assert [event["messageId"] for event in events["traces"]] == [second["id"]]


async def test_a_message_is_found_by_its_id_also_when_others_follow_in_its_trace(queen: Queen) -> None:
    queen.api.push("q", {"n": 1})
    [first] = await queen.pop()
    queen.api.push("p", *range(20), traceId=first["id"])
    shown = await queen.client.admin.get_message(first["partitionId"], first["transactionId"])
    assert (shown["queue"], shown["data"]) == ("q", {"n": 1})


async def test_a_scheduled_message_is_found_by_its_id(queen: Queen) -> None:
    queen.api.push("q", {"n": 1}, delaySeconds=100)
    queen.pass_seconds(101)
    [message] = await queen.pop()
    shown = await queen.client.admin.get_message(message["partitionId"], message["transactionId"])
    assert shown["data"] == {"n": 1}
    named = {name: message[name] for name in ("transactionId", "partitionId")}
    assert (await queen.post("/api/v1/traces", {**named, "data": {}}))[0] == 201


async def test_a_rejected_message_is_a_dead_letter_that_is_listed_by_parts(queen: Queen) -> None:
    await queen.create()
    for number in range(5):
        await queen.queue().partition(f"p{number}").push([{"data": number}])
    for message in await queen.pop(10, partitions=10):
        assert (await queen.client.ack(message, "dlq", {"error": f"bad {message['data']}"}))["dlq"] is True
    page = await queen.queue().dlq().limit(2).offset(1).get()
    assert page["total"] == 5
    assert [(one["data"], one["errorMessage"], one["consumerGroup"]) for one in page["messages"]] == [
        (1, "bad 1", GROUP), (2, "bad 2", GROUP),
    ]  # fmt: skip
    assert (await queen.queue().partition("p3").dlq().get())["total"] == 1
    assert (await queen.queue().dlq("other").get())["total"] == 0
    queen.pass_seconds(10)
    now = await stamp(queen)
    assert (await queen.queue().dlq().to(now).get())["total"] == 5
    assert (await queen.queue().dlq().from_(now).get())["total"] == 0
    assert (await queen.queue("none").dlq().get())["messages"] == []
    assert (await queen.queue().dlq().offset(5).get())["messages"] == []


async def test_groups_are_listed_moved_and_deleted(queen: Queen) -> None:
    await queen.push(1, 2)
    admin = queen.client.admin
    for message in await queen.pop(2, group="g"):
        await queen.client.ack(message, True, {"group": "g"})
    await queen.push(3, queue="other")
    await queen.pop(group="g", queue="other")
    listed = await admin.list_consumer_groups()
    assert [(one["name"], one["queueName"], one["totalLag"]) for one in listed] == [("g", "other", 1), ("g", "q", 0)]
    shown = await admin.get_consumer_group("g")
    assert (shown["name"], shown["totalLag"], len(shown["queues"])) == ("g", 1, 2)
    queen.pass_seconds(100)
    assert [one["queueName"] for one in await admin.get_lagging_consumers(50)] == ["other"]
    assert (await admin.refresh_consumer_stats())["success"] is True
    assert (await admin.seek_consumer_group("g", "q", {"position": "beginning"}))["totalLag"] == 2
    assert (await admin.seek_consumer_group("g", "q", {"toEnd": True}))["totalLag"] == 0
    with pytest.raises(httpx.HTTPStatusError, match="Say where to"):
        await admin.seek_consumer_group("g", "q")
    await queen.client.update_consumer_group_timestamp("g", "2020-01-01T00:00:00Z")
    assert await queen.data(group="g") == [1, 2]
    deleted = await admin.delete_consumer_group_for_queue("g", "q")
    assert (deleted["deleted"], deleted["queues"]) == (True, ["q"])
    assert (await queen.client.delete_consumer_group("g"))["queues"] == ["other"]
    assert await admin.list_consumer_groups() == []
    with pytest.raises(httpx.HTTPStatusError, match="no group"):
        await queen.client.delete_consumer_group("g")


async def test_the_client_for_go_moves_a_group_by_a_mode(queen: Queen) -> None:
    await queen.push(1, 2)
    path = "/api/v1/consumer-groups/g/queues/q/seek"
    for mode, lag in (("end", 0), ("beginning", 2), ("2100-01-01T00:00:00Z", 0)):
        status, told = await queen.post(path, {"mode": mode})
        assert (status, told["totalLag"]) == (200, lag)
    assert (await queen.post(path, {"mode": "sideways"}))[0] == 400


async def test_a_group_that_keeps_its_metadata_starts_where_it_began(queen: Queen) -> None:
    await queen.push(1)
    assert await queen.data(group="new", subscription_mode="new") == []
    await queen.push(2)
    assert await queen.data(group="new") == [2]
    assert (await queen.client.delete_consumer_group("new", delete_metadata=False))["metadataDeleted"] is False
    assert await queen.data(group="new") == [2]


async def test_the_server_tells_of_itself(queen: Queen) -> None:
    admin = queen.client.admin
    await queen.push(1)
    assert (await admin.health())["status"] == "healthy"
    assert (await admin.get_maintenance_mode())["maintenanceMode"] is False
    assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is False
    assert (await admin.set_maintenance_mode(False))["maintenanceMode"] is False
    for switch in (admin.set_maintenance_mode, admin.set_pop_maintenance_mode):
        with pytest.raises(httpx.HTTPStatusError, match="no maintenance mode"):
            await switch(True)
    assert (await admin.get_overview())["queues"] == 1
    assert (await admin.get_namespaces())["namespaces"] == []
    assert (await admin.get_tasks())["tasks"] == []
    assert (await admin.get_status())["totals"]["queues"] == 1
    assert [one["queue"] for one in (await admin.get_queue_stats(limit=10, offset=0))["queues"]] == ["q"]
    assert (await admin.get_queue_detail("q"))["status"]["queue"] == "q"
    assert "points" in await admin.get_analytics(interval="hour")
    assert (await queen.http.get("/metrics")).text.startswith("# ")
    for figures in (admin.get_system_metrics, admin.get_worker_metrics, admin.get_postgres_stats):
        with pytest.raises(httpx.HTTPStatusError, match="/metrics"):
            await figures()


def test_the_page_has_every_route() -> None:
    page = Path("docs/queen.md").read_text(encoding="utf-8")
    for call in CALLS:
        path = call.path.replace("{partition}/{transaction}", "{partitionId}/{transactionId}").replace(
            "{lease}", "{leaseId}"
        )
        last = path.rpartition("/")[2]
        assert f"{call.method} {path}" in page or last in page, path
    for path in AS_OURS:
        assert path.removeprefix("/api/v1/resources/").removeprefix("/api/v1/") in page, path
