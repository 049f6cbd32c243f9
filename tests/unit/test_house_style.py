"""What the house style asks of every file, as far as a machine can tell: functions fit a screen, files have 600 lines at most, a class's
name is its own, and no comment is a banner.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "skep"
FOLDERS = ("src", "tests", "bench", "torture", "dev")
COMMENTED = {".py": "#", ".sql": "--", ".js": "//", ".java": "//", ".sh": "#"}
MOST_LINES = 60
"""Of a function, with its signature and its docstring."""
MOST_LINES_OF_A_FILE = 600


SAME_THING = {
    "App", "Breaker", "Buffer", "Database", "Family", "LetterSpot", "NewMessage", "Operation", "Part", "Queue", "QueueCalls", "Queued", "Retry", "Sampling", "SetRow",
    "Transaction",
}  # fmt: skip
"""Classes of one thing in several places: in both stores, or in the client and the server."""


def lengths(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file, and how many lines it has."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{path.relative_to(SOURCE).as_posix()} {node.name}", lines


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a node that has a body, at any depth. No function is in an expression."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, ())
        for one in inner if isinstance(inner, list) else ():
            yield one
            yield from statements(one)


def test_every_function_fits_a_screen() -> None:
    found = {name for path in SOURCE.rglob("*.py") for name, lines in lengths(path) if lines > MOST_LINES}

    assert found == set()


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    found = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.read_text(encoding="utf-8").count("\n") > MOST_LINES_OF_A_FILE
    ]

    assert found == []


def test_no_two_classes_have_the_same_name_for_different_things() -> None:
    classes = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]

    assert {name for name, count in Counter(classes).items() if count > 1} == SAME_THING


def test_the_name_of_a_test_says_what_it_tests_and_no_number_of_a_document() -> None:
    numbered = re.compile(r"def (test_\w*_0\d\d_\w*|test_\w*hole_\d\w*)")
    found = [
        name for path in (ROOT / "tests").rglob("*.py") for name in numbered.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_comment_is_a_banner() -> None:
    found = []
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in COMMENTED):
        banner = re.compile(rf"^\s*{COMMENTED[path.suffix]}\s*[-=*~#]{{3,}}", re.MULTILINE)
        if "vendor" not in path.parts and banner.search(path.read_text(encoding="utf-8")):
            found.append(path.relative_to(ROOT).as_posix())
    assert found == []
