"""Servers that we reach over our own connections (plain ``http://`` without a proxy), and the heads of their requests."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from skep.client.consumer import HEADER, consumer_header
from skep.client.exchange import Request
from skep.client.http1 import header_lines, length_line, request_line
from skep.client.settings import ClientSettings

HTTP_PORT = 80
MAX_BEGUN = 256
"""The most first lines that are remembered: a client that pushes, pops and acks sends the same ones again and again."""
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
    """The address of a plain server; None for a URL that needs TLS, a password or a proxy, or whose host is not a plain name."""
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
    """The heads of a client's requests to plain servers. What they have in common is written once."""

    def __init__(self, settings: ClientSettings, headers: Mapping[str, str]) -> None:
        self._name = settings.client_name
        self._headers = headers
        self._servers = {url: urlsplit(url) for url in settings.urls}
        self._lines = header_lines(headers)
        self._begun = lru_cache(maxsize=MAX_BEGUN)(self._begin)

    def of(self, url: str, request: Request) -> bytes:
        """The request without its body; ValueError when it cannot be sent so."""
        method, target = request.method, request.target
        begun = self._begun(url, method, target)
        lines = self._with_own(request.headers) if request.headers else self._lines
        if request.says_who:
            lines = f"{lines}{HEADER}: {consumer_header(self._name)}\r\n"
        return f"{begun}{lines}{length_line(method, request.body)}\r\n".encode()

    def _begin(self, url: str, method: str, target: str) -> str:
        server = self._servers[url]
        return f"{request_line(method, server.path + target)}host: {server.netloc}\r\n"

    def _with_own(self, headers: Mapping[str, str]) -> str:
        own = {name.lower() for name in headers}
        common = {name: value for name, value in self._headers.items() if name.lower() not in own}
        return header_lines({**common, **headers})
