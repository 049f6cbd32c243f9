"""The protocols of `skep bench peers` are read right however the network cuts their bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from bench.peers import nats, rabbitmq, redis
from bench.peers.lines import Way, Wire, number_of, template

SIZE = 40
T = TypeVar("T")


def messages(count: int) -> list[bytes]:
    return [template(SIZE) % number for number in range(count)]


def byte_by_byte(data: bytes, take: Callable[[bytearray], list[T] | None]) -> list[T]:
    """What is found when the bytes come one at a time; nothing may be left over."""
    received, found = bytearray(), list[T]()
    for at in range(len(data)):
        received += data[at : at + 1]
        found += take(received) or []
    assert not received
    return found


def way(batch: int) -> Way:
    return Way("redis", "", "orders", batch, SIZE, ())


def test_a_message_has_the_size_that_was_asked_for_and_keeps_its_number() -> None:
    (message,) = messages(1)

    assert len(message) == SIZE
    assert number_of(message) == 0
    assert number_of(b'{"n": "0000000017", "x": ""}'.decode()) == 17


def test_the_entries_of_a_stream_are_read_when_all_of_them_are_there() -> None:
    entries = [b"*2\r\n$3\r\n7-%d\r\n*2\r\n$1\r\nm\r\n$%d\r\n%s\r\n" % (n, SIZE, m) for n, m in enumerate(messages(3))]
    answer = b"*1\r\n*2\r\n$6\r\norders\r\n*3\r\n" + b"".join(entries)

    found = byte_by_byte(answer, redis.RedisLine(Wire(), way(3)).take_entries)

    assert [entry for entry, _ in found] == [b"7-0", b"7-1", b"7-2"]
    assert [number_of(payload) for _, payload in found] == [0, 1, 2]


def test_a_delivery_is_read_when_its_body_is_there_and_acked_by_its_tag() -> None:
    def delivery(tag: int, payload: bytes) -> bytes:
        said = (
            rabbitmq.short_text("me") + struct.pack(">QB", tag, 0) + rabbitmq.short_text("") + rabbitmq.short_text("q")
        )
        header = struct.pack(">HHQ", 60, 0, SIZE) + rabbitmq.PERSISTENT
        parts = [rabbitmq.frame(rabbitmq.HEADER, 1, header), rabbitmq.frame(rabbitmq.BODY, 1, payload)]
        return rabbitmq.method(1, rabbitmq.DELIVER, said) + b"".join(parts)

    line = rabbitmq.RabbitLine(Wire(), way(3))
    found = byte_by_byte(b"".join(delivery(7 + n, m) for n, m in enumerate(messages(3))), line.take_deliveries)

    assert found == [0, 1, 2]
    assert line.last_tag == 9


def test_the_answer_to_a_call_is_taken_without_the_messages_that_follow_it() -> None:
    answer, next_one = rabbitmq.method(1, (60, 21), rabbitmq.short_text("me")), rabbitmq.method(1, (60, 60), b"")
    received = bytearray(answer + next_one)

    assert rabbitmq.one_method(received) == (rabbitmq.METHOD, (60, 21), b"\x02me")
    assert received == next_one


def test_messages_and_a_status_of_jetstream_are_told_apart() -> None:
    sent = [b"MSG orders 1 $JS.ACK.%d %d\r\n%s\r\n" % (n, SIZE, m) for n, m in enumerate(messages(2))]
    status = b"NATS/1.0 408 Request Timeout\r\n\r\n"
    data = b"INFO {}\r\n" + b"".join(sent) + b"HMSG _INBOX.1 1 %d %d\r\n%s\r\n" % (len(status), len(status), status)

    found = byte_by_byte(data, lambda received: nats.take(received, Wire()).messages)

    assert [one.reply for one in found] == [b"$JS.ACK.0", b"$JS.ACK.1", b""]
    assert [number_of(one.payload) for one in found[:2]] == [0, 1]
