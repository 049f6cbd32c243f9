"""Who consumes: what a client says of itself with each pop, in the header `Skep-Consumer`.

    Skep-Consumer: name="mailer", host="web-3", version="0.9.0", pid="4711"

Each value is percent-encoded UTF-8 in quotes, and each may be missing. What was said is kept with the lease as it was said, in its
plainest form, and taken apart where people look. It proves nothing and decides nothing, so a header that cannot be read counts as none.
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
"""Headers whose plain form is remembered: a consumer sends the same with each pop."""

KEYS = ("name", "host", "version", "pid")
_PAIR = rb'[a-z]{1,20}="[A-Za-z0-9._~%-]*"'
_WHOLE = re.compile(rb"[ \t]*%b(?:[ \t]*,[ \t]*%b)*[ \t]*" % (_PAIR, _PAIR))
_PAIRS = re.compile(rb'([a-z]{1,20})="([A-Za-z0-9._~%-]*)"')


class Consumer(Struct, frozen=True, order=True):
    """Who consumes, as far as it said so: the worker's name, its host, the version of its client, its process id."""

    name: str | None = None
    host: str | None = None
    version: str | None = None
    pid: str | None = None


def said(header: bytes | None) -> str | None:
    """The plainest form of a header, to be kept; None when there is none, or none that can be read."""
    return None if header is None or len(header) > HEADER_BYTES else _said(header)


@lru_cache(REMEMBERED)
def _said(header: bytes) -> str | None:
    if _WHOLE.fullmatch(header) is None:
        return None
    found = {key.decode(): value for key, value in reversed(_PAIRS.findall(header))}
    values = {key: _shown(found[key].decode()) for key in KEYS if found.get(key)}
    return ", ".join(f'{key}="{quote(value, safe="")}"' for key, value in values.items()) or None


@lru_cache(REMEMBERED)
def consumer_of(kept: str) -> Consumer:
    """What was kept, taken apart."""
    return Consumer(**{
        key: _shown(value)
        for key, value in (pair.groups() for pair in re.finditer(r'([a-z]+)="([^"]*)"', kept))
        if key in KEYS
    })  # fmt: skip


def _shown(value: str) -> str:
    """A value as people may see it: nothing in it moves a terminal's cursor or turns the direction of writing."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in unquote(value, errors="replace"))
