"""A new setting of a queue touches the files that CONTRIBUTING.md names, and no other."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from skep.model import QueueChanges, QueueSettings
from skep.model.queue_settings import SETTINGS, QueueOptions

ROOT = Path(__file__).resolve().parents[2]
TABLE = "src/skep/model/queue_settings.py"
PAGE = "docs/settings.md"
LISTED = len(SETTINGS) * 2 // 3
"""A file that names so many settings lists them, and would need a new one."""


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings", ROOT / "dev" / "settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")

    assert page == writer().with_table(page), "run python dev/settings.py"


def test_type_checkers_see_the_settings_of_the_table() -> None:
    assert QueueSettings.__struct_fields__ == QueueChanges.__struct_fields__ == tuple(SETTINGS)
    assert list(QueueOptions.__annotations__) == list(SETTINGS)


def test_no_other_file_lists_the_settings() -> None:
    files = [
        path for folder in ("src", "docs", "examples", "bench", "torture", "dev") for path in (ROOT / folder).rglob("*")
    ]
    texts = [path for path in files if path.suffix in (".py", ".sql", ".md", ".html", ".json", ".toml", ".skep")]
    lists = {path.relative_to(ROOT).as_posix() for path in texts if len(settings_in(path)) >= LISTED}

    old = {path for path in lists if "/migrations/0001_" in path}
    assert lists - old == {TABLE, PAGE}


def settings_in(path: Path) -> set[str]:
    words = set(re.findall(r"[a-z_]{4,}", path.read_text(encoding="utf-8")))
    return words & SETTINGS.keys()


def test_the_recipe_names_the_files_to_write() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipe = page.partition("## A new setting of a queue\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. `([^`]+)`", recipe, re.MULTILINE)

    assert steps == [
        TABLE,
        "src/skep/store/sqlite/migrations/NNNN_what_it_does.sql",
        "src/skep/store/postgres/migrations/NNNN_what_it_does.sql",
    ]
    assert "dev/settings.py" in recipe
    assert all((ROOT / step).parent.is_dir() for step in steps)
