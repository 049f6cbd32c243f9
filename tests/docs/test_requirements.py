"""Requirements name tests that are there, and nothing in the repository refers to documents outside of it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_docs import ROOT, name_of

PAGE = (ROOT / "docs/requirements.md").read_text(encoding="utf-8")
NAMED = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)
FOLDERS = ("src", "tests", "docs", "bench", "torture", "dev", "examples")
TEXTS = (".py", ".md", ".sql", ".html", ".js", ".java", ".skep", ".sh", ".toml")
OUTSIDE = [
    re.compile(pattern)
    for pattern in (
        r"seed 0\d\d",
        r"issue \d",
        r"[(, ]00\d\.\d{1,2}[,)]",
        r"def test_(?![1-5]\d\d_)(?:\d+_|[a-hj-z]\d+_)",
    )
]
"""Numbers of requirements, issues and acceptance criteria, in small letters. A test may begin with a status of HTTP, or with a promise."""


def texts() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    return [*ROOT.glob("*.md"), *(path for path in found if path != Path(__file__) and "vendor" not in path.parts)]


def test_every_requirement_has_tests_that_are_there() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| requirement")]

    assert len(rows) > 25
    assert [row for row in rows if "[`test_" not in row] == []
    assert [
        (name, file) for name, file in NAMED if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ] == []


def test_nothing_refers_to_documents_outside_the_repository() -> None:
    small = {name_of(path): path.read_text(encoding="utf-8").lower() for path in texts()}
    found = [(name, match) for name, text in small.items() for outside in OUTSIDE for match in outside.findall(text)]

    assert found == []
