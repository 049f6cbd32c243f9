"""Bounds on request bodies in memory: on all bodies of one kind together, and on the unfinished bodies of one peer.

There are three kinds. Anyone can send the body of a webhook, since its signature is checked on the whole body; and the short body of a
login. Each of these two kinds has a small bound of its own. All other bodies come from callers that were let in.
"""

from __future__ import annotations

from skep.errors import Code, SkepError
from skep.http.request.peers import Peers

PEER_SHARE = 1 / 2
"""The share of the bound that unfinished bodies of one peer may take."""
STRANGER_SHARE = 1 / 8
"""The share for webhooks and logins. It is smaller, since a caller that was let in may push large batches from many processes."""
FREE_SHARE = 1 / 2
"""Up to this share of the room, one peer may exceed its own share: it may hold as much as one body of the largest size."""
LOGIN_BODIES_BYTES = 1024 * 1024
"""The bound on all login bodies together; each has 16 KiB at the most."""


class Bodies:
    """The bytes of request bodies of one kind that arrived and are still in use.

    Bytes count once they are here, not when they are announced: a client that announces a body and never sends it takes no room
    from others. A body that is alone may have the largest allowed size.
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
        """Count bytes that arrived, or refuse them. The caller gives them back later."""
        held = self.held_bytes + size
        if held > self._most and self.held_bytes:
            raise _no_room()
        self.held_bytes = held

    def give_back(self, size: int) -> None:
        """Give back the bytes of a request that has ended."""
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
