"""Fetch the keys of an issuer: one GET to the URL of the settings and to no other, bounded in time and size.

Redirects are not followed and proxies of the environment not used, so that nobody else decides where the request goes.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit

from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from skep.errors import Code, SkepError

FETCH_SECONDS = 5.0
FETCH_BYTES = 256 * 1024
SCHEMES = ("https://", "http://")


def is_url(place: str) -> bool:
    """Whether a place is a URL and not a file."""
    return place.lower().startswith(SCHEMES)


def check_url(url: str) -> None:
    """Refuse a URL without TLS, whose answer could be changed on the way. Loopback is allowed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.username is not None or not host:
        raise SkepError(Code.INVALID_SETTING, "access.jwt_keys: a URL has a host and no password")
    if parts.scheme.lower() == "https" or _is_loopback(host):
        return
    raise SkepError(Code.INVALID_SETTING, "access.jwt_keys: a URL is https, unless it is of this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def fetch(url: str) -> bytes:
    """The body of the answer; SERVER_UNREACHABLE when it is late, too long, or not a 200."""
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            return await _fetched(url)
    except (PyreqwestError, TimeoutError, OSError, ValueError) as error:
        raise SkepError(Code.SERVER_UNREACHABLE, f"{_shown(url)} did not answer: {type(error).__name__}") from None


async def _fetched(url: str) -> bytes:
    builder = ClientBuilder().follow_redirects(False).no_proxy().gzip(False).timeout(timedelta(seconds=FETCH_SECONDS))
    async with builder.build() as client:
        asked = client.get(url).header("Accept", "application/json").build_streamed()
        async with asked as response:
            if response.status != 200:
                raise SkepError(Code.SERVER_UNREACHABLE, f"{_shown(url)} answered {response.status}")
            parts, size = [], 0
            while (part := await response.body_reader.read_chunk()) is not None:
                size += len(part)
                if size > FETCH_BYTES:
                    raise SkepError(Code.SERVER_UNREACHABLE, f"{_shown(url)} answered more than {FETCH_BYTES} bytes")
                parts.append(bytes(part))
            return b"".join(parts)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{parts.path}"
