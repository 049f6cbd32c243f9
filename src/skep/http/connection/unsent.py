"""A bound on the bytes of answers that the process holds because clients have not read them.

No request is refused for it. When there is too much, the client that has been slow for the longest time is cut off, as it would be
after `reader_seconds`. A client that reads its answer is slow only for a moment, so it is never that one.
"""

from __future__ import annotations

from typing import Protocol


class SlowConnection(Protocol):
    """A connection whose client is slow to take its answer."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the client has not read yet."""

    def cut_off(self) -> None:
        """Drop the connection with its unsent bytes."""


class UnsentAnswers:
    """The slow readers and their unread bytes. A connection is a slow reader when it has more than 64 KiB to read."""

    __slots__ = ("_most", "_readers", "held_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._readers: dict[SlowConnection, int] = {}
        self.held_bytes = 0

    def hold(self, reader: SlowConnection) -> None:
        """Count the unread bytes of a client. When all together are too many, cut off other slow readers, the oldest first."""
        self.let_go(reader)
        self._readers[reader] = size = reader.unsent_bytes
        self.held_bytes += size
        if self.held_bytes > self._most:
            self._look_again()
        while self.held_bytes > self._most and len(self._readers) > 1:
            oldest = next(iter(self._readers))
            self.let_go(oldest)
            oldest.cut_off()

    def let_go(self, reader: SlowConnection) -> None:
        """A client has caught up, or gone."""
        self.held_bytes -= self._readers.pop(reader, 0)

    def _look_again(self) -> None:
        """Count again: clients have read some of the bytes meanwhile."""
        for reader in self._readers:
            self._readers[reader] = reader.unsent_bytes
        self.held_bytes = sum(self._readers.values())
