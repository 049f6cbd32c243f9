"""No test sleeps for a fixed time: it waits for a signal, or looks for what nobody tells (`tests.support.waiting`)."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import until, until_so

TESTS = Path(__file__).parents[1]
MAY = {
    "support/waiting.py": "the place for it",
    "support/steady.py": "a load that keeps a pace",
    "unit/engine/test_polls.py": "polls, which sleep until a signal",
}


def sleeps(tree: ast.AST) -> list[int]:
    """The lines of calls of something named sleep, but for `sleep(0)`, which lets a loop turn."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr == "sleep")
            or (isinstance(node.func, ast.Name) and node.func.id == "sleep")
        )
        and not (len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    ]


def test_only_who_may_sleeps() -> None:
    texts = {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    found = {path: lines for path, text in texts.items() if "sleep" in text and (lines := sleeps(ast.parse(text)))}
    assert found.keys() == MAY.keys(), found


def test_calls_are_found_whatever_they_wait_for() -> None:
    tree = ast.parse("time.sleep(1)\nawait_ = asyncio.sleep(some)\nasyncio.sleep(0)\nsleep(0.1)\n")
    assert sleeps(tree) == [1, 2, 4]


@given(st.integers(0, 5))
def test_who_waits_looks_until_it_is_so(looks: int) -> None:
    seen = iter(range(looks + 1))
    assert until(lambda: next(seen) == looks)


async def test_who_waits_lets_a_clock_go_on_between_looks() -> None:
    ticks: list[int] = []
    assert await until_so(lambda: len(ticks) == 3, lambda: ticks.append(1))
