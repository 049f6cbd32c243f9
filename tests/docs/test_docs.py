"""The documentation holds what it says: samples run as printed, links resolve, nothing that exists is left out."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App
from msgspec import Struct

from skep.cli.app import app as skep_app
from skep.config import (
    AccessSettings,
    AdmissionSettings,
    BufferSettings,
    EncryptionSettings,
    EngineSettings,
    HttpLimits,
    Limits,
    OperationSettings,
    ServerSettings,
    SpoolSettings,
    TelemetrySettings,
)
from skep.config.load import SECTIONS, load
from skep.errors import Code
from skep.model import QueueSettings
from skep.spark.running.catalogue import PIPELINES, Pipeline
from tests.support.process import SCRIPT, run_skep

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PROMISES = [f"I{number}" for number in range(1, 16)]
SAMPLE_SECONDS = 60
SETTINGS = (
    QueueSettings,
    ServerSettings,
    EngineSettings,
    AdmissionSettings,
    OperationSettings,
    SpoolSettings,
    BufferSettings,
    EncryptionSettings,
    Limits,
    HttpLimits,
    AccessSettings,
    TelemetrySettings,
)

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_no_page_installs_what_pypi_has_under_our_name() -> None:
    """Skep is not released, and `skep` on PyPI is a stranger's: an extra is added to an install from a clone."""
    by_name = re.compile(r"pip install (?:-\S+ )*['\"]?skep\b")
    found = {name_of(page): len(by_name.findall(page.read_text(encoding="utf-8"))) for page in PAGES}

    assert {page: count for page, count in found.items() if count} == {"README.md": 1}  # which says where that works


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return [(match[1], match[2]) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def samples() -> list[tuple[str, str, str]]:
    """Every Python sample of every page, with the output that the block after it shows."""
    found = []
    for page in PAGES:
        all_blocks = blocks(page)
        for number, (language, text) in enumerate(all_blocks):
            if language == "python":
                following = all_blocks[number + 1] if number + 1 < len(all_blocks) else ("", "")
                assert following[0] == "text", f"{name_of(page)}: a sample is followed by what it prints"
                found.append((f"{name_of(page)}-{number}", text, following[1]))
    return found


def prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """What a link may point at within a page, by the rules of GitHub."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {heading.strip().replace(" ", "-") for heading in kept}


def rows(page: str) -> set[str]:
    """The names that start a table row of a page, as code."""
    return set(re.findall(r"^\| `(\w+)`", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


SAMPLES = samples()


def test_the_first_sample_of_the_readme_runs_in_a_new_interpreter(tmp_path: Path) -> None:
    """All samples run as scripts of a process that has imported Skep. This one imports it, and warnings are errors."""
    text, printed = next(sample[1:] for sample in SAMPLES if sample[0].startswith("README.md"))
    (tmp_path / "sample.py").write_text(text, encoding="utf-8")
    run = subprocess.run(
        [*SCRIPT, "sample.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=SAMPLE_SECONDS,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == printed


@pytest.mark.parametrize(("text", "printed"), [sample[1:] for sample in SAMPLES], ids=[sample[0] for sample in SAMPLES])
def test_a_sample_runs_as_printed(text: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(text, encoding="utf-8")
    lean = "-p no:schemathesis -p no:hypothesispytest --assert=plain"  # those take long to import, and all of Skep to rewrite
    environ = {**os.environ, "PYTEST_ADDOPTS": lean}
    run = run_skep("sample.py", is_script=True, cwd=tmp_path, env=environ, encoding="utf-8", timeout=SAMPLE_SECONDS)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == printed


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_resolves(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(file), f"{target}: there is no such heading"


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_is_documented(settings: type[Struct]) -> None:
    assert set(settings.__struct_fields__) - SECTIONS.keys() <= rows("docs/settings.md")


def test_no_setting_is_documented_that_is_not_there() -> None:
    fields = {name for kind in SETTINGS for name in kind.__struct_fields__}
    assert rows("docs/settings.md") <= fields


def test_the_sample_of_a_file_of_settings_can_be_loaded(tmp_path: Path) -> None:
    [text] = [text for language, text in blocks(ROOT / "docs/settings.md") if language == "toml"]
    (tmp_path / "skep.toml").write_text(text, encoding="utf-8")
    assert load({}, {}, tmp_path).settings.workers == 2


@pytest.mark.parametrize(
    ("name", "default"),
    [
        (name, default)
        for kind in (QueueSettings, ServerSettings, EngineSettings)
        for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
        if isinstance(default, int | float) and not isinstance(default, bool)
    ],
)
def test_a_documented_default_is_the_default(name: str, default: float) -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \| ([^|]+) \|", page, re.MULTILINE)
    assert row is not None
    assert float(row[1]) == default


def test_every_code_is_documented_and_no_other() -> None:
    assert rows("docs/errors.md") == set(Code)


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_explained(promise: str) -> None:
    assert promise.lower() in anchors(ROOT / "docs/promises.md")


def test_every_promise_is_named_by_a_test() -> None:
    named: set[str] = set()
    for file in ROOT.glob("tests/**/*.py"):
        if file == Path(__file__):
            continue
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")):
            named.update(re.findall(r"(?<![A-Za-z0-9])I\d+(?![A-Za-z0-9])", name))
    assert set(PROMISES) <= named, f"no test names {sorted(set(PROMISES) - named)}"


def test_delivery_is_never_said_to_be_more_than_it_is() -> None:
    for page in PAGES:
        said = re.sub(r"`[^`\n]*`", "", prose(page)).lower()  # an option of Spark's sink has that name, as elsewhere
        assert "exactly-once" not in said, name_of(page)


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(file.name[:4]) for file in sorted((ROOT / "docs/adr").glob("*.md"))]
    assert numbers == list(range(len(numbers)))


def commands(app: App, before: tuple[str, ...] = ("skep",)) -> Iterator[str]:
    """Every command of the program, as it is typed."""
    for name in app:
        if name.startswith("-"):
            continue
        path = (*before, name)
        inner = list(commands(app[name], path))
        yield from inner or [" ".join(path)]


def test_every_command_is_documented() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [command for command in commands(skep_app) if command not in pages]
    assert not missing


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.name)
def test_every_pipeline_is_documented_with_the_tables_that_it_writes(pipeline: Pipeline) -> None:
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if re.match(rf"\| \[?{pipeline.name}\b", line)]
    assert all(f"`{table}`" in row for table in pipeline.writes)
    assert f"## {pipeline.name}\n" in text or "(lake.md#" in row
