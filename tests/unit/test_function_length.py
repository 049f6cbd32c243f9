"""A function fits a screen: without its signature and its docstring it has at most 60 lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "skep"
MOST_LINES = 60
LONGER = {"engine/engine.py __init__"}
"""Those that are still to be cut."""


def lengths(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file, and how many lines do its work."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            work = node.body[1:] if ast.get_docstring(node) else node.body
            end = node.end_lineno or node.lineno
            yield f"{path.relative_to(SOURCE).as_posix()} {node.name}", end - work[0].lineno + 1 if work else 0


def test_every_function_fits_a_screen() -> None:
    found = {name for path in SOURCE.rglob("*.py") for name, lines in lengths(path) if lines > MOST_LINES}

    assert found - LONGER == set()
