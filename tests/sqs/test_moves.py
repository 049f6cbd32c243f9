"""Message move tasks: dead letters go back, or elsewhere, at a rate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sqs.driver import Sqs


def dead_letters(sqs: Sqs, count: int, source: str = "q", dead: str = "dead") -> tuple[str, str]:
    """Two queues, and messages that have died: the URLs of the dead-letter queue and of its source."""
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if source.endswith(".fifo") else {}
    dead_url = sqs.create(dead, **fifo)
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead_url), "maxReceiveCount": 1})
    url = sqs.create(source, VisibilityTimeout=1, RedrivePolicy=policy, **fifo)
    for n in range(count):
        extra: dict[str, Any] = {"MessageGroupId": "g"} if fifo else {}
        sqs.send(url, f"m{n}", MessageAttributes={"n": {"DataType": "Number", "StringValue": str(n)}}, **extra)
    while sqs.receive(url):
        sqs.pass_seconds(2)
    assert int(sqs.attributes(dead_url)["ApproximateNumberOfMessages"]) == count
    return dead_url, url


def task(sqs: Sqs, source_arn: str) -> dict[str, Any]:
    [found] = sqs.client.list_message_move_tasks(SourceArn=source_arn)["Results"]
    return dict(found)


def until(sqs: Sqs, source_arn: str, *states: str) -> dict[str, Any]:
    """Let time pass until the task is in one of these states."""
    found: dict[str, Any] = {}
    for _ in range(200):
        found = task(sqs, source_arn)
        if found["Status"] in states:
            return found
        sqs.pass_seconds(0.2)
    raise AssertionError(found)


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_dead_letters_go_back_to_where_they_died(sqs: Sqs, suffix: str) -> None:
    dead, url = dead_letters(sqs, 3, "q" + suffix, "dead" + suffix)
    arn = sqs.arn(dead)
    handle = sqs.client.start_message_move_task(SourceArn=arn)["TaskHandle"]
    told = until(sqs, arn, "COMPLETED")
    assert (told["ApproximateNumberOfMessagesMoved"], told["ApproximateNumberOfMessagesToMove"]) == (3, 3)
    assert "TaskHandle" not in told
    assert sqs.receive(dead) == []
    back = []
    while found := sqs.receive(url):
        back += found
        sqs.delete(url, *found)
    assert sorted(one["Body"] for one in back) == ["m0", "m1", "m2"]
    assert {one["Body"][1:]: one["MessageAttributes"]["n"]["StringValue"] for one in back} == {
        str(n): str(n) for n in range(3)
    }
    assert sqs.fails("cancel_message_move_task", TaskHandle=handle) == "ResourceNotFoundException"


def test_more_bytes_than_one_push_carries_are_moved(sqs: Sqs) -> None:
    dead = sqs.create("dead")
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1})
    url = sqs.create("q", VisibilityTimeout=1, RedrivePolicy=policy)
    bodies = [f"{n}" * 1_000_000 for n in range(9)]  # a push carries 8 MiB
    for body in bodies:
        sqs.send(url, body)
    while sqs.receive(url):
        sqs.pass_seconds(2)
    sqs.client.start_message_move_task(SourceArn=sqs.arn(dead))
    assert until(sqs, sqs.arn(dead), "COMPLETED", "FAILED")["ApproximateNumberOfMessagesMoved"] == 9
    assert sorted(sqs.bodies(url)) == bodies
    assert sqs.attributes(dead)["ApproximateNumberOfMessages"] == "0"


def test_dead_letters_go_to_another_queue_and_not_those_that_were_deleted(sqs: Sqs) -> None:
    dead, url = dead_letters(sqs, 3)
    other = sqs.create("other")
    [gone] = sqs.receive(dead, 1)
    sqs.delete(dead, gone)
    sqs.client.start_message_move_task(SourceArn=sqs.arn(dead), DestinationArn=sqs.arn(other))
    found = until(sqs, sqs.arn(dead), "COMPLETED")
    assert found["DestinationArn"] == sqs.arn(other)
    assert sorted([*sqs.bodies(other), gone["Body"]]) == ["m0", "m1", "m2"]
    assert sqs.receive(url) == []


def test_a_task_keeps_to_its_rate_and_can_be_cancelled(sqs: Sqs) -> None:
    dead, _ = dead_letters(sqs, 6)
    arn = sqs.arn(dead)
    handle = sqs.client.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=2)["TaskHandle"]
    code = sqs.fails("start_message_move_task", SourceArn=arn)
    assert code == "InvalidParameterValue"
    while task(sqs, arn)["ApproximateNumberOfMessagesMoved"] < 2:
        pass
    found = task(sqs, arn)
    assert (found["Status"], found["ApproximateNumberOfMessagesMoved"], found["TaskHandle"]) == ("RUNNING", 2, handle)
    assert found["MaxNumberOfMessagesPerSecond"] == 2
    sqs.pass_seconds(1)
    while task(sqs, arn)["ApproximateNumberOfMessagesMoved"] < 4:
        pass
    assert sqs.client.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"] == 4
    assert task(sqs, arn)["Status"] == "CANCELLING"
    moved = until(sqs, arn, "CANCELLED")["ApproximateNumberOfMessagesMoved"]
    assert moved < 6 or sqs.attributes(dead)["ApproximateNumberOfMessages"] == "0"
    assert int(sqs.attributes(dead)["ApproximateNumberOfMessages"]) == 6 - moved


def test_a_message_without_an_origin_ends_the_task_and_stays(sqs: Sqs) -> None:
    dead, _ = dead_letters(sqs, 0)
    sqs.send(dead, "sent here")
    sqs.client.start_message_move_task(SourceArn=sqs.arn(dead))
    assert until(sqs, sqs.arn(dead), "FAILED")["FailureReason"] == "CouldNotDetermineMessageSource"
    assert sqs.bodies(dead) == ["sent here"]


def test_a_source_that_was_deleted_ends_the_task_and_is_not_made_anew(sqs: Sqs) -> None:
    dead, url = dead_letters(sqs, 1)
    sqs.client.delete_queue(QueueUrl=url)
    sqs.client.start_message_move_task(SourceArn=sqs.arn(dead))
    assert "does not exist" in until(sqs, sqs.arn(dead), "FAILED")["FailureReason"]
    assert sqs.bodies(dead) == ["m0"]
    assert sqs.api.get("/api/v1/resources/queues/q").status == 404


def test_a_task_of_a_server_that_ended_is_told_as_failed_and_another_may_begin(sqs: Sqs) -> None:
    dead, _ = dead_letters(sqs, 2)
    arn = sqs.arn(dead)
    key = next(one for one in sqs.server.run(sqs.server.engine.list_queues(sqs.tenant)) if one.key.name == "dead").key
    engine = sqs.server.engine
    note = sqs.server.run(engine.sqs_note(key))
    assert note is not None
    now = engine.now() // 1000
    lost = {"id": "lost", "started_ms": now, "updated_ms": now, "status": "RUNNING"}
    assert sqs.server.run(engine.keep_sqs_note(key, json.dumps({**json.loads(note), "moves": [lost]}).encode(), note))
    assert task(sqs, arn)["Status"] == "RUNNING"
    sqs.pass_seconds(61)
    assert task(sqs, arn)["Status"] == "FAILED"
    sqs.client.start_message_move_task(SourceArn=arn)
    until(sqs, arn, "COMPLETED")
    told = sqs.client.list_message_move_tasks(SourceArn=arn, MaxResults=10)["Results"]
    assert [one["Status"] for one in told] == ["COMPLETED", "FAILED"]


def test_what_cannot_be_moved_is_refused(sqs: Sqs) -> None:
    url, fifo = sqs.create(), sqs.create_fifo()
    dead, _ = dead_letters(sqs, 0, "source")
    none = sqs.arn(url) + "-none"
    for fields, code in (
        ({"SourceArn": sqs.arn(url)}, "InvalidParameterValue"),
        ({"SourceArn": none}, "ResourceNotFoundException"),
        ({"SourceArn": "x"}, "InvalidParameterValue"),
        ({"SourceArn": sqs.arn(dead), "DestinationArn": none}, "ResourceNotFoundException"),
        ({"SourceArn": sqs.arn(dead), "DestinationArn": sqs.arn(fifo)}, "InvalidParameterValue"),
        ({"SourceArn": sqs.arn(dead), "DestinationArn": sqs.arn(dead)}, "InvalidParameterValue"),
        ({"SourceArn": sqs.arn(dead), "MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
    ):
        assert sqs.fails("start_message_move_task", **fields) == code, fields
    assert sqs.fails("list_message_move_tasks", SourceArn=sqs.arn(dead), MaxResults=11) == "InvalidParameterValue"
    assert sqs.fails("cancel_message_move_task", TaskHandle="x") == "InvalidParameterValue"
