"""Attacks on the door for Queen's clients: stale and foreign leases, broken bodies, ids of others. Nothing is lost or half done."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from skep.errors import Code, SkepError
from skep.http.queen.door import refuse
from skep.http.queen.names import LeasedBy, PartitionName, write_id
from skep.model import Token
from skep.model.operation import operations_ahead
from tests.queen.driver import Queen


def ack_of(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "transactionId": message["transactionId"], "partitionId": message["partitionId"], "leaseId": message["leaseId"],
        "status": "completed", **fields,
    }  # fmt: skip


async def acked(queen: Queen, *acks: dict[str, Any], group: str | None = None) -> list[bool]:
    status, told = await queen.post("/api/v1/ack/batch", {"acknowledgments": list(acks), "consumerGroup": group})
    assert status == 200
    return [one["success"] for one in told]


async def test_who_has_not_the_message_cannot_ack_it(queen: Queen) -> None:
    await queen.create(lease_time=10)
    await queen.push(1)
    [mine] = await queen.pop(group="mine")
    [other] = await queen.pop(group="other")
    # Another group, no group, and the lease of the one for the other.
    assert await acked(queen, ack_of(mine), group="other") == [False]
    assert await acked(queen, ack_of(mine)) == [False]
    assert await acked(queen, ack_of(mine, leaseId=other["leaseId"]), group="mine") == [False]
    # A lease that ran out, also when the same group has the message again.
    queen.pass_seconds(11)
    [again] = await queen.pop(group="mine")
    assert await acked(queen, ack_of(mine), group="mine") == [False]
    assert await acked(queen, ack_of(mine, status="dlq"), group="mine") == [False]
    assert await acked(queen, ack_of(again), group="mine") == [True]
    # Settled is settled.
    assert await acked(queen, ack_of(again), group="mine") == [False]


async def test_without_a_lease_id_the_present_lease_counts(queen: Queen) -> None:
    await queen.create(lease_time=10)
    await queen.push(1)
    [first] = await queen.pop()
    queen.pass_seconds(11)
    assert await acked(queen, ack_of(first, leaseId=None)) == [False]
    [second] = await queen.pop()
    assert await acked(queen, ack_of(second, leaseId=None)) == [True]


async def test_a_bad_row_of_a_batch_is_refused_alone(queen: Queen) -> None:
    await queen.create()
    await queen.push(1, 2, 3)
    found = await queen.pop(3)
    bad = [
        ack_of(found[1], transactionId="none"),
        ack_of(found[1], partitionId="nonsense"),
        ack_of(found[1], leaseId="nonsense"),
        ack_of(found[1], status="perhaps"),
        ack_of(found[1], partitionId=write_id(PartitionName("somebody", "q", "Default"))),
        ack_of(found[1], leaseId=write_id(LeasedBy(Token(bytes(16)), queen.tenant, "q", "__QUEUE_MODE__"))),
        ack_of(found[0]),  # named twice
    ]
    assert await acked(queen, ack_of(found[0]), *bad, ack_of(found[2])) == [True, *[False] * len(bad), True]
    assert await acked(queen, ack_of(found[1])) == [True]
    assert await queen.post("/api/v1/ack/batch", {"acknowledgments": []}) == (200, [])


async def test_messages_with_one_transaction_id_are_acked_one_by_one(queen: Queen) -> None:
    """Two messages may have it: the deduplication window of the first has passed."""
    queen.api.post("/api/v1/configure", {"queue": "q", "settings": {"dedup_window_seconds": 1}})
    await queen.queue().push([{"data": 1, "transactionId": "t"}])
    queen.pass_seconds(2)
    await queen.queue().push([{"data": 2, "transactionId": "t"}])
    first, second = await queen.pop(2)
    assert [first["data"], second["data"]] == [1, 2]
    assert await acked(queen, ack_of(first), ack_of(second)) == [True, True]
    assert await queen.pop() == []


async def popped_twins(queen: Queen) -> list[dict[str, Any]]:
    """Two messages with one transaction id, under one lease."""
    queen.api.post("/api/v1/configure", {"queue": "q", "settings": {"dedup_window_seconds": 1}})
    for number in (1, 2):
        await queen.queue().push([{"data": number, "transactionId": "t"}])
        queen.pass_seconds(2)
    return await queen.pop(3)


async def test_of_messages_with_one_transaction_id_each_gets_its_own_outcome_in_any_order(queen: Queen) -> None:
    first, second = await popped_twins(queen)
    assert await acked(queen, ack_of(second)) == [True]
    assert await acked(queen, ack_of(second)) == [False]
    assert await acked(queen, ack_of(first, status="retry")) == [True]
    [again] = await queen.pop(3)
    assert (again["data"], again["retryCount"]) == (1, 1)
    assert await acked(queen, ack_of(again)) == [True]


async def test_of_messages_with_one_transaction_id_the_meant_one_is_shown_and_deleted(queen: Queen) -> None:
    first, second = await popped_twins(queen)
    admin = queen.client.admin
    assert [(await admin.get_message(one["partitionId"], "t"))["data"] for one in (first, second)] == [1, 2]
    await queen.post("/api/v1/traces", {"transactionId": "t", "partitionId": first["partitionId"], "data": {}})
    [event] = (await admin.get_traces_for_message(first["partitionId"], "t"))["traces"]
    assert event["messageId"] == first["id"]
    await admin.delete_message(first["partitionId"], "t")
    with pytest.raises(httpx.HTTPStatusError, match="No message"):
        await admin.get_message(first["partitionId"], "t")
    assert (await admin.get_message(second["partitionId"], "t"))["data"] == 2


@pytest.mark.parametrize("seq", [-1, 0, 2, 2**62, 2**63, 2**64 - 1])
async def test_a_seq_that_is_made_up_finds_nothing(queen: Queen, seq: int) -> None:
    await queen.queue().push([{"data": 1, "transactionId": "t"}])
    [message] = await queen.pop()
    place = write_id(PartitionName(queen.tenant, "q", "Default", seq))
    assert await acked(queen, ack_of(message, partitionId=place)) == [False]
    assert (await queen.get(f"/api/v1/messages/{place}/t"))[0] in (400, 404)
    assert await acked(queen, ack_of(message)) == [True]


async def test_a_transaction_with_a_stale_lease_does_nothing(queen: Queen) -> None:
    await queen.create(lease_time=10)
    await queen.create("slow", lease_time=1_000)
    await queen.push(1)
    await queen.push(2, queue="slow")
    [fast] = await queen.pop()
    [slow] = await queen.pop(queue="slow")
    queen.pass_seconds(11)

    def operations(*acks: dict[str, Any]) -> list[dict[str, Any]]:
        rows = [{"type": "ack", **ack, "leaseId": None} for ack in acks]
        return [*rows, {"type": "push", "items": [{"queue": "out", "payload": 1}]}]

    required = [fast["leaseId"], slow["leaseId"]]
    for acks in ([ack_of(slow), ack_of(fast)], [ack_of(fast), ack_of(slow)], [ack_of(slow)], []):
        status, told = await queen.post(
            "/api/v1/transaction", {"operations": operations(*acks), "requiredLeases": required}
        )
        assert (status, told["success"], told["code"]) == (409, False, "STALE_LEASE")
    # With a lease of another group, and one that never was.
    for lease in (
        LeasedBy(Token(bytes(16)), queen.tenant, "slow", "__QUEUE_MODE__"),
        LeasedBy(Token(bytes(16)), queen.tenant, "x", "y"),
    ):
        body = {"operations": operations(ack_of(slow)), "requiredLeases": [slow["leaseId"], write_id(lease)]}
        assert (await queen.post("/api/v1/transaction", body))[0] == 409
    assert await queen.pop(queue="out") == []
    body = {"operations": operations(ack_of(slow)), "requiredLeases": [slow["leaseId"]]}
    assert (await queen.post("/api/v1/transaction", body))[0] == 200
    assert await queen.data(queue="out") == [1]


async def test_a_transaction_acks_under_the_leases_that_it_requires_and_no_other(queen: Queen) -> None:
    await queen.create()
    await queen.push("mine", partition="a")
    await queen.push("another's", partition="b")
    [mine] = await queen.pop()
    [others] = await queen.pop()
    stolen = {"type": "ack", **ack_of(others, leaseId=None)}
    status, told = await queen.post(
        "/api/v1/transaction", {"operations": [stolen], "requiredLeases": [mine["leaseId"]]}
    )
    assert (status, told["code"]) == (409, "STALE_LEASE")
    assert await acked(queen, ack_of(mine), ack_of(others)) == [True, True]


async def test_a_transaction_looks_no_more_often_than_acks_are_allowed(queen: Queen) -> None:
    """Each ack that names no group is looked for under the lease of each group: 200 acks and 200 leases are 40,000 looks."""
    await queen.push(1)
    [message] = await queen.pop()
    leases = [write_id(LeasedBy(Token(bytes(16)), queen.tenant, "q", f"g{number}")) for number in range(200)]
    places = [write_id(PartitionName(queen.tenant, "q", f"p{number}")) for number in range(200)]
    body = {"operations": [{"type": "ack", "transactionId": "t", "partitionId": place} for place in places]}
    status, told = await queen.post("/api/v1/transaction", {**body, "requiredLeases": leases})
    assert (status, told["code"], "consumerGroup" in told["error"]) == (400, "INVALID_REQUEST", True)
    own = {"operations": [{"type": "ack", **ack_of(message)}], "requiredLeases": [message["leaseId"]]}
    assert (await queen.post("/api/v1/transaction", own))[0] == 200


async def test_a_push_that_is_refused_stores_nothing(queen: Queen) -> None:
    await queen.create(max_size=2)
    for items in (
        [{"queue": "q", "payload": 1}] * 3,
        [{"queue": "out", "payload": 1}] + [{"queue": "q", "payload": 1}] * 3,
    ):
        status, told = await queen.post("/api/v1/push", {"items": items})
        assert (status, told["code"]) == (429, "QUEUE_FULL")
    assert await queen.pop() == []
    assert await queen.pop(queue="out") == []
    with pytest.raises(Exception, match="do not fit"):
        await queen.push(1, 2, 3)


async def test_a_busy_server_answers_so_that_clients_try_again(queen: Queen, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do so after a 503, and not after a 429."""
    gate = queen.server.engine.admission.push
    monkeypatch.setattr(gate, "load", 0.0)
    monkeypatch.setattr(gate, "operations", 0)
    answer = await queen.http.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
    assert (answer.status_code, answer.json()["code"], "retry-after" in answer.headers) == (503, "OVERLOADED", True)
    ahead, waits = refuse(operations_ahead()), refuse(SkepError(Code.STORE_BUSY, "too many calls are waiting", limit=1))
    assert [one.status for one in (ahead, waits)] == [503, 503]
    monkeypatch.undo()
    assert await queen.pop() == []


BODIES: dict[str, list[object]] = {
    "/api/v1/push": [
        None, 5, [], {}, {"items": None}, {"items": [5]}, {"items": [{}]}, {"items": [{"queue": 5, "payload": 1}]},
        {"items": [{"queue": "", "payload": 1}]}, {"items": [{"queue": "q\n", "payload": 1}]},
        {"items": [{"queue": "q", "partition": 7, "payload": 1}]}, {"items": [{"queue": "q", "payload": 1, "traceId": "x"}]},
        {"items": [{"queue": "q", "payload": 1, "transactionId": "x" * 2_000}]},
    ],
    "/api/v1/configure": [
        {}, {"queue": 5}, {"queue": ""}, {"queue": "q", "options": 5}, {"queue": "q", "options": {"leaseTime": "x"}},
        {"queue": "q", "options": {"leaseTime": 0}}, {"queue": "q", "options": {"retryLimit": -1}},
        {"queue": "q", "options": {"retryLimit": 1.5}}, {"queue": "q", "options": {"maxSize": True}},
        {"queue": "q", "options": {"retryLimit": 10**30}}, {"queue": "q", "options": {"encryptionEnabled": 1}},
        {"queue": "q", "namespace": 5}, {"queue": "\0"}, {"queue": "q", "task": "\0"},
    ],
    "/api/v1/ack": [{}, {"transactionId": "t"}, {"transactionId": None, "partitionId": "p"}, {"transactionId": 5, "partitionId": 5}],
    "/api/v1/ack/batch": [{}, {"acknowledgments": 5}, {"acknowledgments": [{}]}, {"acknowledgments": {}}],
    "/api/v1/transaction": [
        {}, {"operations": []}, {"operations": [{}]}, {"operations": [{"type": "steal"}]}, {"operations": [{"type": "ack"}]},
        {"operations": [{"type": "push", "items": []}]}, {"operations": [{"type": "push", "items": [{"queue": ""}]}]},
        {"operations": [{"type": "push", "items": [{"queue": "q"}]}], "requiredLeases": ["nonsense"]},
        {"operations": [{"type": "push", "items": [{"queue": "q"}]}], "requiredLeases": 5},
    ],
    "/api/v1/lease/nonsense/extend": [{}, None],
    "/api/v1/traces": [{}, {"transactionId": "t", "partitionId": "nonsense", "data": {}}],
    "/api/v1/system/maintenance": [{}, {"enabled": "maybe"}],
    "/api/v1/consumer-groups/g/subscription": [{}, {"subscriptionTimestamp": "yesterday"}],
    "/api/v1/consumer-groups/g/queues/q/seek": [{"timestamp": "soon"}, {"position": -5}, {"toEnd": "yes"}],
}  # fmt: skip
"""What each route is sent that it must refuse."""


@pytest.mark.parametrize("path", BODIES)
async def test_a_broken_body_is_refused_in_queens_words(queen: Queen, path: str) -> None:
    for body in BODIES[path]:
        status, told = await queen.post(path, body)
        assert status in (400, 404, 413), (body, status, told)
        assert (type(told["error"]), told["success"], told["code"] == "INTERNAL") == (str, False, False), (body, told)
    assert await queen.pop() == []


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"items": [1, 2', b'{"items":' + b"[" * 5_000])
async def test_what_is_no_json_is_refused(queen: Queen, text: bytes) -> None:
    for path in ("/api/v1/push", "/api/v1/ack", "/api/v1/transaction", "/api/v1/configure"):
        answer = await queen.http.post(path, content=text, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert answer.json()["success"] is False


@pytest.mark.parametrize(
    "query",
    [
        {"batch": "many"}, {"batch": "0"}, {"batch": "100000000"}, {"partitions": "0"}, {"partitions": "-1"}, {"wait": "perhaps"},
        {"wait": "true", "timeout": "-1"}, {"wait": "true", "timeout": "nan"}, {"subscriptionMode": "sometimes"},
        {"subscriptionFrom": "yesterday"}, {"autoAck": "2"}, {"consumerGroup": "a\nb"},
    ],
)  # fmt: skip
async def test_a_broken_pop_is_refused(queen: Queen, query: dict[str, str]) -> None:
    await queen.push(1)
    status, told = await queen.get("/api/v1/pop/queue/q", **query)
    assert (status, told["success"]) == (400, False)
    assert await queen.data() == [1]


async def test_a_time_that_no_calendar_has_in_utc_is_refused(queen: Queen) -> None:
    await queen.push(1)
    for time in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        for path, query in (
            ("/api/v1/status/analytics", {"from": time}),
            ("/api/v1/status/analytics", {"to": time}),
            ("/api/v1/dlq", {"queue": "q", "from": time}),
            ("/api/v1/pop/queue/q", {"consumerGroup": "g", "subscriptionFrom": time}),
        ):
            status, told = await queen.get(path, **query)
            assert (status, told["code"]) == (400, "INVALID_TIME")


async def test_a_body_that_is_too_large_is_refused(queen: Queen) -> None:
    status, told = await queen.post("/api/v1/push", {"items": [{"queue": "q", "payload": "x" * 9_000_000}]})
    assert (status, told["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert await queen.pop() == []
    await queen.push("x" * 5_000_000)
    [large] = await queen.pop()
    assert len(large["data"]) == 5_000_000


async def test_unknown_paths_and_methods_are_told(queen: Queen) -> None:
    for method, path, wanted in (
        ("GET", "/", 404), ("GET", "/nonsense", 404), ("POST", "/streams/v1/queries", 404), ("GET", "/api/v1/push", 405),
        ("PUT", "/api/v1/consumer-groups/g", 405), ("POST", "/api/v1/push/", 404), ("GET", "/docs", 404),
    ):  # fmt: skip
        status, told = await queen.call(method, path)
        assert (status, told["success"], type(told["error"])) == (wanted, False, str), (method, path)


async def test_what_never_becomes_a_request_is_refused_in_queens_words(queen: Queen) -> None:
    """The connection itself answers: to a name that is not the server's, and to a path that is too long."""
    for path, headers, wanted in (
        ("/health", {"host": "evil.example"}, 421),
        ("/api/v1/pop/queue/" + "x" * 60_000, {}, 414),
    ):
        status, told = await queen.call("GET", path, headers=headers)
        assert (status, told["success"], type(told["error"]), type(told["code"])) == (wanted, False, str, str)


async def test_a_browser_pops_nothing_by_a_link(queen: Queen) -> None:
    await queen.push(1)
    for headers in ({"user-agent": "Mozilla/5.0"}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}):
        status, _ = await queen.call("GET", "/api/v1/pop/queue/q", headers=headers)
        assert status == 403
    assert await queen.data() == [1]


async def test_ids_with_any_letters_come_through(queen: Queen) -> None:
    for partition in ("a/b", "ü ö", "%2F", "?&#"):
        [pushed] = (
            await queen.queue().partition(partition).push([{"data": partition, "transactionId": f"t/{partition}"}])
        )
        assert pushed["status"] == "queued"
    for message in await queen.pop(10, partitions=10):
        assert message["data"] == message["partition"]
        assert (await queen.client.ack(message))["success"] is True
    status, told = await queen.get("/api/v1/pop/queue/q/partition/a%2Fb")
    assert (status, told) == (204, None)


async def test_payloads_of_any_kind_come_back(queen: Queen) -> None:
    kinds: list[object] = [None, True, 0, -1.5, "", "grün", [], [1, [2]], {}, {"a": None, "data": 1}]
    await queen.push(*kinds)
    assert await queen.data(20) == kinds
    status, _ = await queen.post("/api/v1/push", {"items": [{"queue": "none"}]})
    assert status == 201
    assert await queen.data(queue="none") == [None]
