"""How much of request bodies the process holds: all of one kind together are bounded, and what one peer has not finished sending.

There are two kinds. Before a webhook's signature can be checked its body must be here, and a login's too, so anyone can send them: they have
a small room of their own. All others are of someone who was let in.
"""

from __future__ import annotations

from skep.errors import Code, SkepError
from skep.http.peers import Peers

PEER_SHARE = 0.5
"""So much of a room may be taken by unfinished bodies of one peer."""


class Bodies:
    """The bytes of request bodies of one kind that arrived and are not done with yet.

    Bytes count once they are here, not when they are announced: who announces a body and never sends it takes no room
    from others. The only body there is may be of any size that is allowed to one.
    """

    __slots__ = ("_by_peer", "_most", "held_bytes", "peers")

    def __init__(self, most_bytes: int, peers: Peers) -> None:
        self._most = most_bytes
        self._by_peer: dict[str, int] = {}
        self.peers = peers
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

    def take_of(self, peer: str | None, size: int) -> None:
        """Count a piece of a body whose end is not here yet, or refuse it."""
        if peer is not None:
            held = self._by_peer.get(peer, 0)
            if held and held + size > self._most * PEER_SHARE:
                raise SkepError(
                    Code.SERVER_BUSY, "unfinished bodies of this address take all the room that one may have"
                )
            self.take(size)
            self._by_peer[peer] = held + size
        else:
            self.take(size)

    def finish_of(self, peer: str | None, size: int) -> None:
        """A body is whole, or will never be: it counts towards its peer no longer."""
        if peer is not None and size:
            left = self._by_peer[peer] - size
            if left:
                self._by_peer[peer] = left
            else:
                del self._by_peer[peer]


def _no_room() -> SkepError:
    return SkepError(Code.SERVER_BUSY, "the bodies of other requests take all the room that there is for bodies")
