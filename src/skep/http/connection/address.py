"""Where the server listens: addresses, the sockets bound to them, and whether it may listen there at all."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from skep.errors import Code, SkepError


class Address(NamedTuple):
    """One address to bind, as the system resolved it."""

    family: socket.AddressFamily
    place: tuple[object, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        ip = ip_address(str(self.place[0]).partition("%")[0])
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            return ip.ipv4_mapped.is_loopback
        return ip.is_loopback


def resolve(host: str, port: int) -> list[Address]:
    """All addresses that a host means; an IPv6 address may stand in brackets, and nothing means every address."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = socket.getaddrinfo(bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise SkepError(Code.INVALID_SETTING, f"the host {host!r} means no address: {error}") from None
    return list(dict.fromkeys(Address(family, tuple(place)) for family, _, _, _, place in found))


def check_exposure(addresses: Sequence[Address], *, insecure: bool, authenticated: bool) -> None:
    """Refuse to listen beyond this machine without keys. This is the one place that decides."""
    if insecure or authenticated or all(address.is_loopback for address in addresses):
        return
    exposed = next(str(address.place[0]) for address in addresses if not address.is_loopback)
    raise SkepError(
        Code.INVALID_SETTING,
        f"{exposed} can be reached from other machines, and access.required is off: leave it on, listen on 127.0.0.1 behind "
        "a proxy that authenticates, or say --insecure when everyone in this network may do anything",
    )


def bind(addresses: Sequence[Address], flag: str = "--port") -> list[socket.socket]:
    """A bound socket for each address. None listens yet, so that no client comes before the store is open.

    ``flag`` is the option that names another port, for the error.
    """
    sockets: list[socket.socket] = []
    try:
        for family, place in addresses:
            # With port 0 the first one chooses, and the others follow.
            port = sockets[0].getsockname()[1] if sockets else place[1]
            sockets.append(_bound(family, (place[0], port, *place[2:]), flag))
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _bound(family: socket.AddressFamily, place: tuple[object, ...], flag: str) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The IPv4 address of the same name gets a socket of its own.
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(place)
    except OSError as error:
        opened.close()
        raise _unbindable(error, f"{place[0]}:{place[1]}", flag) from None
    opened.setblocking(False)
    return opened


def _unbindable(error: OSError, where: str, flag: str) -> SkepError:
    if error.errno == errno.EADDRINUSE:
        hint = f"is in use by another program; stop it, or take another with {flag}"
    elif error.errno == errno.EACCES:
        hint = "may not be used by this user; ports below 1024 are for root"
    elif error.errno == errno.EADDRNOTAVAIL:
        hint = "is no address of this machine"
    else:
        hint = f"cannot be listened on: {error.strerror}"
    return SkepError(Code.ADDRESS_UNAVAILABLE, f"{where} {hint}")


def is_exposed(bound: socket.socket) -> bool:
    """Whether a socket can be reached from other machines."""
    return not Address(socket.AddressFamily(bound.family), tuple(bound.getsockname())).is_loopback


def local_url(bound: socket.socket) -> str:
    """The URL of a socket for programs of this machine. A socket that is bound to every address is reached on loopback."""
    host, port = bound.getsockname()[:2]
    if bound.family == socket.AF_INET6:
        return f"http://[{'::1' if host == '::' else host}]:{port}"
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104 - compared, not bound


def url_of(bound: socket.socket) -> str:
    """The address of a socket as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if bound.family == socket.AF_INET6 else f"http://{host}:{port}"
