"""The client's address of a request: the address at the other end, or the one that a trusted proxy names.

A proxy that names no client, and this machine itself, stand for many clients: no limit per peer applies to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from skep.errors import Code, SkepError

FORWARDED_FOR = b"x-forwarded-for"
FORWARDED_PROTO = b"x-forwarded-proto"
UNKNOWN = "unknown"
_SITE_BITS = 128 - 56
"""IPv6 addresses with this prefix count as one peer: providers give a household or a small site a /56."""
TOLD = 100
"""At most this many excess connections at once get an answer with the reason, which takes a moment. Further ones are only closed."""

Address = IPv4Address | IPv6Address
Headers = Sequence[tuple[bytes, bytes]]


class Peers:
    """Finds the client's address, given the trusted proxies."""

    def __init__(self, trusted_proxies: str) -> None:
        self._trusted = [_network(text.strip()) for text in trusted_proxies.split(",") if text.strip()]

    def of(self, scope: Mapping[str, Any]) -> str:
        """The address that a request comes from, for the log."""
        found = self._address(scope)
        return UNKNOWN if found is None else str(found)

    def bounded(self, scope: Mapping[str, Any]) -> str | None:
        """The peer that a request counts towards; None when it is held to no bound."""
        return self._bounded(self._address(scope))

    def bounded_connection(self, client: tuple[str, int] | None) -> str | None:
        """The peer of a connection. A proxy names its client later, in each request."""
        return None if client is None else self._bounded(_address(client[0]))

    def is_https(self, scope: Mapping[str, Any]) -> bool:
        """Whether the client came by TLS, to here or to a trusted proxy."""
        if scope.get("scheme") == "https":
            return True
        client = scope.get("client")
        near = None if client is None else _address(client[0])
        return self._is_trusted(near) and _last(scope["headers"], FORWARDED_PROTO).lower() == b"https"

    def _address(self, scope: Mapping[str, Any]) -> Address | None:
        client = scope.get("client")
        near = None if client is None else _address(client[0])
        if not self._is_trusted(near):
            return near
        said = b",".join(value for name, value in scope["headers"] if name == FORWARDED_FOR)
        for text in reversed(said.decode("ascii", "replace").split(",")):
            found = _address(text.strip())
            if found is None:
                break  # entries before this one were not written by a trusted proxy
            if not self._is_trusted(found):
                return found
        return near

    def _bounded(self, address: Address | None) -> str | None:
        if address is None or self._is_trusted(address) or address.is_loopback:
            return None
        if isinstance(address, IPv6Address):
            return str(IPv6Address(int(address) >> _SITE_BITS << _SITE_BITS))
        return str(address)

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def _last(headers: Headers, name: bytes) -> bytes:
    """The last entry, which the nearest proxy wrote."""
    said = [value for given, value in headers if given == name]
    return said[-1].rpartition(b",")[2].strip() if said else b""


def _address(text: str) -> Address | None:
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    try:
        found = ip_address(bare.partition("%")[0])
    except ValueError:
        host, colon, port = text.rpartition(":")
        return _address(host) if colon and port.isdecimal() and ":" not in host else None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise SkepError(
            Code.INVALID_SETTING, f"http.trusted_proxies: {text!r} is no address and no network such as 10.0.0.0/8"
        ) from None


class PeerConnections:
    """How many connections each peer has, and how many were turned away and are not gone yet."""

    def __init__(self, peers: Peers, most: int) -> None:
        self._peers = peers
        self._most = most
        self._by_peer: dict[str, int] = {}
        self.turned_away = 0

    def enter(self, client: tuple[str, int] | None) -> str | None:
        """Count a connection; the peer that it counts towards, if it is held to a bound."""
        peer = self._peers.bounded_connection(client)
        if peer is not None:
            self._by_peer[peer] = self._by_peer.get(peer, 0) + 1
        return peer

    def are_too_many(self, peer: str | None) -> bool:
        """Whether a peer has more than it may have."""
        return peer is not None and self._by_peer.get(peer, 0) > self._most

    def turn_away(self, peer: str | None) -> bool:
        """Count a connection that is one too many towards its peer no longer; whether it may stay to be told why."""
        self.leave(peer)
        self.turned_away += 1
        return self.turned_away <= TOLD

    def leave(self, peer: str | None) -> None:
        """A connection is over."""
        if peer is not None:
            self._by_peer[peer] -= 1
            if not self._by_peer[peer]:
                del self._by_peer[peer]
