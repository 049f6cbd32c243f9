"""The transport that ends connections in order."""

from __future__ import annotations

import asyncio

from skep.engine.answers import Room
from skep.http.transport import ClosingInOrder


class Recorder(asyncio.Transport):
    """Notes that it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Reader:
    """A protocol whose client has sent all it wants to."""

    lingering = False
    is_unread = False
    is_lost = False

    def linger(self) -> None: ...

    def hold_until_taken(self, room: Room) -> bool:
        return False

    def closing(self) -> None: ...


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
