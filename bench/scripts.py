"""What the loader's connections do: push, pop and ack, or ask for nothing."""

from __future__ import annotations

import hmac
from typing import Any

import msgspec

from bench.load import payload
from bench.loader import Driven, Script
from skep.wire.log import ARROW

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def request(method: str, path: str, body: bytes = b"", media_type: str = "application/json", more: str = "") -> bytes:
    """A request as it goes over the wire; ``more`` are lines for its head."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def push_body(queue: str, batch: int, size: int, partitions: int, offset: int = 0) -> bytes:
    """The body of a push."""
    text = msgspec.Raw(payload(size))
    items = [
        {"queue": queue, "partition": f"customer-{(offset + n) % partitions:06d}", "payload": text}
        for n in range(batch)
    ]
    return msgspec.json.encode({"items": items})


def nothing(number: int, driven: Driven) -> Script:  # noqa: ARG001 - every script is given the number of its connection
    """A route that does nothing."""
    asked = request("GET", "/health")
    while True:
        yield asked
        driven.messages += 1


def push(number: int, driven: Driven, queue: str, batch: int, size: int) -> Script:
    """Push the same batch over and over."""
    asked = request("POST", "/api/v1/push", push_body(queue, batch, size, 16, number))
    while True:
        expect(201, *(yield asked))
        driven.messages += batch


def push_buffered(number: int, driven: Driven, queue: str, size: int, wait_ms: int, most: int) -> Script:
    """Push the same message over and over without waiting for the disk (QoS 0)."""
    items = push_body(queue, 1, size, 16, number)
    asked = request("POST", "/api/v1/push", items[:-1] + b',"bufferMs":%d,"bufferMax":%d}' % (wait_ms, most))
    while True:
        expect(201, *(yield asked))
        driven.messages += 1


def hook(number: int, driven: Driven, webhook: str, secret: str, size: int, first: int) -> Script:
    """Post a signed body that is new each time; ``first`` tells rounds apart, so that no body comes twice."""
    filling, key = payload(size - 21).decode()[6:-2], secret.encode()
    path, count = f"/hook/{webhook}", 0
    while True:
        count += 1
        body = f'{{"n":"{first:04d}{number:04d}{count:08d}","x":"{filling}"}}'.encode()
        signature = hmac.digest(key, body, "sha256").hex()
        expect(202, *(yield request("POST", path, body, more=f"x-signature: {signature}\r\n")))
        driven.messages += 1


def push_stream(number: int, driven: Driven, queue: str, batch: int, stream: bytes) -> Script:  # noqa: ARG001 - as above
    """Push the same Arrow stream over and over."""
    asked = request("POST", f"/api/v1/push?queue={queue}", stream, ARROW)
    while True:
        expect(201, *(yield asked))
        driven.messages += batch


def pop_and_ack(number: int, driven: Driven, queue: str, batch: int) -> Script:  # noqa: ARG001 - as above
    """Pop and ack."""
    pop = request("GET", f"/api/v1/pop/queue/{queue}?batch={batch}&wait=true")
    expect(200, *(yield request("POST", "/api/v1/configure", msgspec.json.encode({"queue": queue, "settings": {}}))))
    while True:
        status, body = yield pop
        if status == 204:
            continue
        expect(200, status, body)
        acks = acks_of(body)
        expect(200, *(yield ack(acks)))
        driven.messages += len(acks)


def acks_of(popped: bytes) -> list[dict[str, Any]]:
    """The acknowledgments of all that an answer to a pop has."""
    return [{"leaseId": m["leaseId"], "seq": m["seq"]} for m in _decode(popped)["messages"]]


def ack(acks: list[dict[str, Any]]) -> bytes:
    """The request that makes them."""
    return request("POST", "/api/v1/ack/batch", msgspec.json.encode({"acknowledgments": acks}))


def cycle(number: int, driven: Driven, queue: str, batch: int, size: int) -> Script:
    """Every second connection pushes, the others pop and ack; a message counts when it is acked."""
    if number % 2:
        return push(number, Driven(), queue, batch, size)
    return pop_and_ack(number, driven, queue, batch)


def expect(wanted: int, status: int, body: bytes) -> None:
    """Raise for any other answer than the wanted one."""
    if status != wanted:
        raise RuntimeError(f"{status} {body[:200]!r}")
