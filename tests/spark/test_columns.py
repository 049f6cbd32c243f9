"""A column has the evaluator's value or none: for the table that the worker is held to, and for random expressions and messages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import re2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from skep.spark.columns.cost import reach
from skep.spark.columns.patterns import to_java
from skep.spec import compile_expression
from skep.spec.ir import ExtraFields, Queue
from skep.spec.types import INT, JSON, STRING, list_of, parse_field
from tests.spark.column_runs import by_columns, by_evaluator, compiled, same_json
from tests.spec.case import ORDER, ORDER_TYPES, Case
from tests.spec.expression_cases import CASES
from tests.spec.generated import expressions

PART = 5
"""Of so many cases of the table, columns are held to one by default."""

QUEUE = Queue(message_type={name: parse_field(text) for name, text in ORDER_TYPES.items()})

LEFT_TO_THE_EVALUATOR = {
    "1.0 / 0.0 > 5.0": "a division by zero is infinite, and Spark has no such number",
    "[dyn(1), 'a'] == [dyn(1.0), 'a']": "Spark does not see that 1 and 1.0 are equal inside of a mixture",
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('^(a+)+$')": "Java would take for ever",
    "[7, 8, 9][dyn(0.0)]": "an index that is a whole double is rare",
    "numbers[dyn(2.0)]": "the same",
    "payload.items[payload.at].sku": "the same",
    "created_at.getHours('Europe/Berlin')": "Java may have other rules for a zone with a name",
    "times[1].getHours('Europe/Berlin')": "the same",
    "created_at.getDate('Pacific/Kiritimati')": "the same",
    "created_at.getMinutes('Asia/Kathmandu')": "the same",
    "timestamp('1800-06-01T00:00:00Z').getMinutes('Europe/Berlin')": "the same",
    "created_at.getHours(payload.zone)": "the zone comes with the message",
    "'abc'.replace('', '+', 2)": "nothing is replaced, which is rare",
    "'aéb'.replace('', '+')": "the same",
    "'aé🐝'.split('', 2)": "a text is rarely divided after so many characters",
    "'aé🐝'.split('', 3)": "the same",
    "[" * 32 + "7" + "]" * 32 + "[0]" * 32: "a column's text could double with each level",
    "{'a': " * 32 + "7" + "}" * 32 + ".a" * 32: "the same",
    "numbers.map(n, " + "[" * 31 + "n" + "]" * 31 + "[0]" * 31 + ")": "the same",
}
"""All of the table that columns have no value for though there is one."""


@pytest.mark.parametrize("reader", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_columns_have_the_values_of_the_table(spark: SparkSession, reader: bool) -> None:
    _hold_to_table(spark, CASES, reader)


def test_columns_have_the_values_of_a_part_of_the_table(spark: SparkSession) -> None:
    _hold_to_table(spark, CASES[::PART], reader=True)


def _hold_to_table(spark: SparkSession, table: Sequence[Case], reader: bool) -> None:
    cases = [(case.expression, msgspec.json.encode(case.message).decode()) for case in table if case.refused is None]
    payloads = sorted({payload for _, payload in cases})
    results = by_columns(spark, QUEUE, sorted({text for text, _ in cases}), payloads, reader=reader)
    _compare(QUEUE, results, payloads)
    missing = [
        text
        for text, payload in cases
        if text not in results or results[text][payloads.index(payload)] is None
        if by_evaluator(QUEUE, text)(payload) is not None
    ]
    assert set(missing) == LEFT_TO_THE_EVALUATOR.keys() & {text for text, _ in cases}


@pytest.mark.slow
@pytest.mark.parametrize("reader", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [20, pytest.param(240, marks=pytest.mark.slow)])
def test_random_expressions_over_random_messages(spark: SparkSession, count: int, reader: bool) -> None:
    drawn = _drawn(count, seed=20261115)
    payloads = [msgspec.json.encode(ORDER).decode(), *_payloads(count, seed=5)]
    results = by_columns(spark, QUEUE, drawn, payloads, reader=reader)
    with_values = _compare(QUEUE, results, payloads)
    assert with_values > len(results) * len(payloads) / 8


@pytest.mark.slow
def test_what_spark_makes_java_of_is_the_same(spark: SparkSession) -> None:
    drawn = ["has(payload.title) ? payload.title : ''", *_drawn(8, seed=7, of_two=False)]
    payloads = [msgspec.json.encode(ORDER).decode(), *_payloads(10, seed=6)]
    with compiled(spark):
        results = by_columns(spark, QUEUE, drawn, payloads)
    assert _compare(QUEUE, results, payloads) > len(payloads)


def test_messages_without_a_type(spark: SparkSession) -> None:
    texts = [
        "message", "message.a", "message.a + message.b", "message.a == message.b", "message.a < message.b", "message.list[0]",
        "message.list.map(x, x)", "message.list.exists(x, x == message.a)", "has(message.a) ? message.a : 'none'",
        "message.a in message.list", "size(message.list)", "string(message.a)", "int(message.a)", "double(message.b)",
        "message.o.exists(k, k == 'x')", "message.o.map(k, k)", "message['a'] == 'x'", "message.a == null", "message.a == 1",
        "message.a && message.b", "message.a ? 1 : 2", "-message.a", "message.o == {'x': 1}", "message.list == [1, 2]",
        "message.list + message.list", "[message.a, message.b]", "{'k': message.a}", "message.a.startsWith('a')",
    ]  # fmt: skip
    generator = random.Random(11)
    payloads = [_odd_payload(generator) for _ in range(150)]
    queue = Queue()
    results = by_columns(spark, queue, texts, payloads)
    assert set(results) == set(texts)
    assert _compare(queue, results, payloads) > 300


def _compare(queue: Queue, results: dict[str, list[str | None]], payloads: list[str]) -> int:
    """Hold all that columns had a value for to the evaluator; returns how many that were."""
    with_values = 0
    for text, found in results.items():
        evaluated = by_evaluator(queue, text)
        for payload, value in zip(payloads, found, strict=True):
            if value is None:
                continue
            with_values += 1
            expected = evaluated(payload)
            assert expected is not None, f"{text} has no value for {payload}, and columns have {value}"
            assert same_json(value, expected), f"{text} for {payload}: {value}, not {expected}"
    return with_values


def _drawn(count: int, seed: int, *, of_two: bool = True) -> list[str]:
    """Some expressions out of the generator that the evaluator is tested with."""
    found: list[str] = []

    @settings(max_examples=count * 3, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(expressions(3, of_two=of_two))
    def collect(text: str) -> None:
        try:
            compile_expression(text, {name: field.type for name, field in QUEUE.message_type.items()})
        except Exception:
            return
        found.append(text)

    collect()
    unique = sorted(set(found))
    random.Random(seed).shuffle(unique)
    return unique[:count]


_TEXTS = [
    "",
    "a",
    "Zoë",
    "12",
    "-3",
    "1.5",
    "true",
    'x"y\\z\n',
    "🐝",
    "2026-01-01T00:00:00Z",
    "  pad\u2003",
    "null",
    "{",
    "[1]",
]
_INTS = [0, 1, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63), 100]
_FLOATS = [0.0, -0.0, 0.5, 1.0, 2.5, 1e16, 1e-7, -3.25, 123456.789, 1e300]


def _payloads(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [_payload(generator) for _ in range(count)]


def _payload(generator: random.Random) -> str:
    one = generator.choice
    message: dict[str, Any] = {
        **ORDER, "name": one(_TEXTS), "count": one(_INTS), "big": one(_INTS), "price": one([*_FLOATS, *_INTS]),
        "paid": one([True, False]), "state": one(["open", "closed"]), "tags": [one(_TEXTS) for _ in range(generator.randrange(4))],
        "numbers": [one(_INTS) for _ in range(generator.randrange(4))],
        "headers": {one(["x-kind", "a", "b"]): one(_TEXTS) for _ in range(2)},
        "created_at": one(["2026-03-01T10:20:30.25Z", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2024-02-29T12:00:00+05:30"]),
        "payload": {"title": one(_TEXTS), "n": one([*_INTS, *_FLOATS, "3", None]), "ratio": one(_FLOATS), "yes": one([True, 1, "true"])},
    }  # fmt: skip
    if generator.random() < 0.5:
        message["note"] = one([None, *_TEXTS])
    return msgspec.json.encode(message).decode()


def _odd_payload(generator: random.Random) -> str:
    def value(depth: int) -> Any:
        kind = generator.randrange(9 if depth else 6)
        if kind < 6:
            return generator.choice(
                [generator.choice(_TEXTS), generator.choice(_INTS), generator.choice(_FLOATS), None, True, False]
            )
        if kind < 8:
            return [value(depth - 1) for _ in range(generator.randrange(3))]
        return {generator.choice(["x", "y z", "é", "x'"]): value(depth - 1) for _ in range(generator.randrange(3))}

    message = {name: value(2) for name in ("a", "b") if generator.random() < 0.9}
    message["list"] = generator.choice([[1, 2], [1, 2.0], [], ["a"], value(2), [value(1), value(1)]])
    message["o"] = generator.choice([{"x": 1}, {"x": 1.0}, {}, value(2)])
    if generator.random() < 0.1:
        return generator.choice(
            ['{"a": 1, "a": 2}', "[1]", "", "{", '{"a": 1} 2', "5", '{"a": 1e400}', '{"a":"\\ud800"}', "null"]
        )
    return msgspec.json.encode(message).decode()


GOOD: dict[str, Any] = {"id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", "s": "x", "n": 1, "f": 2.5, "b": True, "at": "2026-01-01T00:00:00Z", "l": ["a"], "m": {"k": "v"}, "j": {"t": 1}}  # fmt: skip
TYPES = {
    "id": "uuid", "s": "string", "n": "int", "f": "float", "b": "bool", "at": "time", "e": "enum(open, closed) = open",
    "l": "list<string>", "m": "map<string, string>", "j": "json", "o": "string?", "d": "int = 5", "od": "int? = 7",
}  # fmt: skip
FIELDS = {name: parse_field(text) for name, text in TYPES.items()}


def _with(**changes: Any) -> str:
    return msgspec.json.encode({name: value for name, value in (GOOD | changes).items() if value is not ...}).decode()


ODD = [
    _with(), _with(s="5"), _with(s=5), _with(s="true"), _with(s=True), _with(s=None), _with(s=...), _with(s={"a": 1}), _with(s="{"),
    _with(n="1"), _with(n=1.0), _with(n=2**63), _with(n=None), _with(f=1), _with(f="1"), _with(f=-0.0), _with(b="true"), _with(b=1),
    _with(at="noon"), _with(at="2026-01-01T00:00:00"), _with(at="2026-02-30T00:00:00Z"), _with(at="2026-01-01t00:00:00z"),
    _with(id="x"), _with(id="0190A7C49D7E7A3B8A440F0E6C5B1A2D"), _with(e="closed"), _with(e="shut"), _with(e=None),
    _with(l=["a", 2]), _with(l=["5"]), _with(l=[None]), _with(l={}), _with(l=[]), _with(m={"k": 1}), _with(m={"k": "5"}), _with(m=[]),
    _with(j=None), _with(j=...), _with(j="text"), _with(j=[1.0, {"s": 2}]), _with(o=None), _with(o="x"), _with(o=5),
    _with(d=6), _with(d=None), _with(od=None), _with(od=1), _with(extra=1), _with(j={"extra": 1}, o=None),
    _with(j={"o": 1}, extra=2), _with(s='a": b'), _with(s="\\"), _with(extra=1, s='a": b'), _with().replace('"s":', '"s" :'),
    _with(extra=1).replace('"extra":', '"extra" :'), _with().replace(",", " ,\n").replace(":", ": "), _with() + " ", _with() + "}",
    _with() + _with(), _with() + ',"skep:end":7}', _with().replace('"n":1', '"n":null,"n":1'), _with().replace('"s":"x"', '"s":5,"s":"x"'),
    _with().replace('"s"', '"\\u0073"', 1), _with(s="\ud83d\udc1d".encode("utf-16", "surrogatepass").decode("utf-16")),
    _with(s="?").replace("?", "\\ud800"), _with(s="?").replace("?", "\\ud83d\\udc1d"), _with(s="?").replace('"?"', "'x'"),
    _with(f="?").replace('"?"', "1e400"), _with(j="?").replace('"?"', "1e400"), _with(f="?").replace('"?"', "NaN"),
    _with(n="?").replace('"?"', "01"), _with(j="?").replace('"?"', "[" * 990 + "]" * 990), "", "null", "[]", "{}", "nul", "\ufeff" + _with(),
]  # fmt: skip


@pytest.mark.parametrize("reader", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("extra", ExtraFields)
def test_what_does_not_fit_its_type_is_never_let_through(spark: SparkSession, extra: ExtraFields, reader: bool) -> None:
    queue = Queue(message_type=FIELDS, extra_fields=extra)
    texts = ["s", "n", "f", "at", "e", "l", "m", "j", "o", "d", "od", "id"]
    results = by_columns(spark, queue, texts, ODD, reader=reader)
    assert set(results) == set(texts)
    _compare(queue, results, ODD)
    # The plain ones are not left to the evaluator.
    sure = [
        _with(),
        _with(s="5"),
        _with(e="closed"),
        _with(o=None),
        _with(d=6),
        _with(l=[]),
        _with(m={"k": "5"}),
        _with(s='a": b'),
    ]
    assert [payload for payload in sure if results["n"][ODD.index(payload)] is None] == []


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        ("^Z.*$", r"(?d)\AZ.*\z"), ("a|b", "(?d)a|b"), (r"\d{2,3}-x?", r"(?d)[0-9]{2,3}\-x?"), ("[a-z_]+", r"(?d)[a-z_]+"),
        ("(ab)?c", "(?d)(?:ab)?c"), (r"[^\s]", r"(?d)[^\t\n\f\r ]"), ("é🐝", "(?d)é🐝"),
    ],
)  # fmt: skip
def test_patterns_that_java_has_too(pattern: str, java: str) -> None:
    found = to_java(pattern)
    assert found is not None
    assert found.text == java


@pytest.mark.parametrize(
    "pattern", ["(a+)+", r"\bword\b", "(?i)a", r"\pL", "a*?", "(a|b)*", "[[:alpha:]]", r"\Qa\E", "a*b*c*d*"]
)
def test_patterns_that_are_left_to_re2(pattern: str) -> None:
    re2.compile(pattern)
    assert to_java(pattern) is None


@settings(max_examples=200)
@given(st.text(alphabet="ab.*+?|()[]^$\\d-{}1,é\n", max_size=12))
def test_no_pattern_makes_the_translation_fail(pattern: str) -> None:
    to_java(pattern)


def test_patterns_match_alike(spark: SparkSession) -> None:
    patterns = [r"^[a-z]+$", "a.c", r"\d+", "^$", "x|y", r"\s", r"[^a-c]", "é", r"\w-\w", "a{2}", r"\.", "end$"]
    texts = [
        "",
        "abc",
        "a\nc",
        "a\rc",
        "12",
        "x",
        " ",
        "\x0b",
        "\u2028",
        "é",
        "a-b",
        "aa",
        ".",
        "the end",
        "the end\n",
        "ABC",
    ]
    queue = Queue(message_type={"s": parse_field("string")})
    payloads = [msgspec.json.encode({"s": text}).decode() for text in texts]
    expressions_ = [f"s.matches(r'{pattern}')" for pattern in patterns]
    results = by_columns(spark, queue, expressions_, payloads)
    assert _compare(queue, results, payloads) == len(patterns) * len(texts)


def test_an_expression_has_its_reach() -> None:
    variables = {"numbers": list_of(INT), "name": STRING, "payload": JSON}
    lengths = {
        text: reach(compile_expression(text, variables).tree).length
        for text in (
            "name + '!'",
            "numbers.all(n, n > 0)",
            "payload.items.all(i, payload.items.all(j, i == j))",
            "numbers.map(a, numbers.map(b, numbers.map(c, a + b + c)))",
        )
    }
    ordered = list(lengths.values())
    assert ordered[0] > 100_000
    assert ordered[1] >= 16_384
    assert ordered == sorted(ordered, reverse=True)
