"""The ledger is what its generator writes from the committed results, and leaves no fault out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from msgspec import structs

from torture.faults import MENU
from torture.result import Machine, Memory, PromiseResult, Result, Weight
from torture.run import PROMISES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ledger.md"


@pytest.fixture(scope="module")
def ledger() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ledger", ROOT / "dev" / "ledger.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def result(faults: dict[str, int], *, broken: int = 0, seconds: float = 60.0) -> Result:
    kept = {promise: PromiseResult("kept", 1_234_567, 0) for promise in PROMISES}
    promises = kept | {"I5": PromiseResult("broken", 12_345, broken)} if broken else kept
    weight = Weight(first=50.0, middle=61.0, last=60.0, largest=99.0)
    return Result(
        version="0.1.0", commit="0123456789abcdef", is_modified=False, began_at="2026-11-18T16:00:00+00:00",
        command="./skep torture --seed 1", machine=Machine(2, 2048, "Linux", "3.11.7", "3.50.0"), store="sqlite", seed=1,
        options={}, rounds=3, seconds=seconds, calls=100, unanswered=7, pushed=1_000_000, longest_history=400_000, delivered=2_000_000,
        settled=1_900_000, steps={}, faults=faults, promises=promises, violations=[], memory_mib=Memory(weight, weight),
    )  # fmt: skip


def test_the_page_is_what_the_generator_writes(ledger: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == ledger.with_tables(page, ledger.runs(), ledger.findings()), "run python dev/ledger.py"
    assert [name for name in ledger.TABLES if f"<!-- table: {name} -->\n" not in page] == []


def test_every_fault_of_the_menu_has_a_row_for_each_store(ledger: ModuleType) -> None:
    table = ledger.TABLES["faults"]({}, [])

    expected = {
        f"| `{name}` | {ledger.STORES[store]} | not yet run |" for name, fault in MENU.items() for store in fault.stores
    }
    assert [row for row in expected if row not in table] == []


def test_runs_add_up_by_fault_and_store(ledger: ModuleType) -> None:
    results = {
        "one": result({"kill": 3}),
        "two": result({"kill": 4}),
        "both": result({"kill": 1, "cut": 1}),
        "calm": result({}),
    }

    rows = ledger.TABLES["faults"](results, []).splitlines()

    assert "| `kill` | SQLite | 3 | 2 | 8 | 3,000,000 | 400,000 | 6,000,000 | 21 | 0 |" in rows
    assert "| `cut` | SQLite | 1 | 0 | 1 | 1,000,000 | 400,000 | 2,000,000 | 7 | 0 |" in rows
    assert "| no fault | SQLite | 1 | 1 | 0 | 1,000,000 | 400,000 | 2,000,000 | 7 | 0 |" in rows


def test_a_history_of_a_million_has_a_row_that_says_what_it_lost(ledger: ModuleType) -> None:
    lost = {"I1": PromiseResult("broken", 9, 3), "I9": PromiseResult("broken", 9, 2)}
    whole = result({"kill": 3, "cut": 2})
    results = {
        "short": whole,
        "long": structs.replace(whole, longest_history=1_000_000, promises=whole.promises | lost),
    }

    rows = ledger.TABLES["millions"](results, []).splitlines()[2:]

    start = "| [long](../torture/results/long.json) | SQLite | `kill` 3, `cut` 2 | 1,000,000 | 2,000,000 | 7 "
    assert rows == [start + "| 3 | 0 | 0 | 2 | 0 | 5 |"]


def test_a_violation_stands_in_every_table_that_counts_them(ledger: ModuleType) -> None:
    results = {"one": result({"kill": 3}, broken=2)}

    assert "| 2,000,000 | 7 | 2 |" in ledger.TABLES["faults"](results, [])
    assert "**12k, broken 2 times**" in ledger.TABLES["tried"](results, [])
    assert "| 1 | 12,345 | 2 |" in ledger.TABLES["promises"](results, [])


def test_only_long_runs_tell_of_memory(ledger: ModuleType) -> None:
    results = {"short": result({"kill": 3}), "long": result({"kill": 3}, seconds=900.0)}

    table = ledger.TABLES["memory"](results, [])

    assert "50, 61, 60; at most 99" in table
    assert "short" not in table


def test_a_fault_that_left_the_menu_is_not_passed_over(ledger: ModuleType) -> None:
    with pytest.raises(KeyError, match="flood"):
        ledger.TABLES["faults"]({"one": result({"flood": 1})}, [])


def test_findings_are_of_a_kind_that_the_page_has(ledger: ModuleType) -> None:
    found = ledger.findings()

    assert {one.kind for one in found} == set(ledger.KINDS)
    assert [one for one in found if not set(one.promises) <= set(PROMISES)] == []
