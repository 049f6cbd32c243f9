"""One queue, two doors: what was sent by SQS is popped natively and read by Spark's reader of the log, and the other way round."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from tests.sqs.driver import Sqs

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
XRAY = f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=1"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def popped(sqs: Sqs, queue: str = "q") -> list[dict[str, Any]]:
    return sqs.api.pop(queue)


def test_what_was_sent_is_popped(sqs: Sqs) -> None:
    url = sqs.create()
    attributes = {
        "kind": {"DataType": "String", "StringValue": "order"}, "n": {"DataType": "Number", "StringValue": "7"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00"},
    }  # fmt: skip
    sent = [
        sqs.send(url, '{"total": 10}', MessageAttributes=attributes), sqs.send(url, "no JSON", MessageGroupId="customer-1"),
    ]  # fmt: skip
    first, second = sorted(popped(sqs), key=lambda one: one["seq"])
    assert (first["payload"], first["id"], first["contentType"]) == ({"total": 10}, sent[0]["MessageId"], None)
    assert (first["headers"]["kind"], first["headers"]["n"], first["headers"]["raw"]) == ("order", "7", "AA==")
    assert second["contentType"] == "text/plain; charset=utf-8"
    assert (base64.b64decode(second["payload"]), second["partition"]) == (b"no JSON", "customer-1")
    for message in (first, second):
        assert sqs.api.ack(message).status == 200
    assert sqs.attributes(url)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_what_was_pushed_is_received(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.api.push("q", {"total": 10}, headers={"kind": "order", "empty": ""})
    sqs.api.push("q", base64.b64encode(b"\xff\x00").decode(), contentType="application/octet-stream")
    sqs.api.push("q", base64.b64encode("grün".encode()).decode(), contentType="text/plain")
    by_body = {one["Body"]: one for one in sqs.receive(url)}
    assert set(by_body) == {'{"total": 10}', base64.b64encode(b"\xff\x00").decode(), "grün"}
    assert by_body['{"total": 10}']["MessageAttributes"] == {"kind": {"DataType": "String", "StringValue": "order"}}
    [kind] = by_body[base64.b64encode(b"\xff\x00").decode()]["MessageAttributes"].items()
    assert kind == ("Content-Type", {"DataType": "String", "StringValue": "application/octet-stream"})
    sqs.delete(url, *by_body.values())
    assert popped(sqs) == []


def test_headers_that_no_attribute_can_be_are_told_as_such_that_can(sqs: Sqs) -> None:
    """Whoever pushes natively may have any text in a header, and say any type of it."""
    url = sqs.create()
    types = {"weird": "Weird", "untrue": "Binary", "nothing": "Binary", "gone": "String"}
    headers = {"weird": "1", "untrue": "no Base64!", "nothing": "", "sqs-attributes": json.dumps(types)}
    sqs.api.push("q", 1, headers=headers)
    sqs.api.push("q", 2, headers={"control": "a\x01b"})
    told = {one["Body"]: one["MessageAttributes"] for one in sqs.receive(url)}
    assert told == {
        "1": {name: {"DataType": "String", "StringValue": headers[name]} for name in ("weird", "untrue")},
        "2": {"control": {"DataType": "Binary", "BinaryValue": b"a\x01b"}},
    }


def test_the_groups_of_a_fifo_queue_are_partitions(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    for group in "ab":
        sqs.send(url, "[1]", MessageGroupId=group, MessageDeduplicationId=group)
    sqs.api.push("q.fifo", [2], partition="a", transactionId="native")
    told = sqs.send(url, "[3]", MessageGroupId="b", MessageDeduplicationId="native")
    messages = popped(sqs, "q.fifo")
    assert sorted((one["partition"], one["payload"]) for one in messages) == [("a", [1]), ("a", [2]), ("b", [1])]
    assert told["MessageId"] in {one["id"] for one in messages}  # the id counts in the whole queue, by either door
    assert {one["transactionId"] for one in messages} == {"a", "b", "native"}


def test_a_reader_of_the_log_has_what_was_deleted_too(sqs: Sqs) -> None:
    """Spark reads the log, as Arrow: what a reader by SQS has deleted is still there."""
    url = sqs.create()
    sqs.send(url, '{"n": 1}', MessageAttributes={"kind": {"DataType": "String", "StringValue": "x"}})
    sqs.send(url, "text")
    sqs.delete(url, *sqs.receive(url))
    reply = sqs.api.request(
        "GET", "/api/v1/log/q?from=1&limit=10", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    rows = pa.ipc.open_stream(reply.body).read_all().to_pylist()
    assert [bytes(row["payload"]) for row in rows] == [b'{"n": 1}', b"text"]
    assert [row["content_type"] for row in rows] == [None, "text/plain; charset=utf-8"]


@pytest.mark.parametrize("known", [True, False])
def test_a_trace_of_x_ray_goes_on_natively(sqs: Sqs, known: bool) -> None:
    url = sqs.create()
    own = {"traceparent": {"DataType": "String", "StringValue": TRACEPARENT.replace(PARENT, "1" * 16)}}
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": XRAY}}
    sent = sqs.send(url, MessageSystemAttributes=system, MessageAttributes=own if known else {})
    assert sent["MD5OfMessageSystemAttributes"]
    [received] = sqs.receive(url, VisibilityTimeout=0)
    assert received["Attributes"]["AWSTraceHeader"] == XRAY
    assert received.get("MessageAttributes", {}) == (own if known else {})
    sqs.pass_seconds(1)
    [message] = popped(sqs)
    assert message["headers"]["traceparent"] == (own["traceparent"]["StringValue"] if known else TRACEPARENT)
    assert message["traceId"].replace("-", "") == TRACE


def test_a_native_trace_goes_on_by_sqs(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.api.push("q", {}, headers={"traceparent": TRACEPARENT})
    [message] = sqs.receive(url)
    assert message["Attributes"]["AWSTraceHeader"] == XRAY
    assert message["MessageAttributes"]["traceparent"]["StringValue"] == TRACEPARENT


def test_messages_that_died_natively_are_redriven_by_sqs(sqs: Sqs) -> None:
    url = sqs.create()
    dead = sqs.create("dead")
    sqs.api.post("/api/v1/configure", {"queue": "q", "settings": {"max_attempts": 1, "dead_letter_queue": "dead"}})
    sqs.api.push("q", {"n": 1})
    sqs.api.ack(popped(sqs)[0], status="dlq", error="bad")
    [letter] = sqs.receive(dead)
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn(url)
    assert letter["Body"] == '{"n": 1}'
