"""One case of the table of expressions, and the message that most of them read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ORDER_TYPES: Mapping[str, str] = {
    "id": "uuid",
    "name": "string",
    "count": "int",
    "big": "int",
    "price": "float",
    "paid": "bool",
    "state": "enum(open, closed)",
    "note": "string?",
    "tags": "list<string>",
    "numbers": "list<int>",
    "headers": "map<string, string>",
    "created_at": "time",
    "times": "list<time>",
    "payload": "json",
}
ORDER: Mapping[str, object] = {
    "id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d",
    "name": "Zoë 🐝",
    "count": 7,
    "big": 9223372036854775807,
    "price": 2.5,
    "paid": True,
    "state": "open",
    "tags": ["new", "vip"],
    "numbers": [3, 1, 2],
    "headers": {"x-kind": "alert", "x-empty": ""},
    "created_at": "2026-03-01T10:20:30.250Z",
    "times": ["2026-01-01T00:00:00Z", "2026-06-01T02:00:00+02:00"],
    "payload": {
        "title": "db down",
        "urgency": "high",
        "n": 3,
        "ratio": 0.5,
        "none": None,
        "yes": True,
        "items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}],
        "deep": {"er": {"est": "x"}},
        "in": "a word",
    },
}


class Case(NamedTuple):
    """One expression with what must come of it."""

    expression: str
    expected: object = None
    refused: str | None = None
    fails: str | None = None
    types: Mapping[str, str] = ORDER_TYPES
    message: Mapping[str, object] = ORDER
    reference: bool = True
    why: str = ""


def refused(expression: str, text: str, why: str = "") -> Case:
    return Case(expression, refused=text, reference=not why, why=why)


def fails(expression: str, text: str, why: str = "") -> Case:
    return Case(expression, fails=text, reference=not why, why=why)


def ours(expression: str, expected: object, why: str) -> Case:
    return Case(expression, expected, reference=False, why=why)
