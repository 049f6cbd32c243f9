"""Which addresses messages may be delivered to: none that leads back into the own network, however it is written.

A name is looked up on every try, and the connection goes to the very address that was looked at, so that a name which points
elsewhere a moment later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from skep.errors import Code, SkepError

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as text, best first."""

_SHARED = ip_network("100.64.0.0/10")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_LOCALLY_TRANSLATED = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")


async def look_up(host: str, port: int) -> list[str]:
    """The addresses that the system knows a host by."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SkepError(Code.SERVER_UNREACHABLE, f"the name {host!r} cannot be looked up: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def address_of(host: str, port: int, resolve: Resolve, *, allow_private: bool) -> str:
    """The address to connect to; FORBIDDEN when the host has none that may be connected to."""
    addresses = await resolve(host, port)
    for address in addresses:
        if allow_private or is_public(address):
            return address
    if not addresses:
        raise SkepError(Code.SERVER_UNREACHABLE, f"the name {host!r} has no address")
    raise SkepError(
        Code.FORBIDDEN,
        f"{host!r} is at {addresses[0]}, which is no public address; private ones must be allowed",
        host=host,
        address=addresses[0],
    )


def is_public(text: str) -> bool:
    """Whether an address is one of the public network; one that carries another in it is judged by that one, too."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return _is_public_v4(address)
    carried = _carried(address)
    if carried is not None:
        return all(_is_public_v4(one) for one in carried)
    # A scoped address (fe80::1%eth0) is meant for one link.
    return address.scope_id is None and address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_site_local or address in _LOCALLY_TRANSLATED
    )  # fmt: skip


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved or address in _SHARED)


def _carried(address: IPv6Address) -> list[IPv4Address] | None:
    """The IPv4 addresses inside of an IPv6 one: mapped, compatible, translated (NAT64), 6to4 and Teredo."""
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    if address in _TRANSLATED or address in _COMPATIBLE:
        return [IPv4Address(int(address) & 0xFFFF_FFFF)]
    return None
