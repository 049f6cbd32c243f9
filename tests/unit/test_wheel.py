"""What is installed: the packages under `src` and nothing of the rest of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of all files in a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = folder.glob("*.whl")
    with ZipFile(wheel) as opened:
        return opened.namelist()


def test_the_wheel_has_no_tests_benchmarks_or_seeds(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    parts = {part for name in names for part in name.split("/")}
    assert tops == {"skep", "pyspark_skep"}
    assert not parts & {"tests", "bench", "torture", "benches", "seeds", "conftest.py"}
    assert not [part for part in parts if part.startswith("test_")]


def test_the_wheel_has_what_is_no_module_too(names: list[str]) -> None:
    assert "skep/py.typed" in names
    for folder in ("store/sqlite", "store/postgres", "dashboard/templates"):
        assert any(name.startswith(f"skep/{folder}/") and not name.endswith(".py") for name in names), folder
