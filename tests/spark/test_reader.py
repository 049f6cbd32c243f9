"""The reader of messages has what the evaluator has, or nothing: for messages with a few bytes changed, and in any session."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from pyspark.sql import SparkSession

from skep.spark.columns.reading import can_read
from skep.spark.jvm import JAR, READER_CLASS, READER_SETTING
from skep.spark.session import with_java
from skep.spec.ir import ExtraFields, Queue
from skep.spec.types import parse_field
from tests.spark.column_runs import by_columns, by_evaluator, same_json

TYPES = {
    "id": "uuid", "s": "string", "n": "int", "f": "float", "b": "bool", "at": "time", "e": "enum(open, closed) = open",
    "l": "list<list<string>>", "i": "list<int> = [1, 2]", "m": "map<string, string> = {\"k\": \"v\"}", "h": "map<string, json>",
    "j": "json", "o": "string?", "t": "list<time>", "d": "time = \"2026-01-01T00:00:00Z\"",
}  # fmt: skip
MESSAGE = {
    "id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", "s": "Zoë \" 🐝", "n": -12, "f": 2.5, "b": True, "at": "2026-01-31T00:00:00.5+01:00",
    "e": "closed", "l": [["a"], []], "i": [1, 2**63 - 1], "m": {"k": "v"}, "h": {"x": 1, "y": [1.5, None]},
    "j": {"t": [1, "x", {"u": 1.25e3}], "big": 2**64}, "o": None, "t": ["2026-01-01T00:00:00Z"],
}  # fmt: skip
BYTES = [bytes([one]) for one in b'"\\{}[],: 0159-+.eEntu\x00\x1f\x7f\x80\xc3\xff\n']
BYTES += [
    b'""',
    b"\\u00e9",
    b"\\ud83d",
    b"null",
    b"true",
    b"1e99",
    b"1e999",
    b"-0",
    b'"s":',
    b"\xed\xa0\x80",
    b"\xc0\x80",
]


def changed(count: int, seed: int) -> Iterator[bytes]:
    """A message with a few bytes taken away, put in, or replaced."""
    generator = random.Random(seed)
    whole = [
        msgspec.json.encode(MESSAGE),
        msgspec.json.format(msgspec.json.encode(MESSAGE)),
        msgspec.json.encode(dict(reversed(MESSAGE.items()))),
    ]
    yield from whole
    for _ in range(count):
        text = generator.choice(whole)
        for _ in range(generator.choice([1, 1, 1, 2])):
            start = generator.randrange(len(text))
            end = start + generator.choice([0, 1, 1, 2, 30])
            text = text[:start] + generator.choice([b"", *BYTES]) + text[end:]
        yield text


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("extra", ExtraFields)
def test_a_few_bytes_change_nothing_but_what_they_mean(spark: SparkSession, extra: ExtraFields, count: int) -> None:
    queue = Queue(message_type={name: parse_field(text) for name, text in TYPES.items()}, extra_fields=extra)
    assert can_read(queue)
    payloads = list(changed(count, seed=count))
    results = by_columns(spark, queue, list(TYPES), payloads)
    assert set(results) == set(TYPES)
    read = [index for index in range(len(payloads)) if results["n"][index] is not None]
    assert {0, 1, 2} <= set(read)
    assert len(read) > count / 40
    for name in TYPES:
        evaluated = by_evaluator(queue, name)
        for index in read:
            expected, found = evaluated(payloads[index]), results[name][index]
            assert expected is not None, payloads[index]
            assert found is None or same_json(found, expected), (name, payloads[index])


def test_what_it_cannot_read_is_known_before() -> None:
    for text in ("list<int?>", "map<uuid, string>", "map<string, int?>"):
        assert not can_read(Queue(message_type={"x": parse_field(text)})), text
    assert not can_read(Queue())


def test_a_session_gets_it_beside_jars_of_its_own() -> None:
    local = with_java("local[2]", {"spark.driver.extraClassPath": "/a.jar"})
    assert local["spark.driver.extraClassPath"] == f"/a.jar:{JAR}"
    assert local[READER_SETTING] == READER_CLASS
    assert with_java("spark://somewhere:7077", {})["spark.jars"] == str(JAR)
