"""The texts of errors are sentences for people: whole, in good English, and by the names that the reader knows."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from skep.errors import Code, SkepError, sentence
from skep.model.queue_settings import SETTINGS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "skep"
RAISED = ("SkepError", "Refusal")
VALUE = "…"
"""Stands for what is filled in."""
ALSO_HEARD_AT_HTTP = {
    "deliver_at",
    "trace_id",
    "master_keys",
    "answers_bytes",
    "trusted_proxies",
    "jwt_keys",
} | SETTINGS.keys()
"""Settings, and columns of an Arrow stream: they have one spelling everywhere."""
WRONG_ARTICLE = re.compile(r"\ba (?:[aeio](?!ne\b)|HTTP\b)|\ban (?:[bcdfgjkpqtvwxyz]|U[RU])", re.IGNORECASE)
SNAKE = re.compile(r"(?<![.\w])[a-z]+(?:_[a-z]+)+\b(?!\()")


def literal(node: ast.expr) -> str | None:
    """The text that an expression has in the code, if it has one."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in values)  # type: ignore[misc] # texts
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{literal(left) or VALUE}{literal(right) or VALUE}"
        case ast.IfExp(body=body):
            return literal(body)
    return None


@cache
def texts() -> list[tuple[str, str]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(code)) if any(f"{name}(" in code for name in RAISED) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISED:
                text = literal(node.args[1]) if len(node.args) > 1 else None
                if text and text.strip(VALUE):
                    found.append((f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}", text))
    return found


def test_there_are_texts() -> None:
    assert len(texts()) > 500


def test_every_text_is_a_sentence() -> None:
    shown = [(place, sentence(text)) for place, text in texts() if "\n" not in text]

    assert [one for one in shown if not one[1].endswith((".", "!", "?", "…"))] == []
    assert [one for one in shown if len(one[1].split()) < 3 and VALUE not in one[1]] == []
    assert [one for one in shown if "  " in one[1] or one[1].endswith((";.", ":.", ",."))] == []


def test_every_article_fits_its_noun() -> None:
    assert [one for one in texts() if WRONG_ARTICLE.search(one[1])] == []


def test_http_names_parameters_as_they_are_sent() -> None:
    at_http = [(place, text) for place, text in texts() if place.startswith(("http/", "wire/"))]
    found = [(place, name) for place, text in at_http for name in SNAKE.findall(text) if name not in ALSO_HEARD_AT_HTTP]

    assert at_http
    assert found == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("there is no queue 'q'", "There is no queue 'q'."),
        ("a seq is out of range; is it of this queue?", "A seq is out of range; is it of this queue?"),
        ("limit must be from 1 to 5", "limit must be from 1 to 5."),
        ("lease_seconds must be above 0", "lease_seconds must be above 0."),
        ("bufferMs must be from 0 to 5", "bufferMs must be from 0 to 5."),
        ("'after' and 'wait=true' go together", "'after' and 'wait=true' go together."),
        ("--once and --every exclude each other", "--once and --every exclude each other."),
        ("the spec is wrong:\n  line 1", "the spec is wrong:\n  line 1"),
        ("", ""),
    ],
)
def test_a_text_is_shown_as_a_sentence(text: str, shown: str) -> None:
    assert sentence(text) == sentence(sentence(text)) == shown
    assert SkepError(Code.INVALID_REQUEST, text).sentence == shown
