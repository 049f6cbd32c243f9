"""JSON that readers could disagree about: keys given twice, and nesting that only some can follow.

Decoders keep the last of two equal keys or the first, and some pass both on, so a body with such keys may mean one thing to
us and another to who pops it. Looking for them must cost little, so the common case is decided in C: decoding a body and
encoding it again drops exactly the keys that were given twice. When the same bytes come back, as they do of compact JSON, there
were none; else the pairs of quote and colon can be counted in both. The exact look, in Python, is for bodies where the counts
differ or something may hide a difference.
"""

from __future__ import annotations

import asyncio
import json
import re

import msgspec

from skep.errors import Code, SkepError

QUOTE_COLON = b'":'
LARGE_BYTES = 1024 * 1024
"""Beyond this only the exact look is taken: it is slower, and holds next to nothing of the body in memory."""
SMALL_BYTES = 64 * 1024
"""Up to this the exact look is taken at once, beyond it in a thread, so that other requests go on."""
QUICK_BYTES = 16 * 1024
"""Up to this the depth can be checked at once, whatever the body holds."""
LENGTHY_BYTES = 320 * 1024
"""Beyond this the depth is checked in a thread."""
LENGTHY_MARKS = 24_000
"""The same for brackets, quotes and backslashes: they take long, and all other bytes next to nothing."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')
# A quote or a colon that is written as an escape comes back as itself, and could make up for a key that was dropped.
_ESCAPED = re.compile(rb"\\u00(?:22|3[aA])")
_BRACKETS = b"[]{}"
_OTHERS = bytes(byte for byte in range(256) if byte not in _BRACKETS + b'"')
_NO_MARKS = _OTHERS.replace(b"\\", b"")
_ALIKE = bytes.maketrans(b"[]", b"{}")


def why_no_json(error: Exception) -> str:
    """What a reader of JSON complained about, as the rest of a sentence. It names a place and no value."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    text = str(error).removeprefix("JSON is malformed: ")
    return text[:1].lower() + text[1:]


async def read_json(body: bytes, depth: int) -> object:
    """What a body says, if it is JSON that no two readers could disagree about and is not nested deeper than ``depth``."""
    try:
        value = _decode(body)
    except msgspec.ValidationError as error:
        raise SkepError(Code.INVALID_PAYLOAD, f"the body has a number that is too large: {error}") from None
    except RecursionError:
        raise _too_deep(depth) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SkepError(Code.MALFORMED, f"the body is not JSON: {why_no_json(error)}") from None
    if may_repeat_keys(body, value):
        await look_for_repeated_key(body)
    await check_depth_of_body(body, depth)
    return value


async def look_for_repeated_key(body: bytes) -> None:
    """`find_repeated_key`, in a thread where it takes long."""
    if len(body) > SMALL_BYTES:
        await asyncio.to_thread(find_repeated_key, body)
    else:
        find_repeated_key(body)


async def check_depth_of_body(body: bytes, limit: int, levels_above: int = 0) -> None:
    """`check_depth`, in a thread where it takes long. Up to `QUICK_BYTES` it never does."""
    if len(body) > LENGTHY_BYTES:
        await asyncio.to_thread(check_depth, body, limit, levels_above)
        return
    marks = body.translate(None, _NO_MARKS)
    if len(marks) > LENGTHY_MARKS:
        await asyncio.to_thread(check_depth, body, limit, levels_above)
        return
    if b"\\" not in marks:  # nothing is escaped, and then these tell it all
        body = marks
    check_depth(body, limit, levels_above)


def check_depth(text: bytes, limit: int, levels_above: int = 0) -> None:
    """INVALID_REQUEST when sound JSON is nested deeper than the limit, not counting so many levels around it."""
    if is_deeper(text, limit + levels_above):
        raise _too_deep(limit)


def _too_deep(limit: int) -> SkepError:
    return SkepError(
        Code.INVALID_REQUEST, f"JSON may be nested {limit} levels deep, and this is nested deeper", limit=limit
    )


class DuplicateKey(Exception):  # noqa: N818 - what was found, not what went wrong
    """A key that an object has twice."""


def may_repeat_keys(body: bytes, value: object = msgspec.UNSET) -> bool:
    """Whether a body of sound JSON might give a key twice in one object; False is certain. A large body might.

    It raises what the decoder does when the body is not sound after all. Who has decoded it gives the ``value``.
    """
    if len(body) > LARGE_BYTES:
        return True
    try:
        again = _encode(_decode(body) if value is msgspec.UNSET else value)
    except msgspec.ValidationError:
        return True  # a number that is too large for us may be right for others
    if again == body:
        return False
    if b"\\u00" in body and _ESCAPED.search(body) is not None:
        return True
    if _has_spaced_colon(body):
        # Inside a text this makes a pair that the encoded one lacks: one look too many, and never one too few.
        body = _SPACED_COLON.sub(QUOTE_COLON, body)
    return body.count(QUOTE_COLON) != again.count(QUOTE_COLON)


def _has_spaced_colon(body: bytes) -> bool:
    """Whether whitespace stands before some colon. Compact JSON has no other whitespace than spaces in texts."""
    return (
        b" :" in body
        or (b"\n" in body and b"\n:" in body)
        or (b"\t" in body and b"\t:" in body)
        or (b"\r" in body and b"\r:" in body)
    )


def find_repeated_key(body: bytes) -> None:
    """The exact look; MALFORMED when an object has a key twice, or a text what none may have."""
    try:
        json.loads(body, object_pairs_hook=_unique, parse_int=str, parse_float=str)
    except DuplicateKey as error:
        raise SkepError(Code.MALFORMED, f"an object has the key {str(error)[:100]!r} twice") from None
    except ValueError as error:
        # Who skips over raw parts does not see the control characters in their texts.
        raise SkepError(Code.MALFORMED, f"the body is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(key)
            seen.add(key)


def is_deeper(text: bytes, limit: int) -> bool:
    """Whether sound JSON is nested deeper than the limit. It takes one pass, however deep it is."""
    if len(text) <= 2 * limit:
        return False
    # To drop all other bytes takes less time than to count two of them.
    marks = text.translate(None, _OTHERS)
    if marks.count(b"{") + marks.count(b"[") <= limit:
        return False
    if b"\\" in text:
        # What is escaped is inside a text. Backslashes pair up from the left, so the quotes that are left end texts.
        marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    # Quotes pair up from the left as well. What is left between two of them, once all else is gone, are brackets in a text.
    brackets = marks.replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(marks.split(b'"')[::2])
    # Each round takes away all brackets that have nothing in them, so there are as many rounds as levels.
    left = brackets.translate(_ALIKE)
    for _ in range(limit):
        if not left:
            return False
        left = left.replace(b"{}", b"")
    return bool(left)
