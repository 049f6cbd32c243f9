"""The identity of a consumer: a client sends it with each pop, in the header `Skep-Consumer`.

    Skep-Consumer: name="mailer", host="web-3", version="0.9.0", pid="4711"

Each value is percent-encoded UTF-8 in quotes, and each may be missing. The store keeps the header with the lease, in a normalised
form; it is parsed only for display. The header proves nothing and decides nothing, so an unreadable header counts as missing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from msgspec import Struct

HEADER = b"skep-consumer"
HEADER_BYTES = 200
"""A longer header counts as none."""
REMEMBERED = 4_096
"""How many normalised headers are cached: a consumer sends the same header with each pop."""

KEYS = ("name", "host", "version", "pid")
_PAIR = rb'[a-z]{1,20}="[A-Za-z0-9._~%-]*"'
_WHOLE = re.compile(rb"[ \t]*%b(?:[ \t]*,[ \t]*%b)*[ \t]*" % (_PAIR, _PAIR))
_PAIRS = re.compile(rb'([a-z]{1,20})="([A-Za-z0-9._~%-]*)"')


class ConsumerIdentity(Struct, frozen=True, order=True):
    """A consumer as its header names it: the worker's name, its host, the version of its client, its process id."""

    name: str | None = None
    host: str | None = None
    version: str | None = None
    pid: str | None = None


def said(header: bytes | None) -> str | None:
    """The normalised form of a header, to be kept; None when the header is missing or unreadable."""
    return None if header is None or len(header) > HEADER_BYTES else _said(header)


@lru_cache(REMEMBERED)
def _said(header: bytes) -> str | None:
    if _WHOLE.fullmatch(header) is None:
        return None
    found = {key.decode(): value for key, value in reversed(_PAIRS.findall(header))}
    values = {key: _shown(found[key].decode()) for key in KEYS if found.get(key)}
    return ", ".join(f'{key}="{quote(value, safe="")}"' for key, value in values.items()) or None


@lru_cache(REMEMBERED)
def consumer_of(kept: str) -> ConsumerIdentity:
    """The consumer that a normalised header names."""
    return ConsumerIdentity(**{
        key: _shown(value)
        for key, value in (pair.groups() for pair in re.finditer(r'([a-z]+)="([^"]*)"', kept))
        if key in KEYS
    })  # fmt: skip


def _shown(value: str) -> str:
    """A value that is safe to display: no character moves a terminal's cursor or turns the direction of writing."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in unquote(value, errors="replace"))
