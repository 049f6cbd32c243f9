"""How much of its answers the process holds because clients have not taken them: all together are bounded.

Nobody is refused for that. When there is too much, the client that has been slow for the longest is cut off, as it would be after
`reader_seconds`. One that takes its answer is slow for a moment only, so this is never the longest.
"""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """A connection whose client is slow to take its answer."""

    @property
    def unsent_bytes(self) -> int:
        """What it has not taken yet."""

    def cut_off(self) -> None:
        """Drop the connection, and what it was to be sent."""


class UnsentAnswers:
    """The slow readers, and what they have not taken yet. A connection is one when it has more than 64 KiB to take."""

    __slots__ = ("_most", "_readers", "held_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._readers: dict[Reader, int] = {}
        self.held_bytes = 0

    def hold(self, reader: Reader) -> None:
        """Count what a client has not taken; when it is too much of all together, cut off others, the oldest first."""
        self.let_go(reader)
        self._readers[reader] = size = reader.unsent_bytes
        self.held_bytes += size
        if self.held_bytes > self._most:
            self._look_again()
        while self.held_bytes > self._most and len(self._readers) > 1:
            oldest = next(iter(self._readers))
            self.let_go(oldest)
            oldest.cut_off()

    def let_go(self, reader: Reader) -> None:
        """A client has caught up, or gone."""
        self.held_bytes -= self._readers.pop(reader, 0)

    def _look_again(self) -> None:
        """Some of what was counted has been taken meanwhile."""
        for reader in self._readers:
            self._readers[reader] = reader.unsent_bytes
        self.held_bytes = sum(self._readers.values())
