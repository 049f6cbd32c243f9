"""Addresses that messages are delivered to, and how they are shown.

The path of such an address is often a secret itself (Slack, Discord, Teams), so nobody but the receiver is shown it: logs, errors,
the store, the API and the client name an endpoint by its host and a few digits that tell it from others there.
"""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlsplit

NAME_DIGITS = 8

_NAME = re.compile(r"https?://[^/?#@]+/(?:…[0-9a-f]{8})?", re.ASCII)


def is_address(url: str) -> bool:
    """Whether messages can be posted to this."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
        return fine and " " not in url and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def endpoint_name(url: str) -> str:
    """The name of an endpoint: `https://host/`, or `https://host/…1f2e3d4c` for one with a path. A name is its own name."""
    if _NAME.fullmatch(url) or not is_address(url):
        return url
    parts = urlsplit(url)
    authority = parts.netloc.rpartition("@")[2]
    if parts.path in ("", "/") and not parts.query:
        return f"{parts.scheme}://{authority}/"
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path
    return f"{parts.scheme}://{authority}/…{sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:NAME_DIGITS]}"
