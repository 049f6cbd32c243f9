"""The map of the code is true: what it names is there, and nothing is loose at the package's root."""

from __future__ import annotations

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
