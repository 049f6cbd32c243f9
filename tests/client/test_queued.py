"""Pushes that the server accepts for later (202)."""

from __future__ import annotations

import pytest

import skep
from skep.clock import ManualClock
from skep.errors import Code
from skep.model import SettleStatus
from skep.wire.messages import Ack
from tests.client.scripted import Received, ScriptedServer, reply

QUEUED = reply(202, {"status": "queued", "operationId": "op/1", "queuePosition": 3, "estimatedWait": 1.5})
PENDING = reply(200, {"status": "pending"})
PROCESSING = reply(200, {"status": "processing"})
MESSAGE = {"transaction_id": "t", "status": "stored", "message_id": "m", "trace_id": None, "seq": 7}
RESULT = {"pushed": True, "qos0": False, "dbHealthy": True, "messages": [MESSAGE], "queues": {}}
COMPLETED = reply(200, {"status": "completed", "result": RESULT})
FAILED = reply(200, {"status": "failed", "errorMessage": "the queue is gone", "code": "QUEUE_NOT_FOUND"})


def test_a_queued_push_is_returned_as_queued() -> None:
    with ScriptedServer(QUEUED) as server, skep.Client(server.url) as client:
        pushed = client.push("orders", [1])

    assert pushed.queued == skep.Queued("op/1", 3, 1.5)
    assert (pushed.stored, pushed.failed, len(server.requests)) == ([], [], 1)


def test_a_queued_push_is_waited_for_and_its_stored_result_returned() -> None:
    with (
        ScriptedServer(QUEUED, PENDING, PROCESSING, COMPLETED) as server,
        skep.Client(server.url, queued_operation="poll", poll_seconds=0.001) as client,
    ):
        pushed = client.push("orders", [1])

    assert [message.seq for message in pushed.stored] == [7]
    assert pushed.queued is None
    assert [request.target for request in server.requests[1:]] == ["/api/v1/operations/op%2F1"] * 3


def test_a_queued_push_that_fails_is_raised() -> None:
    with ScriptedServer(QUEUED, FAILED) as server:
        client = skep.Client(server.url, queued_operation="poll")
        with client, pytest.raises(skep.SkepError, match="the queue is gone") as raised:
            client.push("orders", [1])

    assert raised.value.code is Code.QUEUE_NOT_FOUND


def test_a_queued_push_that_takes_too_long_is_still_queued_and_not_lost() -> None:
    clock = ManualClock()

    def later(request: Received) -> bytes:
        clock.advance(20)
        return PENDING

    with (
        ScriptedServer(QUEUED, later) as server,
        skep.Client(server.url, queued_operation="poll", poll_seconds=0.001, clock=clock) as client,
    ):
        pushed = client.push("orders", [1])

    assert pushed.queued is not None
    assert len(server.requests) == 3


TWO = reply(
    202,
    {
        "status": "queued",
        "operationId": "a",
        "operations": [{"operationId": "a", "items": [0, 2]}, {"operationId": "b", "items": [1]}],
        "messages": [{**MESSAGE, "status": "queued", "seq": None}] * 3,
    },
)


def part(*seqs: int) -> bytes:
    messages = [{**MESSAGE, "seq": seq} for seq in seqs]
    return reply(200, {"status": "completed", "result": {**RESULT, "messages": messages}})


def test_a_push_of_several_partitions_has_a_result_for_every_message() -> None:
    with (
        ScriptedServer(TWO, part(1, 3), part(2)) as server,
        skep.Client(server.url, queued_operation="poll", poll_seconds=0.001) as client,
    ):
        pushed = client.push("orders", [1, 2, 3])

    assert [message.seq for message in pushed.stored] == [1, 2, 3]


def test_what_is_queued_and_not_waited_for_is_waiting() -> None:
    with ScriptedServer(TWO) as server, skep.Client(server.url) as client:
        pushed = client.push("orders", [1, 2, 3])

    assert (len(pushed.waiting), pushed.stored) == (3, [])
    assert pushed.queued is not None
    assert [part.operation_id for part in pushed.queued.operations] == ["a", "b"]


ACKED = {"seq": 7, "status": "completed"}
QUEUED_ACK = reply(202, {"status": "queued", "operationId": "op", "results": [{"seq": 7, "status": "queued"}]})


def test_queued_acks_are_waited_for_when_that_is_wanted() -> None:
    done = reply(200, {"status": "completed", "result": {"results": [ACKED]}})
    with (
        ScriptedServer(QUEUED_ACK, QUEUED_ACK, PENDING, done) as server,
        skep.Client(server.url) as client,
        skep.Client(server.url, queued_operation="poll", poll_seconds=0.001) as waiting,
    ):
        assert [result.status for result in client.settle([Ack("lease", 7)])] == [SettleStatus.QUEUED]
        assert [result.status for result in waiting.settle([Ack("lease", 7)])] == [SettleStatus.COMPLETED]


async def test_the_asynchronous_client_waits_alike() -> None:
    with ScriptedServer(QUEUED, PENDING, COMPLETED) as server:
        async with skep.AsyncClient(server.url, queued_operation="poll", poll_seconds=0.001) as client:
            pushed = await client.push("orders", [1])

    assert [message.seq for message in pushed.stored] == [7]
