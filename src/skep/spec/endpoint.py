"""The addresses of deliveries (endpoints), and their names.

The path of an address is often a secret itself (Slack, Discord, Teams). So logs, errors, the store, the API and the client name an
endpoint by its host and a few digits, which tell it from others on that host.
"""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlsplit

NAME_DIGITS = 8

_NAME = re.compile(r"https?://[^/?#@]+/(?:…[0-9a-f]{8})?", re.ASCII)


def is_address(url: str) -> bool:
    """Whether messages can be posted to this address."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
        return fine and " " not in url and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def endpoint_name(url: str) -> str:
    """The name of an endpoint: `https://host/`, or `https://host/…1f2e3d4c` if it has a path. A name stays as it is."""
    if _NAME.fullmatch(url) or not is_address(url):
        return url
    parts = urlsplit(url)
    authority = parts.netloc.rpartition("@")[2]
    if parts.path in ("", "/") and not parts.query:
        return f"{parts.scheme}://{authority}/"
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path
    return f"{parts.scheme}://{authority}/…{sha256(path.encode('utf-8', 'surrogatepass')).hexdigest()[:NAME_DIGITS]}"
