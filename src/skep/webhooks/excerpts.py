"""What a refused request looked like, without anything that it said: names and shapes, never values.

A request that was refused may have come from anybody, with anybody's secrets in it, or from the right sender with the wrong ones.
"""

from __future__ import annotations

import re
from itertools import islice

from skep.webhooks.signatures import Headers

EXCERPT_CHARACTERS = 500
NAMES_MAX = 20
BODY_BYTES = 2_048
"""So much of a body is looked at."""

_NAME = re.compile(r"[a-z0-9_-]{1,40}", re.ASCII)
_FIELD = re.compile(r'"[A-Za-z][A-Za-z0-9_-]{0,39}"', re.ASCII)
_PARTS = re.compile(
    rb""""(?:[^"\\]++|\\.)*+(?:"(?:\s*+:)?|\\?\Z)|[{}\[\],]|\b(?:true|false|null)\b|-?\d[\d.eE+-]*+""", re.DOTALL
)
"""What a body is made of. Anybody may send one, so each byte is looked at once: a text that never ends goes to the end."""


def excerpt(headers: Headers, body: bytes) -> str:
    """The names of a request's headers, the size of its body, and the shape of the JSON that it begins with."""
    names = [name.decode("latin-1") for name, _ in headers[:NAMES_MAX]]
    told = ", ".join(name for name in names if _NAME.fullmatch(name))
    return f"headers {told}; body of {len(body)} bytes {_shape(body)}"[:EXCERPT_CHARACTERS].rstrip()


def _shape(body: bytes) -> str:
    start = body[:BODY_BYTES].lstrip()
    if start[:1] not in (b"{", b"["):
        return ""
    parts = islice(_PARTS.finditer(start), EXCERPT_CHARACTERS)  # each is at least one character
    return "".join(_shown(part[0].decode("utf-8", "replace")) for part in parts)


def _shown(part: str) -> str:
    if part[0] != '"':
        return part if part in "{}[]," or part.isalpha() else "0"
    if not part.endswith(":"):
        return '"…"'
    name = part[:-1].rstrip()
    return f"{name if _FIELD.fullmatch(name) else '…'}:"
