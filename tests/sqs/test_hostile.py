"""Hostile requests: each gets an error of SQS, nothing is lost, and the server goes on."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from skep.http.sqs.actions import ACTIONS
from tests.sqs.driver import Sqs

JSON = {"Content-Type": "application/x-amz-json-1.0"}


def ask(sqs: Sqs, action: str, body: bytes) -> tuple[int, str]:
    """The status and the error of a request with this body."""
    reply = sqs.api.request("POST", "/", body, {**JSON, "X-Amz-Target": f"AmazonSQS.{action}"})
    told = reply.json if reply.body else {}
    return reply.status, str(told.get("__type", "")).rpartition("#")[2]


BODIES = [
    b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"{}" + b" " * 1_000_000 + b"x", b"[" * 100_000, b'{"QueueUrl":' + b"[" * 100_000,
    b'{"QueueUrl": 7}', b'{"QueueUrl": "http://[/a/b"}', b'{"QueueUrl": "//"}', b'{"QueueUrl": "/sqs/a/%ff"}', b'{"QueueUrl": "/sqs/./.."}',
    b'{"QueueUrl": "/sqs/\\u0000/\\u0000"}', b'{"QueueUrl": "' + b"/a" * 5_000 + b'"}', b'{"QueueName": "\\ud800"}',
    b'{"QueueUrl": "/sqs/x/q", "MaxNumberOfMessages": 99999999999999999999999999}', b'{"Entries": [null]}', b'{"TaskHandle": "e30="}',
    b'{"SourceArn": "arn:aws:sqs::::"}', b'{"SourceArn": "arn:aws:sqs:r:a:\\u0000"}', b'{"NextToken": "AA=="}',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_every_action_refuses_what_it_cannot_read(sqs: Sqs, body: bytes) -> None:
    for action in ACTIONS:
        status, error = ask(sqs, action, body)
        assert (status == 200 and action == "ListQueues") or (400 <= status < 500 and error), (action, status, error)
    assert sqs.client.list_queues()


def test_a_member_that_is_null_is_not_there(sqs: Sqs) -> None:
    """As in SQS: programs without an SDK send what they do not know as null."""
    url = sqs.create()
    for action, known in ACTIONS.items():
        names = known.request.__struct_encode_fields__
        for name in names:
            given = {"QueueUrl": url, "MessageBody": "body"}
            absent = {key: value for key, value in given.items() if key in names and key != name}
            with_null, without = (
                ask(sqs, action, json.dumps(body).encode()) for body in ({**absent, name: None}, absent)
            )
            if action != "DeleteQueue":  # the first one has deleted it
                assert with_null == without, (action, name)
            assert with_null[1] != "SerializationException", (action, name)
            sqs.create()
    entry = {"Id": "1", "MessageBody": "in a batch", "MessageAttributes": None, "MessageSystemAttributes": None}
    body = json.dumps({"QueueUrl": url, "Entries": [entry]}).encode()
    assert ask(sqs, "SendMessageBatch", body) == (200, "")
    assert "in a batch" in sqs.bodies(url)
    assert ask(sqs, "SendMessageBatch", b'{"QueueUrl":null,"Entries":[null]}') == (400, "SerializationException")


@pytest.mark.parametrize(
    "target", ["", "AmazonSQS.", "AmazonSQS.Nope", "sqs.SendMessage", "AmazonSQS.__class__", "\xff" * 5_000]
)
def test_what_is_no_action_is_refused(sqs: Sqs, target: str) -> None:
    reply = sqs.api.request("POST", "/", b"{}", {**JSON, "X-Amz-Target": target})
    assert (reply.status, reply.json["__type"]) == (400, "com.amazonaws.sqs#InvalidAction")


def test_a_body_that_is_too_large_is_refused(sqs: Sqs) -> None:
    url = sqs.create()
    body = json.dumps({"QueueUrl": url, "MessageBody": "x" * (13 * 1024 * 1024)}).encode()
    assert ask(sqs, "SendMessage", body) == (413, "RequestTooLarge")
    assert sqs.receive(url) == []


def test_a_body_of_escapes_is_taken(sqs: Sqs) -> None:
    """A message of the largest size may take six times that as JSON."""
    url = sqs.create()
    text = "\\u0041" * 1_048_576
    assert ask(sqs, "SendMessage", b'{"QueueUrl":"%b","MessageBody":"%b"}' % (url.encode(), text.encode()))[0] == 200
    [message] = sqs.receive(url)
    assert message["Body"] == "A" * 1_048_576


@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
def test_a_batch_of_very_many_entries_is_refused_without_reading_them(sqs: Sqs, action: str) -> None:
    """Millions of empty entries fit in a body, and each would be an object. An eleventh is enough to refuse them."""
    url = sqs.create()
    for entries in (b"{}," * 100_000, b"{}," * 11 + b"1,"):
        body = b'{"QueueUrl":"%b","Entries":[%b{}],"Entries":[%b{}]}' % (url.encode(), entries, entries)
        assert ask(sqs, action, body) == (400, "TooManyEntriesInBatchRequest")
    body = b'{"QueueUrl":"%b","Entries":[1,{}]}' % url.encode()
    assert ask(sqs, action, body) == (400, "SerializationException")


def forged(receipt: list[Any]) -> str:
    return base64.b64encode(msgspec.msgpack.encode(receipt)).decode()


def test_forged_handles_change_nothing_and_spoil_no_batch(sqs: Sqs) -> None:
    url = sqs.create(VisibilityTimeout=10)
    sqs.send(url)
    [message] = sqs.receive(url)
    good = msgspec.msgpack.decode(base64.b64decode(message["ReceiptHandle"]))
    token, tenant, queue, group, partition, seq, messages = good
    for handle in (
        forged([b"short", tenant, queue, group, partition, seq, messages]),
        forged([token, tenant, queue, group, "\x00", seq, messages]),
        forged([token, tenant, queue, "", partition, seq, messages]),
        forged([token, tenant, queue, group, partition, 0, messages]),
        forged([token, tenant, queue, group, partition, 2**64 - 1, messages]),
        forged([token, tenant, queue, group, partition, seq, 0]),
        forged([token, tenant, queue, group, partition, seq, 2**40]),
        forged([token, tenant + "x", queue, group, partition, seq, messages]),
        forged(good[:-1]),
        forged([]),
    ):
        asked = [{"Id": "bad", "ReceiptHandle": handle}]
        done = sqs.client.delete_message_batch(QueueUrl=url, Entries=asked)
        assert [one["Code"] for one in done["Failed"]] == ["ReceiptHandleIsInvalid"]
    others = bytes(16)
    done = sqs.client.delete_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "stranger", "ReceiptHandle": forged([others, tenant, queue, group, partition, seq, 1])},
            {"Id": "nobody", "ReceiptHandle": forged([others, tenant, queue, "nobody", "nowhere", 99, 2])},
        ],
    )
    assert len(done["Successful"]) == 2  # as of any handle that counts no longer
    sqs.pass_seconds(11)
    assert [one["MessageId"] for one in sqs.receive(url)] == [message["MessageId"]]


def test_notes_do_not_grow_without_bound(sqs: Sqs) -> None:
    url = sqs.create()
    large = json.dumps({"x": "y" * 9_000})
    assert sqs.fails("set_queue_attributes", QueueUrl=url, Attributes={"Policy": large}) == "InvalidAttributeValue"
    asked: dict[str, Any] = {"QueueUrl": url, "Actions": ["*"]}
    accounts = [f"{n:0200}" for n in range(60)]
    assert sqs.fails("add_permission", Label="a", AWSAccountIds=accounts, **asked) == "OverLimit"
    assert sqs.fails("add_permission", Label="a", AWSAccountIds=["x" * 300], **asked) == "InvalidParameterValue"
    assert "Policy" not in sqs.attributes(url)


def test_the_routes_of_the_door_take_nothing_else(sqs: Sqs) -> None:
    for method, path in (
        ("PUT", "/"),
        ("DELETE", "/sqs/a/b"),
        ("HEAD", "/sqs/a/b"),
        ("POST", "/sqs/a/b/c"),
        ("POST", "/sqs/a"),
    ):
        assert sqs.api.request(method, path).status in (404, 405), (method, path)


def test_a_page_of_another_site_sends_nothing(sqs: Sqs) -> None:
    """A form of a web page may be sent anywhere: the browser says from where it comes."""
    url = sqs.create()
    form = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": "http://evil.example",
        "Sec-Fetch-Site": "cross-site",
    }
    path = url.removeprefix(sqs.server.url)
    for method, target, body in (
        ("POST", path, b"Action=SendMessage&MessageBody=1"),
        ("POST", "/", b"Action=CreateQueue&QueueName=evil"),
        ("GET", f"{path}?Action=SendMessage&MessageBody=1", None),
    ):
        reply = sqs.api.request(method, target, body, form)
        assert reply.status == 403, reply
    assert sqs.receive(url) == []
    assert sqs.client.list_queues()["QueueUrls"] == [url]
