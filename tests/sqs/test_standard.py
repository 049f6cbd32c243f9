"""Standard queues: send, receive, delete, visibility, delays, receive counts."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sqs.driver import Sqs


def test_a_message_is_sent_received_and_deleted(sqs: Sqs) -> None:
    url = sqs.create()
    sent = sqs.send(url, "hello <&> wörld\n")
    [message] = sqs.receive(url)
    assert message["Body"] == "hello <&> wörld\n"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == hashlib.md5("hello <&> wörld\n".encode()).hexdigest()
    sqs.delete(url, message)
    sqs.pass_seconds(60)
    assert sqs.receive(url) == []


def test_a_batch_of_ten_is_received_at_once_and_deleted_whole(sqs: Sqs) -> None:
    url = sqs.create()
    entries = [{"Id": f"id-{n}", "MessageBody": f"body {n}"} for n in range(10)]
    sent = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == [one["Id"] for one in entries]
    received = sqs.receive(url)
    assert sorted(one["Body"] for one in received) == sorted(one["MessageBody"] for one in entries)
    handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(received)]
    done = sqs.client.delete_message_batch(QueueUrl=url, Entries=handles)
    assert [one["Id"] for one in done["Successful"]] == [str(n) for n in range(10)]
    sqs.pass_seconds(60)
    assert sqs.receive(url) == []
    assert sqs.attributes(url)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_batch_that_deletes_some_leaves_the_others_in_flight(sqs: Sqs) -> None:
    url = sqs.create(VisibilityTimeout=10)
    for n in range(4):
        sqs.send(url, str(n))
    first, second, *others = sqs.receive(url)
    handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate((first, second))]
    sqs.client.delete_message_batch(QueueUrl=url, Entries=handles)
    assert sqs.receive(url) == []
    sqs.pass_seconds(11)
    assert sorted(sqs.bodies(url)) == sorted(one["Body"] for one in others)


def test_what_is_not_deleted_comes_again_and_is_counted(sqs: Sqs) -> None:
    url = sqs.create(VisibilityTimeout=10)
    sent_at = sqs.clock.now() // 1000
    sqs.send(url)
    sqs.pass_seconds(1)
    first_at = sqs.clock.now() // 1000
    for count in range(1, 5):
        [message] = sqs.receive(url)
        told = message["Attributes"]
        assert told["ApproximateReceiveCount"] == str(count)
        assert told["ApproximateFirstReceiveTimestamp"] == str(first_at)
        assert told["SentTimestamp"] == str(sent_at)
        assert told["SenderId"] == sqs.tenant
        assert sqs.receive(url) == []
        sqs.pass_seconds(11)


def test_a_change_of_visibility_is_for_one_message_alone(sqs: Sqs) -> None:
    url = sqs.create(VisibilityTimeout=10)
    for n in range(3):
        sqs.send(url, str(n))
    longer, shorter, usual = sqs.receive(url)
    sqs.hide(url, longer, 100)
    sqs.hide(url, shorter, 2)
    sqs.pass_seconds(3)
    assert sqs.bodies(url, VisibilityTimeout=200) == [shorter["Body"]]
    sqs.pass_seconds(8)
    assert sqs.bodies(url, VisibilityTimeout=200) == [usual["Body"]]
    sqs.pass_seconds(60)
    sqs.delete(url, longer)
    sqs.pass_seconds(60)
    assert sqs.receive(url) == []


def test_a_visibility_of_zero_returns_the_message(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    [message] = sqs.receive(url)
    sqs.hide(url, message, 0)
    [again] = sqs.receive(url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert again["ReceiptHandle"] != message["ReceiptHandle"]


def test_a_stale_handle_deletes_nothing_and_hides_nothing(sqs: Sqs) -> None:
    url = sqs.create(VisibilityTimeout=10)
    sqs.send(url)
    [stale] = sqs.receive(url)
    sqs.pass_seconds(11)
    [message] = sqs.receive(url)
    sqs.delete(url, stale)  # as SQS says of a standard queue, it succeeds
    for seconds in (0, 100):
        code = sqs.fails(
            "change_message_visibility", QueueUrl=url, ReceiptHandle=stale["ReceiptHandle"], VisibilityTimeout=seconds
        )
        assert code == "AWS.SimpleQueueService.MessageNotInflight"
    sqs.pass_seconds(11)
    assert [one["MessageId"] for one in sqs.receive(url)] == [message["MessageId"]]


def test_a_message_may_be_deleted_twice(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    [message] = sqs.receive(url)
    sqs.delete(url, message, message)


@pytest.mark.parametrize("handle", ["", "x", "AAAA", "l8QQ" + "A" * 9_000, "ä"])
def test_what_is_no_handle_is_refused(sqs: Sqs, handle: str) -> None:
    url = sqs.create()
    assert sqs.fails("delete_message", QueueUrl=url, ReceiptHandle=handle) == "ReceiptHandleIsInvalid"


def test_a_handle_of_another_queue_is_refused(sqs: Sqs) -> None:
    url, other = sqs.create(), sqs.create("other")
    sqs.send(url)
    [message] = sqs.receive(url)
    assert (
        sqs.fails("delete_message", QueueUrl=other, ReceiptHandle=message["ReceiptHandle"]) == "ReceiptHandleIsInvalid"
    )


def test_delays_of_queue_and_message(sqs: Sqs) -> None:
    url = sqs.create(DelaySeconds=10)
    sqs.send(url, "as the queue says")
    sqs.send(url, "at once", DelaySeconds=0)
    sqs.send(url, "later", DelaySeconds=20)
    assert sqs.attributes(url)["ApproximateNumberOfMessagesDelayed"] == "2"
    sent_at = sqs.clock.now() // 1000
    assert sqs.bodies(url) == ["at once"]
    sqs.pass_seconds(11)
    [message] = sqs.receive(url)
    assert (message["Body"], message["Attributes"]["SentTimestamp"]) == ("as the queue says", str(sent_at))
    sqs.pass_seconds(10)
    assert sqs.bodies(url) == ["later"]


def test_a_long_poll_is_answered_when_a_message_comes(sqs: Sqs) -> None:
    async def parked() -> int:
        return sqs.server.engine.parked_polls

    url = sqs.create()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(sqs.receive, url, WaitTimeSeconds=20)
        while not sqs.server.run(parked()):
            pass
        sqs.send(url, "at last")
        assert [one["Body"] for one in waiting.result()] == ["at last"]


def test_a_json_body_stays_as_it_was_written(sqs: Sqs) -> None:
    url = sqs.create()
    for body in ('{"a":  1, "b": [1, 2.50]}', '{"a":1,"a":2}', "[" * 200 + "]" * 200, "{", "null", '"x"', "12"):
        sqs.send(url, body)
        assert sqs.bodies(url) == [body]


def test_attributes_of_messages_come_back_as_they_were_sent(sqs: Sqs) -> None:
    url = sqs.create()
    given = {
        "text": {"DataType": "String", "StringValue": "ä<&>"},
        "number.of.it": {"DataType": "Number.int", "StringValue": "-1.5e3"},
        "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }
    sent = sqs.send(url, MessageAttributes=given)
    [message] = sqs.receive(url)
    assert message["MessageAttributes"] == given
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    sqs.hide(url, message, 0)
    [message] = sqs.receive(url, MessageAttributeNames=["number.*"])
    assert list(message["MessageAttributes"]) == ["number.of.it"]
    assert message["MD5OfMessageAttributes"] != sent["MD5OfMessageAttributes"]
    sqs.hide(url, message, 0)
    [message] = sqs.receive(url, MessageAttributeNames=[], MessageSystemAttributeNames=[])
    assert "MessageAttributes" not in message
    assert "Attributes" not in message


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "baggage", "Content-Type"])
def test_an_attribute_with_the_name_of_a_header_is_an_attribute(sqs: Sqs, name: str) -> None:
    url = sqs.create()
    given = {name: {"DataType": "String", "StringValue": "no valid one"}}
    sent = sqs.send(url, MessageAttributes=given)
    [message] = sqs.receive(url)
    assert message["MessageAttributes"] == given
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@pytest.mark.parametrize("text", ["", "Root=1\x00", "\ufffe"])
def test_a_trace_header_that_xml_cannot_hold_is_refused(sqs: Sqs, text: str) -> None:
    url = sqs.create()
    header = {"AWSTraceHeader": {"DataType": "String", "StringValue": text}}
    code = sqs.fails("send_message", QueueUrl=url, MessageBody="1", MessageSystemAttributes=header)
    assert code == "InvalidParameterValue"


def test_a_message_group_is_told_of_a_standard_queue_too(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url, "1", MessageGroupId="customer-1")
    sqs.send(url, "2")
    told = {one["Body"]: one["Attributes"].get("MessageGroupId") for one in sqs.receive(url)}
    assert told == {"1": "customer-1", "2": None}


def test_the_digest_of_attributes_is_that_of_the_sdk(sqs: Sqs) -> None:
    """The digest of one known message, as SQS documents its computation."""
    url = sqs.create()
    sent = sqs.send(url, MessageAttributes={"city": {"DataType": "String", "StringValue": "Any City"}})
    parts = b"".join(
        len(part).to_bytes(4, "big") + part if part != b"\x01" else part
        for part in (b"city", b"String", b"\x01", b"Any City")
    )
    assert sent["MD5OfMessageAttributes"] == hashlib.md5(parts).hexdigest()


def test_a_redriven_message_goes_to_the_dead_letter_queue(sqs: Sqs) -> None:
    dead = sqs.create("dead")
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 2})
    url = sqs.create(VisibilityTimeout=10, RedrivePolicy=policy)
    sent = sqs.send(url, "poison", MessageAttributes={"a": {"DataType": "String", "StringValue": "1"}})
    for _ in range(2):
        assert [one["Body"] for one in sqs.receive(url)] == ["poison"]
        sqs.pass_seconds(11)
    assert sqs.receive(url) == []
    [letter] = sqs.receive(dead)
    assert (letter["Body"], letter["MessageId"]) == ("poison", sent["MessageId"])
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(url)
    assert letter["MessageAttributes"]["a"]["StringValue"] == "1"
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"  # in all queues
    sqs.delete(dead, letter)
    sources = sqs.client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"]
    assert sources == [url]
    assert sqs.fails("delete_queue", QueueUrl=dead) == "AWS.SimpleQueueService.UnsupportedOperation"
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    sqs.client.delete_queue(QueueUrl=dead)
