"""How much of request bodies the process holds: all of them together are bounded, not only each."""

from __future__ import annotations

from skep.errors import Code, SkepError


class Bodies:
    """The bytes of request bodies that arrived and are not done with yet.

    Bytes count once they are here, not when they are announced: who announces a body and never sends it takes no room
    from others. The only body there is may be of any size that is allowed to one.
    """

    __slots__ = ("_most", "held_bytes")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.held_bytes = 0

    def expect(self, size: int) -> None:
        """Refuse a body, before it is read, for which there is no room now."""
        if self.held_bytes and self.held_bytes + size > self._most:
            raise _no_room()

    def take(self, size: int) -> None:
        """Count bytes that arrived, or refuse them; whoever takes them gives them back."""
        held = self.held_bytes + size
        if held > self._most and self.held_bytes:
            raise _no_room()
        self.held_bytes = held

    def give_back(self, size: int) -> None:
        """A request is over, however it went."""
        self.held_bytes -= size


def _no_room() -> SkepError:
    return SkepError(Code.SERVER_BUSY, "the bodies of other requests take all the room that there is for bodies")
