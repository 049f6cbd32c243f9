"""Batches and limits: each entry on its own merits, and what is wrong with a whole batch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sqs.driver import Sqs

PREFIX = "AWS.SimpleQueueService."


def entries(*ids: str, body: str = "body") -> list[dict[str, Any]]:
    return [{"Id": id_, "MessageBody": body} for id_ in ids]


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([str(n) for n in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        (["a b"], "InvalidBatchEntryId"),
        (["a" * 81], "InvalidBatchEntryId"),
    ],
)
def test_what_is_wrong_with_a_whole_batch(sqs: Sqs, ids: list[str], code: str) -> None:
    url = sqs.create()
    assert sqs.fails("send_message_batch", QueueUrl=url, Entries=entries(*ids)) == PREFIX + code
    handles = [{"Id": id_, "ReceiptHandle": "x"} for id_ in ids]
    assert sqs.fails("delete_message_batch", QueueUrl=url, Entries=handles) == PREFIX + code
    hidden = [{**one, "VisibilityTimeout": 1} for one in handles]
    assert sqs.fails("change_message_visibility_batch", QueueUrl=url, Entries=hidden) == PREFIX + code
    assert sqs.receive(url) == []


def test_good_entries_are_sent_beside_bad_ones(sqs: Sqs) -> None:
    url = sqs.create()
    asked = [*entries("good"), *entries("bad", body="\x00"), *entries("empty", body=""), *entries("fine")]
    done = sqs.client.send_message_batch(QueueUrl=url, Entries=asked)
    assert [one["Id"] for one in done["Successful"]] == ["good", "fine"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in done["Failed"]] == [
        ("bad", "InvalidMessageContents", True), ("empty", "MissingParameter", True),
    ]  # fmt: skip
    assert len(sqs.receive(url)) == 2


def test_a_list_of_results_without_entries_is_not_told(sqs: Sqs) -> None:
    """As by SQS: the SDK for Java takes an empty list of failures for a failure (`hasFailed`)."""
    url = sqs.create()
    sent = sqs.client.send_message_batch(QueueUrl=url, Entries=entries("1"))
    [message] = sqs.receive(url)
    deleted = sqs.client.delete_message_batch(
        QueueUrl=url, Entries=[{"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}]
    )
    assert [("Successful" in one, "Failed" in one) for one in (sent, deleted)] == [(True, False)] * 2
    lost = sqs.client.send_message_batch(QueueUrl=url, Entries=entries("1", body=""))
    assert ("Successful" in lost, "Failed" in lost) == (False, True)


def test_entries_that_the_queue_refuses_fail_alone(sqs: Sqs) -> None:
    """Headers have a bound of ours: a message with larger attributes is refused, and the others are stored."""
    url = sqs.create()
    large = {"MessageAttributes": {"a": {"DataType": "String", "StringValue": "x" * 20_000}}}
    done = sqs.client.send_message_batch(
        QueueUrl=url, Entries=[*entries("1"), {**entries("2")[0], **large}, *entries("3")]
    )
    assert [one["Id"] for one in done["Successful"]] == ["1", "3"]
    assert [(one["Id"], one["Code"]) for one in done["Failed"]] == [("2", "InvalidParameterValue")]
    assert len(sqs.receive(url)) == 2


def test_handles_are_judged_one_by_one(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    sqs.send(url, "1", MessageGroupId="a", MessageDeduplicationId="1")
    [message] = sqs.receive(url)
    asked = [{"Id": "bad", "ReceiptHandle": "x"}, {"Id": "good", "ReceiptHandle": message["ReceiptHandle"]}]
    done = sqs.client.delete_message_batch(QueueUrl=url, Entries=asked)
    assert [one["Id"] for one in done["Successful"]] == ["good"]
    assert [(one["Id"], one["Code"]) for one in done["Failed"]] == [("bad", "ReceiptHandleIsInvalid")]


def test_sizes(sqs: Sqs) -> None:
    url = sqs.create(MaximumMessageSize=1024)
    sqs.send(url, "x" * 1024)
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="x" * 1025) == "InvalidParameterValue"
    one = {"a": {"DataType": "String", "StringValue": "x" * 10}}
    assert (
        sqs.fails("send_message", QueueUrl=url, MessageBody="x" * 1010, MessageAttributes=one)
        == "InvalidParameterValue"
    )
    large = sqs.create("large")
    sqs.send(large, "x" * 1_048_576)
    assert [len(message["Body"]) for message in sqs.receive(large)] == [1_048_576]
    asked = entries("1", "2", body="x" * 600_000)
    assert sqs.fails("send_message_batch", QueueUrl=large, Entries=asked) == PREFIX + "BatchRequestTooLong"
    small = entries("small")[0]
    for body in ("x" * 1_048_577, "ä" * 600_000):
        asked = [small, *entries("large", body=body)]
        assert sqs.fails("send_message_batch", QueueUrl=large, Entries=asked) == PREFIX + "BatchRequestTooLong"
    assert sqs.receive(large) == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"AWS.x": {"DataType": "String", "StringValue": "1"}},
        {"a..b": {"DataType": "String", "StringValue": "1"}},
        {".a": {"DataType": "String", "StringValue": "1"}},
        {"a": {"DataType": "Text", "StringValue": "1"}},
        {"a": {"DataType": "Number", "StringValue": "one"}},
        {"a": {"DataType": "String", "StringValue": ""}},
        {"a": {"DataType": "Binary", "BinaryValue": b""}},
        {"a": {"DataType": "String", "StringValue": "1", "BinaryValue": b"1"}},
        {"a": {"DataType": "Binary", "StringValue": "1", "BinaryValue": b"1"}},
        {"a": {"DataType": "String", "StringValue": "\x01"}},
        {"sqs-attributes": {"DataType": "String", "StringValue": "{}"}},
        {f"a{n}": {"DataType": "String", "StringValue": "1"} for n in range(11)},
    ],
)
def test_attributes_that_sqs_does_not_take(sqs: Sqs, attributes: dict[str, Any]) -> None:
    url = sqs.create()
    code = sqs.fails("send_message", QueueUrl=url, MessageBody="1", MessageAttributes=attributes)
    assert code == "InvalidParameterValue"
    assert sqs.receive(url) == []


@pytest.mark.parametrize(
    "fields",
    [{"MaxNumberOfMessages": 0}, {"MaxNumberOfMessages": 11}, {"WaitTimeSeconds": 21}, {"VisibilityTimeout": 43_201},
     {"AttributeNames": ["Nope"]}],
)  # fmt: skip
def test_receives_have_bounds(sqs: Sqs, fields: dict[str, Any]) -> None:
    assert sqs.fails("receive_message", QueueUrl=sqs.create(), **fields) == "InvalidParameterValue"


def test_other_bounds(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    [message] = sqs.receive(url)
    handle = message["ReceiptHandle"]
    code = sqs.fails("change_message_visibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43_201)
    assert code == "InvalidParameterValue"
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="1", DelaySeconds=901) == "InvalidParameterValue"
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="1", MessageGroupId="ä") == "InvalidParameterValue"
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="") == "MissingParameter"
    assert sqs.fails("send_message", QueueUrl="x", MessageBody="1") == "InvalidParameterValue"
