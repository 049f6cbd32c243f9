"""The tables of mutants fit the code: every old text is there once, every fault can be read, and its tests are there."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import pytest

from tests.mutants import Mutant
from tests.mutants.tables import TABLES

ROOT = Path(__file__).parents[2]
ALL = [mutant for mutants in TABLES.values() for mutant in mutants]


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    text = (ROOT / "src/skep" / mutant.file).read_text(encoding="utf-8")
    mutated = mutant.apply(text)

    assert mutated != text
    if mutant.file.endswith(".py"):
        ast.parse(mutated)
    named = [word.partition("::") for word in shlex.split(mutant.killed_by) if word.startswith("tests/")]
    assert named or mutant.equivalent
    for path, _, test in named:
        tests = (ROOT / path).read_text(encoding="utf-8") if path.endswith(".py") else ""
        assert (ROOT / path).exists()
        assert test.partition("[")[0] in tests


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL)
