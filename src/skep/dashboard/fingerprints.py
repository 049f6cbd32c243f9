"""Errors that are one and the same but for their details: numbers, ids, quoted texts and addresses do not count."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from skep.clock import Instant
from skep.model import DeadReason, Seq
from skep.model.history import Death

LOOKED_AT = 2_500
"""Dead letters that one look takes in: the newest of a queue, or of several together."""
REMEMBERED = 20_000
"""Errors whose pattern is remembered. They cover some looks, so that a page that refreshes itself computes none again."""
_CHARACTERS = 300
_DETAILS = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"'[^'\n]{1,200}'|\"[^\"\n]{1,200}\""), "<text>"),
    (re.compile(r"\b(?=\w*\d)[0-9a-fA-F]{12,}\b"), "<hex>"),
    (re.compile(r"[-+]?\d+(?:[.,:]\d+)*"), "<n>"),
)


class LetterKind(Struct, kw_only=True):
    """Dead letters of one queue that died of the same: their sign is what they are known by in a URL."""

    sign: str
    queue: str
    source_queue: str
    reason: DeadReason
    error: str
    example: str | None
    count: int = 0
    first_at: Instant
    last_at: Instant
    seqs: list[Seq]
    groups: set[str]


@lru_cache(maxsize=REMEMBERED)
def pattern_of(error: str | None) -> str:
    """An error without its details: its first line."""
    text = (error or "").strip().partition("\n")[0][:_CHARACTERS]
    for detail, name in _DETAILS:
        text = detail.sub(name, text)
    return text


@lru_cache(maxsize=4_096)
def sign_of(source_queue: str, reason: str, pattern: str) -> str:
    """A short name for a kind of death: its queue, reason and pattern."""
    return hashlib.sha256(f"{source_queue}\0{reason}\0{pattern}".encode()).hexdigest()[:16]


def kinds(queue: str, deaths: Iterable[Death]) -> list[LetterKind]:
    """Dead letters, newest first, put together by what they died of; the most frequent kind comes first."""
    found: dict[str, LetterKind] = {}
    for death in deaths:
        pattern = pattern_of(death.error)
        sign = sign_of(death.source_queue, death.reason, pattern)
        kind = found.get(sign)
        if kind is None:
            kind = found[sign] = LetterKind(
                sign=sign, queue=queue, source_queue=death.source_queue, reason=death.reason, error=pattern,
                example=death.error, first_at=death.failed_at, last_at=death.failed_at, seqs=[], groups=set(),
            )  # fmt: skip
        kind.count += 1
        kind.first_at = min(kind.first_at, death.failed_at)
        kind.last_at = max(kind.last_at, death.failed_at)
        kind.seqs.append(death.seq)
        kind.groups.add(death.group)
    return sorted(found.values(), key=lambda kind: (-kind.count, -kind.last_at))
