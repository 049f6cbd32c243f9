"""The map of the code is true: what it names is there, and nothing is loose at the package's root."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LOOSE = {"__init__.py", "__main__.py", "_lazy.py", "clock.py", "errors.py", "ids.py", "py.typed", "strict_json.py"}


def test_every_file_that_the_map_names_is_there() -> None:
    named = set(re.findall(r"`((?:src/skep|bench|tests)[\w/.]*)`", PAGE))
    assert len(named) > 50
    assert not sorted(name for name in named if not (ROOT / name).exists())


def test_the_map_names_every_package() -> None:
    packages = {one.name for one in (ROOT / "src/skep").iterdir() if (one / "__init__.py").exists()}
    assert not sorted(name for name in packages if f"`skep/{name}`" not in PAGE)


def test_nothing_is_loose_at_the_root() -> None:
    assert {one.name for one in (ROOT / "src/skep").iterdir() if one.is_file()} == LOOSE


def test_the_stores_have_the_same_files_for_the_same_verbs() -> None:
    rows = re.findall(r"`src/skep/store/sqlite/(\w+)\.py` \| `src/skep/store/postgres/(\w+)\.py`", PAGE)
    assert len(rows) > 10
    assert [row for row in rows if row[0] != row[1]] == []


def test_a_verb_is_the_same_function_of_the_same_file_in_both_stores() -> None:
    sqlite, postgres = functions_of("sqlite"), functions_of("postgres")
    assert len(sqlite) > 70
    assert sqlite == postgres


def functions_of(store: str) -> dict[str, str]:
    """What the table of a store says: the function of each verb, after its file."""
    tree = ast.parse((ROOT / f"src/skep/store/{store}/store.py").read_text(encoding="utf-8"))
    rows = [
        row for node in tree.body if isinstance(node, ast.ClassDef) for row in node.body if isinstance(row, ast.Assign)
    ]
    functions = [row.value.args[0] if isinstance(row.value, ast.Call) else row.value for row in rows]
    return {ast.unparse(row.targets[0]): ast.unparse(found) for row, found in zip(rows, functions, strict=True)}
