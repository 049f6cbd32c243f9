"""An excerpt of a refused request: names and shapes, never values.

A refused request may have come from anyone and may hold secrets. Names that look like keys, card numbers or ids are left out, too.
The excerpt is made in the event loop, so its time must not grow faster than the piece of the body that it reads.
"""

from __future__ import annotations

import re
from itertools import islice

from skep.webhooks.signatures import Headers

EXCERPT_CHARACTERS = 500
NAMES_MAX = 20
BODY_BYTES = 2_048
"""The most bytes of a body that are read."""

_NAME = re.compile(r"[a-z0-9_-]{1,40}", re.ASCII)
_FIELD = re.compile(r'"[A-Za-z][A-Za-z0-9_-]{0,39}"', re.ASCII)
_NAMED = re.compile(r'".*"\s*:', re.DOTALL)
_WORD = re.compile(r"[A-Za-z]*|[0-9]{1,4}|[A-Za-z0-9]{1,8}", re.ASCII)
_PARTS = re.compile(
    rb""""(?:[^"\\]++|\\.)*+(?:"(?:\s*+:)?|\\?\Z)|[{}\[\],]|\b(?:true|false|null)\b|-?\d[\d.eE+-]*+""", re.DOTALL
)
"""The tokens of a JSON body. Anyone may send one, so each byte is read once: a string without an end is read to the end of the body."""


def excerpt(headers: Headers, body: bytes) -> str:
    """The names of a request's headers, the size of its body, and the shape of the JSON that it begins with."""
    names = [name.decode("latin-1") for name, _ in headers[:NAMES_MAX]]
    told = ", ".join(name for name in names if _NAME.fullmatch(name) and _has_words(name))
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
    if not _NAMED.fullmatch(part):
        return '"…"'
    name = part[:-1].rstrip()
    return f"{name}:" if _FIELD.fullmatch(name) and _has_words(name[1:-1]) else "…:"


def _has_words(name: str) -> bool:
    """Whether a name is made of words and short numbers, as `x-hub-signature-256` is and a key or a card number is not."""
    return all(_WORD.fullmatch(part) for part in re.split("[-_]", name))
