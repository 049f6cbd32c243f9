"""Which servers are asked over connections of our own: plain ``http://`` without a proxy. And what heads their requests have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from skep.client.consumer import HEADER, consumer_header
from skep.client.exchange import Request
from skep.client.http1 import header_lines, request_bytes
from skep.client.settings import ClientSettings

HTTP_PORT = 80
MAX_PORT = 65535
_NETLOC = re.compile(r"(?P<host>[0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")

C_co = TypeVar("C_co", covariant=True)


class Connect(Protocol[C_co]):
    """Makes what keeps the connections to a server; none is opened yet."""

    def __call__(self, host: str, port: int, connect_seconds: float) -> C_co:
        """For the server at this address."""


def plain_servers(settings: ClientSettings, connect: Connect[C_co]) -> dict[str, C_co]:
    """Connections for each URL that needs nothing but a socket."""
    return {
        url: connect(*address, settings.connect_timeout_seconds) for url in settings.urls if (address := _address(url))
    }


def _address(url: str) -> tuple[str, int] | None:
    """Where a plain server is; None for one that needs TLS, a password or a proxy, or whose name needs thought."""
    parts = urlsplit(url)
    found = _NETLOC.fullmatch(parts.netloc)
    if parts.scheme != "http" or found is None:
        return None
    host, port = found["host"].strip("[]"), int(found["port"] or HTTP_PORT)
    return None if port > MAX_PORT or _has_proxy(host) else (host, port)


def _has_proxy(host: str) -> bool:
    if not any(os.environ.get(name) for name in _PROXIES):
        return False
    from urllib.request import proxy_bypass  # takes long to load, and hardly anybody needs it

    return not proxy_bypass(host)


class Heads:
    """The heads of a client's requests to plain servers. What all have in common is written once."""

    def __init__(self, settings: ClientSettings, headers: Mapping[str, str]) -> None:
        self._name = settings.client_name
        self._headers = headers
        self._servers: dict[str, tuple[str, str, str]] = {}
        for url in settings.urls:
            parts = urlsplit(url)
            self._servers[url] = (parts.path, f"host: {parts.netloc}\r\n", header_lines(headers))

    def of(self, url: str, request: Request) -> bytes:
        """The request without its body; ValueError when it cannot be sent so."""
        prefix, host, lines = self._servers[url]
        if request.headers:
            own = {name.lower() for name in request.headers}
            common = {name: value for name, value in self._headers.items() if name.lower() not in own}
            lines = header_lines({**common, **request.headers})
        if request.says_who:
            lines = f"{lines}{HEADER}: {consumer_header(self._name)}\r\n"
        return request_bytes(request, prefix, host + lines)
