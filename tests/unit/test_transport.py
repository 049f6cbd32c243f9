"""The transport that sends an answer's head with its body."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from skep.engine.answers import Room
from skep.http.transport import JOINED_BYTES, ClosingInOrder


class Recorder(asyncio.Transport):
    """Notes what would go to the kernel, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[bytes]] = []
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append([bytes(data)])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.calls.append([bytes(data) for data in list_of_data])


class Reader:
    """A protocol whose client has sent all it wants to."""

    lingering = False
    is_unread = False
    is_lost = False

    def linger(self) -> None: ...

    def hold_until_taken(self, room: Room) -> bool:
        return False

    def closing(self) -> None: ...


def test_what_is_held_goes_out_with_what_follows_it() -> None:
    recorder = Recorder()
    transport = ClosingInOrder(recorder, Reader())

    transport.hold_next()
    transport.write(b"head ")
    assert recorder.calls == []
    transport.write(b"body")
    transport.write(b"next")

    assert recorder.calls == [[b"head body"], [b"next"]]


def test_a_large_body_is_not_copied_to_join_its_head() -> None:
    recorder = Recorder()
    transport = ClosingInOrder(recorder, Reader())
    body = b"x" * (JOINED_BYTES + 1)

    transport.hold_next()
    transport.write(b"head")
    transport.write(body)

    assert recorder.calls == [[b"head", body]]


def test_an_empty_body_lets_its_head_go() -> None:
    recorder = Recorder()
    transport = ClosingInOrder(recorder, Reader())

    transport.hold_next()
    transport.write(b"head")
    transport.write(b"")

    assert recorder.calls == [[b"head"]]


def test_a_client_that_ends_the_connection_is_gone() -> None:
    recorder, reader = Recorder(), Reader()
    transport = ClosingInOrder(recorder, reader)
    assert not transport.is_gone

    recorder.close()

    assert transport.is_gone


def test_a_client_whose_connection_we_end_is_gone_only_when_it_is_lost() -> None:
    recorder, reader = Recorder(), Reader()
    transport = ClosingInOrder(recorder, reader)

    transport.close()
    assert recorder.closed
    assert not transport.is_gone
    reader.is_lost = True

    assert transport.is_gone
