"""Duplicate keys and depth, against a plain reading of the same JSON by the standard library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skep.errors import Code, SkepError
from skep.strict_json import (
    LARGE_BYTES,
    LENGTHY_BYTES,
    LENGTHY_MARKS,
    QUICK_BYTES,
    check_depth_of_body,
    find_repeated_key,
    is_deeper,
    look_for_repeated_key,
    may_repeat_keys,
    read_json,
)

Draw = Callable[[st.SearchStrategy[str]], str]

# Letters that make the trick's life hard: what it counts, what may hide that, and what could be taken for structure.
TRICKY = st.sampled_from(["a", "b", '"', ":", '":', "\\", "[", "]", "{", "}", ",", " ", "\n", "é", "/", "\u2028", "😀"])
TEXTS = st.lists(TRICKY, max_size=4).map("".join)
SPACE = st.sampled_from(["", "", "", " ", "\n", "\t", "\r", "  \n"])


@st.composite
def written_text(draw: Draw, texts: st.SearchStrategy[str] = TEXTS) -> str:
    """A text as JSON, each character plain or escaped, as a strange writer might."""
    parts = []
    for character in draw(texts):
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        escaped = json.dumps(character)[1:-1]
        units = character.encode("utf-16-be").hex()
        code = "".join("\\u" + units[i : i + 4] for i in range(0, len(units), 4))
        parts.append(draw(st.sampled_from([plain, plain, escaped, code, code.upper().replace("\\U", "\\u")])))
    return '"' + "".join(parts) + '"'


@st.composite
def written_array(draw: Draw, values: st.SearchStrategy[str]) -> str:
    items = [draw(SPACE) + draw(values) + draw(SPACE) for _ in range(int(draw(st.sampled_from("0123"))))]
    return "[" + ",".join(items) + "]"


@st.composite
def written_object(draw: Draw, values: st.SearchStrategy[str]) -> str:
    pairs = [
        draw(SPACE) + draw(written_text()) + draw(SPACE) + ":" + draw(SPACE) + draw(values) + draw(SPACE)
        for _ in range(int(draw(st.sampled_from("01223"))))
    ]
    return "{" + ",".join(pairs) + "}"


SCALARS = st.sampled_from(["1", "-0.5e3", "true", "null", "1e999", "123456789012345678901234567890", "9" * 400])
JSON = st.recursive(
    SCALARS | written_text(), lambda values: written_array(values) | written_object(values), max_leaves=12
)


def repeats_keys(text: str) -> bool:
    """Whether some object has a key twice."""
    found = False

    def look(pairs: list[tuple[str, object]]) -> None:
        nonlocal found
        found = found or len({key for key, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=look)
    return found


def depth_of(text: str) -> int:
    """How deep a text is nested, read by the standard library."""

    def depth(value: object) -> int:
        if isinstance(value, dict):
            return 1 + max(map(depth, value.values()), default=0)
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    # A dropped duplicate may be the deepest, so every value is kept under a key of its own.
    return depth(json.loads(text, object_pairs_hook=lambda pairs: {n: value for n, (_, value) in enumerate(pairs)}))


async def check_keys(body: bytes) -> None:
    """The two looks, one after the other, as readers of bodies take them."""
    if may_repeat_keys(body):
        await look_for_repeated_key(body)


@given(JSON)
@example('{"a" :1,"a":2}')
@example('{"a":1,"\\u0061":2}')
@example('{"a":1,"a":"\\u0022:"}')
@example('{"a":1,"a":"\\"\\u003a"}')
@example('{"a":1,"a":"\\"\\u003A"}')
@example('{"a":{"b":1},"a":2}')
@example('{"a":1,"a\\u0000":2}')
@example('["\\\\":1]'.replace('"\\\\":1', '{"\\\\":1,"\\\\":2}'))
@example('{"é":1,"\\u00e9":2}')
@example('{"x\\":":1,"x\\":":2}')
@example('{"":1,"":2}')
async def test_a_key_given_twice_is_found_and_nothing_else_is(text: str) -> None:
    wrong = repeats_keys(text)
    body = text.encode()

    if wrong:
        assert may_repeat_keys(body)
        with pytest.raises(SkepError) as raised:
            await check_keys(body)
        assert raised.value.code is Code.MALFORMED
    else:
        await check_keys(body)
        find_repeated_key(body)


@given(JSON, st.integers(0, 6))
@example('["]]]]", ["[[[["]]', 2)
@example('["\\"]", "\\\\", ["\\\\\\"]"]]', 1)
@example("[[],[],[],[]]", 1)
@example('{"[": {"]": {}}}', 2)
def test_depth_is_that_of_the_structure_whatever_texts_contain(text: str, limit: int) -> None:
    assert is_deeper(text.encode(), limit) == (depth_of(text) > limit)


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True), JSON)
def test_the_common_case_is_decided_without_the_exact_look(keys: list[str], value: str) -> None:
    assume(not repeats_keys(value))
    compact = json.dumps([json.loads(value), dict.fromkeys(keys, 1)], separators=(",", ":"), ensure_ascii=False)
    assume("Infinity" not in compact and "9" * 100 not in compact and "\\u00" not in compact and " :" not in compact)
    assume(not any(space in compact for space in "\n\t\r"))

    assert not may_repeat_keys(compact.encode())


def test_what_is_not_sound_json_is_not_said_to_be() -> None:
    with pytest.raises(msgspec.DecodeError):
        may_repeat_keys(b'{"a":"\x01"}')


@pytest.mark.parametrize("padding", ["", "\\u0022", "x" * 2_000_000])
async def test_control_characters_are_found_whichever_look_is_taken(padding: str) -> None:
    body = json.dumps({"a": "?", "b": "PADDING"}).replace("?", "\x01").replace("PADDING", padding).encode()

    with pytest.raises((SkepError, msgspec.DecodeError)):
        await check_keys(body)


async def test_a_large_body_is_looked_at_exactly() -> None:
    filler = ",".join(f'"k{number}":"{"x" * 100}"' for number in range(12_000))
    good, bad = f"{{{filler}}}".encode(), f'{{{filler},"k7":1}}'.encode()

    await check_keys(good)
    with pytest.raises(SkepError, match="'k7' twice"):
        await check_keys(bad)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.MALFORMED),
        (b"{", Code.MALFORMED),
        (b'{"a": 1, "a": 2}', Code.MALFORMED),
        (b'"\xff"', Code.MALFORMED),
        (b"[1] x", Code.MALFORMED),
        (b"1e400", Code.INVALID_PAYLOAD),
        (b"[" * 9 + b"]" * 9, Code.INVALID_REQUEST),
        (b"[" * 5000, Code.INVALID_REQUEST),
    ],
)
async def test_what_readers_could_disagree_about_is_not_read(body: bytes, code: Code) -> None:
    with pytest.raises(SkepError) as refused:
        await read_json(body, 8)
    assert refused.value.code is code


async def test_what_is_read_is_what_the_body_says() -> None:
    assert await read_json(b'{"a": [1, 2.5, null, "\xc3\xa4"]}', 8) == {"a": [1, 2.5, None, "ä"]}
    assert await read_json(b'"' + b"x" * (LARGE_BYTES + 1) + b'"', 8) == "x" * (LARGE_BYTES + 1)


@pytest.mark.parametrize(
    ("body", "threads"),
    [
        pytest.param(json.dumps([{"queue": "q", "payload": {"a": "x" * 260}}] * 1_000).encode(), 0, id="push"),
        pytest.param(b"[" + b"[]," * (LENGTHY_MARKS // 2) + b"1]", 1, id="brackets"),
        pytest.param(b"[" + b'"x",' * (LENGTHY_MARKS // 2) + b"[]]", 1, id="quotes"),
        pytest.param(b'["' + b"\\\\" * (LENGTHY_MARKS // 2) + b'"]', 1, id="backslashes"),
        pytest.param(b'["' + b"x" * LENGTHY_BYTES + b'"]', 1, id="long"),
    ],
)
async def test_only_a_body_that_takes_long_is_checked_in_a_thread(
    body: bytes, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops = 0

    async def to_thread(work: Callable[..., object], *args: object) -> object:
        nonlocal hops
        hops += 1
        return work(*args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    assert json.loads(body)
    await check_depth_of_body(body, 100)
    assert hops == threads


async def test_the_depth_of_a_long_body_is_that_of_its_structure_though_some_is_escaped() -> None:
    flat = json.dumps(["\n", "[[[[[[", "x" * QUICK_BYTES]).encode()
    deep = json.dumps(["\n", "x" * QUICK_BYTES, [[[[]]]]]).encode()

    await check_depth_of_body(flat, 3)
    with pytest.raises(SkepError):
        await check_depth_of_body(deep, 3)
