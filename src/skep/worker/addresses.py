"""Which addresses deliveries may go to (SSRF protection): none that leads back into the own network, however it is written.

A name is looked up on every try, and the connection goes to the address that was checked. So a name that points elsewhere a moment
later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from skep.errors import Code, SkepError

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as text, best first."""

_TRANSLATED = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})

# Addresses that Python, or some version of it, takes for public, although nobody on the Internet answers there.
_NOT_PUBLIC_V4 = (
    IPv4Network("100.64.0.0/10"),  # shared by a provider's customers
    IPv4Network("192.0.0.0/24"),  # of protocols
    IPv4Network("192.88.99.0/24"),  # the nearest relay of 6to4
)
_NOT_PUBLIC_V6 = (
    IPv6Network("64:ff9b:1::/48"),  # NAT64 of a local network
    IPv6Network("3fff::/20"),  # documentation
    IPv6Network("5f00::/16"),  # segment routing
)
# Addresses of cloud platforms. Deliveries to private addresses may be allowed; to these they never are.
_PLATFORM_V4 = (
    IPv4Network(
        "169.254.0.0/16"
    ),  # metadata of AWS, Azure, Google, Oracle, DigitalOcean, Hetzner, Tencent; credentials of ECS and EKS
    IPv4Network("168.63.129.16/32"),  # Azure's wire server, which is a public address
    IPv4Network("100.100.100.200/32"),  # Alibaba
    IPv4Network("192.0.0.192/32"),  # Oracle
)
_PLATFORM_V6 = (
    IPv6Network("fd00:ec2::/32"),  # AWS
    IPv6Network("fd20:ce::/32"),  # Google
    IPv6Network("fd00:42::42/128"),  # Scaleway
    IPv6Network("fd00:c1::a9fe:a9fe/128"),  # Oracle
    IPv6Network("fe80::a9fe:a9fe/128"),  # OpenStack
)


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
        if is_public(address) or (allow_private and not is_platform(address)):
            return address
    if not addresses:
        raise SkepError(Code.SERVER_UNREACHABLE, f"the name {host!r} has no address")
    if all(map(is_platform, addresses)):
        raise SkepError(
            Code.FORBIDDEN,
            f"{host!r} is at {addresses[0]}, which is no public address: a cloud platform answers its own machines there",
            host=host,
            address=addresses[0],
        )
    raise SkepError(
        Code.FORBIDDEN,
        f"{host!r} is at {addresses[0]}, which is no public address; private ones must be allowed",
        host=host,
        address=addresses[0],
    )


def is_public(text: str) -> bool:
    """Whether an address is public. An IPv6 address that carries IPv4 addresses is judged by them."""
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
        address.is_multicast or address.is_reserved or address.is_site_local or _is_in(address, _NOT_PUBLIC_V6)
    )  # fmt: skip


def is_platform(text: str) -> bool:
    """Whether a cloud platform answers its own machines at an address, with their credentials among other things."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return _is_in(address, _PLATFORM_V4)
    bare = IPv6Address(int(address))  # a scope is no part of it
    return _is_in(bare, _PLATFORM_V6) or any(_is_in(one, _PLATFORM_V4) for one in _carried(bare) or [])


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (
        address.is_multicast or address.is_reserved or _is_in(address, _NOT_PUBLIC_V4) or _is_in(address, _PLATFORM_V4)
    )


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks)


def _carried(address: IPv6Address) -> list[IPv4Address] | None:
    """The IPv4 addresses inside of an IPv6 one: mapped, compatible, translated (NAT64), 6to4, Teredo and ISATAP."""
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    if address in _TRANSLATED or address in _COMPATIBLE:
        return [IPv4Address(int(address) & 0xFFFF_FFFF)]
    if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP and address.is_global:
        return [IPv4Address(int(address) & 0xFFFF_FFFF)]
    return None
