"""Processes that tests fork have imported what they need before they begin."""

from __future__ import annotations

from pathlib import Path

from tests.support.forked import FORKED, MODULES

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "torture", "bench")


def test_a_forked_process_begins_with_all_modules_of_the_list() -> None:
    asking = f"import sys; sys.exit(sorted(set({MODULES}) - sys.modules.keys()) or 0)"
    process = FORKED.Process(target=exec, args=(asking,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_nobody_else_has_a_list() -> None:
    named = "set_forkserver_" + "preload"
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = [path.name for path in files if named in path.read_text(encoding="utf-8")]
    assert found == ["forked.py"]
