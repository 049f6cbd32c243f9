"""What the loader's connections do by Amazon SQS's interface, and natively with the same queues. It imports nothing of the server."""

from __future__ import annotations

import msgspec

from bench import scripts
from bench.load import payload
from bench.loader import Driven, Script

BATCH = 10
MEDIA_TYPE = "application/x-amz-json-1.0"


class _Message(msgspec.Struct, rename="pascal"):
    receipt_handle: str


class _Received(msgspec.Struct, rename="pascal"):
    messages: list[_Message] = []


_received = msgspec.json.Decoder(_Received).decode


def asked(action: str, **fields: object) -> bytes:
    """An action with these parameters."""
    body = msgspec.json.encode(fields)
    return scripts.request("POST", "/", body, MEDIA_TYPE, f"x-amz-target: AmazonSQS.{action}\r\n")


def _url(queue: str) -> str:
    return f"http://localhost/sqs/000000000000/{queue}"


def send(number: int, driven: Driven, queue: str, size: int) -> Script:  # noqa: ARG001 - every script is given the number of its connection
    """Send the same batch over and over."""
    body = payload(size).decode()
    entries = [{"Id": str(n), "MessageBody": body} for n in range(BATCH)]
    batch = asked("SendMessageBatch", QueueUrl=_url(queue), Entries=entries)
    while True:
        scripts.expect(200, *(yield batch))
        driven.messages += BATCH


def receive_and_delete(number: int, driven: Driven, queue: str) -> Script:  # noqa: ARG001 - as above
    """Receive, and delete what came."""
    url = _url(queue)
    receive = asked("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=20)
    while True:
        status, body = yield receive
        scripts.expect(200, status, body)
        entries = [
            {"Id": str(n), "ReceiptHandle": one.receipt_handle} for n, one in enumerate(_received(body).messages)
        ]
        if entries:
            scripts.expect(200, *(yield asked("DeleteMessageBatch", QueueUrl=url, Entries=entries)))
            driven.messages += len(entries)


def push(number: int, driven: Driven, queue: str, size: int) -> Script:  # noqa: ARG001 - as above
    """Push the same batch over and over."""
    text = msgspec.Raw(payload(size))
    batch = scripts.request(
        "POST", "/api/v1/push", msgspec.json.encode({"items": [{"queue": queue, "payload": text}] * BATCH})
    )
    while True:
        scripts.expect(201, *(yield batch))
        driven.messages += BATCH


def pop_and_ack(number: int, driven: Driven, queue: str) -> Script:  # noqa: ARG001 - as above
    """Pop, and ack what came, message by message in one call."""
    pop = scripts.request("POST", f"/api/v1/pop/queue/{queue}?batch={BATCH}&wait=true")
    while True:
        status, body = yield pop
        if status == 204:
            continue
        scripts.expect(200, status, body)
        acks = scripts.acks_of(body)
        scripts.expect(200, *(yield scripts.ack(acks)))
        driven.messages += len(acks)
