"""Every line that is left to `--all` is held by a test that is there, and runs without it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import PROMISE
from tests.support.with_all import HELD_BY, held_by_others

ROOT = Path(__file__).parents[2]


def is_there(nodeid: str, *, whole: bool) -> bool:
    """Whether a file has a test whose name begins so; or is this, and is not slow."""
    path, _, name = nodeid.partition("[")[0].partition("::")
    end = r"\(" if whole or "[" in nodeid else ""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"^((?:@.*\n(?:[ )].*\n)*)*)(?:async )?def {name}{end}", text, re.MULTILINE)
    return found is not None and not (whole and "@pytest.mark.slow\n" in found[1])


def test_what_is_left_to_all_is_there_and_holds_no_promise() -> None:
    assert [test for test in HELD_BY if not is_there(test, whole=False)] == []
    assert [test for test in HELD_BY if PROMISE.search(test)] == []


def test_who_holds_its_line_is_there_and_runs_by_default() -> None:
    assert [holder for holder in HELD_BY.values() if not is_there(holder, whole=True)] == []
    assert held_by_others(HELD_BY.values()) == set()


def test_a_variant_that_is_left_out_leaves_its_others() -> None:
    file = "tests/unit/store/test_claim_cost.py::test_one_claim_costs_the_same_however_many_partitions_are_blocked"

    assert held_by_others([f"{file}[sqlite]", f"{file}[postgres]"]) == {f"{file}[postgres]"}
