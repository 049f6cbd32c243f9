"""Both ends of a connection without a socket: what would go to the kernel, and a client that has sent all it wants to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from skep.engine.answers import Room


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
