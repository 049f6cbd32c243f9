"""Seqs as they are typed: `17 20-29`."""

from __future__ import annotations

from collections.abc import Sequence

from skep.errors import Code, SkepError


def one_or_range(text: str) -> int | tuple[int, int]:
    """A seq, or the first and the last of a range."""
    first, dash, last = text.partition("-")
    if not all(part.isascii() and part.isdecimal() for part in (first, last or first)) or (dash and not last):
        raise SkepError(Code.INVALID_REQUEST, f"{text!r} is neither a seq nor a range such as 20-29")
    return (int(first), int(last)) if dash else int(first)


def ranges(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Ranges in the order of their seqs, joined where they overlap."""
    found = [one_or_range(text) for text in texts]
    joined: list[tuple[int, int]] = []
    for first, last in sorted((one, one) if isinstance(one, int) else one for one in found):
        if first > last:
            raise SkepError(Code.INVALID_REQUEST, f"the range {first}-{last} ends before it begins")
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
