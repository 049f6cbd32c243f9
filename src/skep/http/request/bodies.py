"""How much of request bodies the process holds: all of one kind together are bounded, and what one peer has not finished sending.

There are three kinds. Before a webhook's signature can be checked its body must be here, so anyone can send it; and a login's too, which is
short. Both have a small room of their own. All others are of someone who was let in.
"""

from __future__ import annotations

from skep.errors import Code, SkepError
from skep.http.request.peers import Peers

PEER_SHARE = 1 / 2
"""So much of a room may be taken by unfinished bodies of one peer."""
STRANGER_SHARE = 1 / 8
"""The same where anyone may send: one who was let in may push large batches from many processes of one machine."""
FREE_SHARE = 1 / 2
"""Up to this share of the room, one peer may exceed its own share: it may hold as much as one body of the largest size."""
LOGIN_BODIES_BYTES = 1024 * 1024
"""The room of logins, whose bodies have 16 KiB at the most."""


class Bodies:
    """The bytes of request bodies of one kind that arrived and are not done with yet.

    Bytes count once they are here, not when they are announced: who announces a body and never sends it takes no room
    from others. The only body there is may be of any size that is allowed to one.
    """

    __slots__ = ("_by_peer", "_most", "_share", "held_bytes", "peers")

    def __init__(self, most_bytes: int, peers: Peers, peer_share: float = PEER_SHARE) -> None:
        self._most = most_bytes
        self._share = most_bytes * peer_share
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

    def take_of(self, peer: str | None, size: int, largest: int) -> None:
        """Count a piece of a body whose end is not here yet, or refuse it; ``largest`` is how long that body may be."""
        if peer is not None:
            held = self._by_peer.get(peer, 0)
            if not self._may_hold(held, size, largest):
                raise SkepError(
                    Code.SERVER_BUSY, "unfinished bodies of this address take all the room that one may have"
                )
            self.take(size)
            self._by_peer[peer] = held + size
        else:
            self.take(size)

    def _may_hold(self, held: int, size: int, largest: int) -> bool:
        if held + size <= self._share:
            return True
        is_free = self.held_bytes + size <= self._most * FREE_SHARE or self.held_bytes == held
        return is_free and held + size <= largest

    def finish_of(self, peer: str | None, size: int) -> None:
        """A body is whole, or will never be: it counts towards its peer no longer."""
        if peer is not None and size:
            left = self._by_peer[peer] - size
            if left:
                self._by_peer[peer] = left
            else:
                del self._by_peer[peer]


def _no_room() -> SkepError:
    return SkepError(
        Code.SERVER_BUSY, "unfinished bodies take all the room that there is for them: send less at once, or try again"
    )
