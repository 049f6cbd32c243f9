"""What an evaluation does is paid for: a unit of the budget pays for a thousand elementary steps at the most.

An elementary step takes about a nanosecond: two characters compared, a fifteenth of an instruction of a pattern's program tried at
one byte. The tests count steps and units, and no time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
import re2

from skep.spec import allowance
from skep.spec.allowance import AT_ONCE, Steps, off_loop, off_loop_in_turns
from skep.spec.expressions import ExpressionError, compile_expression, evaluate, evaluate_json, shown
from skep.spec.patterns import MESSAGE_MEMORY_BYTES, reading_units
from skep.spec.scope import BUDGET, BudgetError, NoValueError, Scope
from skep.spec.types import JSON

STEPS = 1_000
COMPILED_STEPS = 1_000
"""For one instruction of a program, made forwards and backwards."""
TRIED_STEPS = 15
"""For one instruction at one byte of the text."""


class Work(NamedTuple):
    """An expression over `j`, and how many elementary steps it takes at the least."""

    expression: str
    message: Mapping[str, object]
    steps: float


def spent(expression: str, message: object, budget: int = BUDGET) -> int:
    compiled = compile_expression(expression, {"j": JSON})
    scope = Scope({"j": message}, [None] * compiled.slots, budget)
    with contextlib.suppress(NoValueError, BudgetError):
        compiled.run(scope)
    return budget - max(scope.budget, 0)


def program_size(pattern: str) -> int:
    options = re2.Options()
    options.max_mem = MESSAGE_MEMORY_BYTES
    options.log_errors = False
    return int(re2.compile(pattern, options).programsize)


def matched(pattern: str, text: str) -> Work:
    size = program_size(pattern)
    return Work("j.s.matches(j.p)", {"s": text, "p": pattern}, size * (COMPILED_STEPS + TRIED_STEPS * len(text) / 2))


MIDDLE = "a" * 49 + "b" + "a" * 49
"""Python's search compares this with the text at every place, and sees the difference after half of it."""
TIMES = [f"2026-01-31T12:{index // 60:02}:{index % 60:02}Z" for index in range(3_000)]
WORKS: Mapping[str, Work] = {
    "contains, compared at every place": Work("j.s.contains(j.n)", {"s": "a" * 29_000, "n": MIDDLE}, 29_000 * 49),
    "split, compared at every place": Work("j.s.split(j.n)", {"s": "a" * 29_000, "n": MIDDLE}, 2 * 29_000 * 49),
    "replace, compared at every place": Work("j.s.replace(j.n, '')", {"s": "a" * 29_000, "n": MIDDLE}, 2 * 29_000 * 49),
    "contains, a long part": Work("j.s.contains(j.n)", {"s": "a" * 90_000, "n": MIDDLE * 50}, 90_000 * 5),
    "lastIndexOf, compared at every place": Work("j.s.lastIndexOf(j.n)", {"s": "a" * 29_000, "n": MIDDLE}, 29_000 * 49),
    "lastIndexOf, a long part": Work(
        "j.s.lastIndexOf(j.n)", {"s": "a" * 9_000, "n": "b" + "a" * 3_000}, 6_000 * 3_000 / 2
    ),
    "indexOf, compared at every place": Work("j.s.indexOf(j.n, 1)", {"s": "a" * 29_000, "n": MIDDLE}, 29_000 * 49),
    "zones that are not there": Work(
        "j.z.exists(z, timestamp(0).getHours(z) > 0)",
        {"z": [f"Nowhere/{index}" for index in range(100)]},
        100 * 180_000,
    ),
    "startsWith a long part": Work("j.s.startsWith(j.s)", {"s": "a" * 900_000}, 900_000 / 16),
    "endsWith a long part": Work("j.s.endsWith(j.s)", {"s": "a" * 900_000}, 900_000 / 16),
    "a duration of many parts": Work("duration(j.s)", {"s": "1h" * 10_000}, 10_000 * 1_000),
    "a duration that is none": Work("duration(j.s)", {"s": "1h" * 10_000 + "x"}, 10_000 * 100),
    "a float of many digits": Work("double(j.s)", {"s": "1" * 300 + "." + "2" * 400}, 700 * 8),
    "times": Work("j.t.all(t, timestamp(t) == timestamp(t))", {"t": TIMES}, len(TIMES) * 2 * 2_000),
    "letters beyond ASCII": Work("j.s.lowerAscii()", {"s": "éÜ" * 30_000}, 60_000 * 10),
    "lists in lists": Work("j.a == j.b", {"a": [[]] * 10_000, "b": [[]] * 10_000}, 10_000 * 1_500),
    "a class of letters": matched(r"(?i)\pL{2}", "x"),
    "many optional parts": matched("x{0,1000}y", "x"),
    "repetitions within repetitions": matched("((a?){30}){30}", "x"),
    "any characters": matched("." * 400, "x"),
    "a program that is tried at every byte": matched("[ab]*a[ab]{500}c", "ab" * 500),
    "optional parts that are all tried": matched("(?:a?b?){300}c", "ab" * 500),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=list(WORKS))
def test_a_unit_pays_for_a_thousand_steps_at_the_most(work: Work) -> None:
    assert spent(work.expression, work.message, 10 * BUDGET) * STEPS >= work.steps


@pytest.mark.parametrize(
    "pattern",
    [r"\pL" * 300, "(?i)[" + r"\pL" * 300 + "]", r"(?i)" + r"\p{Lu}" * 165, "x{0,1000}" * 110, "x{1000}" * 140],
    ids=["classes", "classes in one", "classes of capitals", "optional repetitions", "repetitions"],
)
def test_a_pattern_that_takes_long_to_read_is_paid_before_it_is_read(pattern: str) -> None:
    assert len(pattern) <= 1_000
    assert reading_units(pattern) > BUDGET


def test_patterns_of_a_message_use_up_the_budget_by_the_size_of_their_programs() -> None:
    """B6: five patterns of ten characters took 0.8 s, and 130 of 100,000 units."""
    patterns = [rf"(?i)\pL{{50}}{index}" for index in range(5)]
    assert spent("j.exists(p, 'é'.matches(p))", patterns) > BUDGET / 2
    small = [rf"(?i)\pL{{2}}{index}" for index in range(100)]
    expression = compile_expression("j.exists(p, 'é'.matches(p))", {"j": JSON})
    with pytest.raises(ExpressionError, match="steps"):
        evaluate(expression, {"j": small})


def test_a_large_program_comes_with_no_message_but_may_stand_in_an_expression() -> None:
    with pytest.raises(ExpressionError, match="too large"):
        evaluate(compile_expression("'é'.matches(j)", {"j": JSON}), {"j": r"\pL{50}"})
    assert evaluate(compile_expression(r"j.matches(r'^\pL{0,50}$')", {"j": JSON}), {"j": "é"}) is True


def test_a_pattern_costs_the_same_when_it_is_in_the_cache() -> None:
    message = {"s": "abc", "p": "never seen before: [a-c]{7}"}
    assert len({spent("j.s.matches(j.p)", message) for _ in range(3)}) == 1
    wrong = {"s": "abc", "p": "never seen before ("}
    assert len({spent("j.s.matches(j.p)", wrong) for _ in range(3)}) == 1


class _Loud(list[object]):
    def __repr__(self) -> str:
        raise AssertionError("it was spelled out")

    __str__ = __repr__


def test_a_large_value_is_not_spelled_out_to_say_that_it_does_not_fit() -> None:
    """Once for every element of a list, this took two and a half minutes."""
    with pytest.raises(NoValueError, match="is neither true nor false"):
        compile_expression("bool(j)", {"j": JSON}).run(Scope({"j": _Loud([1])}, None, BUDGET))


def _evaluating(expression: str, message: object, seen: list[str]) -> Callable[[], object]:
    compiled = compile_expression(expression, {"j": JSON})

    def work() -> object:
        seen.append(threading.current_thread().name)
        return evaluate(compiled, {"j": message})

    return work


async def test_a_short_evaluation_stays_in_the_loop() -> None:
    seen: list[str] = []
    assert await off_loop(_evaluating("j.all(x, x > 0)", [1, 2, 3], seen)) is True
    assert seen == [threading.current_thread().name]


async def test_a_long_evaluation_goes_on_in_the_one_thread_with_the_whole_budget() -> None:
    seen: list[str] = []
    works = [_evaluating("j.all(x, x > 0)", list(range(1, AT_ONCE)), seen) for _ in range(3)]
    assert await asyncio.gather(*map(off_loop, works)) == [True] * 3
    elsewhere = [name for name in seen if name != threading.current_thread().name]
    assert len(seen) == 6
    assert len(elsewhere) == 3
    assert len(set(elsewhere)) == 1


async def test_several_expressions_share_what_may_be_spent_in_the_loop() -> None:
    compiled = compile_expression("j.all(x, x > 0)", {"j": JSON})
    seen: list[str] = []

    def work() -> None:
        seen.append(threading.current_thread().name)
        for _ in range(20):
            evaluate(compiled, {"j": [1] * (AT_ONCE // 40)})

    await off_loop(work)
    assert len(seen) == 2


async def test_a_large_result_is_written_off_the_loop() -> None:
    compiled = compile_expression("[j, j]", {"j": JSON})
    seen: list[str] = []

    def work() -> object:
        seen.append(threading.current_thread().name)
        return evaluate_json(compiled, {"j": [1] * AT_ONCE})

    assert await off_loop(work) == [[1] * AT_ONCE] * 2
    assert len(seen) == 2


async def test_what_fails_in_the_thread_is_told_as_ever() -> None:
    seen: list[str] = []
    with pytest.raises(ExpressionError, match=f"more than {BUDGET} steps"):
        await off_loop(_evaluating("j.all(x, j.all(y, y > 0))", [1] * 1_000, seen))
    assert len(seen) == 2


def _steps(name: str, count: int, seen: list[str], units: int = 1) -> Callable[[], Steps[str]]:
    compiled = compile_expression("j.all(x, x > 0)", {"j": JSON})

    def steps() -> Steps[str]:
        for _ in range(count):
            evaluate(compiled, {"j": [1] * units})
            seen.append(f"{name} in {threading.current_thread().name.partition('_')[0]}")
            yield
        return name

    return steps


async def test_short_work_in_steps_stays_in_the_loop() -> None:
    seen: list[str] = []
    assert await off_loop_in_turns(_steps("a", 3, seen), is_large=False) == "a"
    assert seen == ["a in MainThread"] * 3


async def test_large_work_in_steps_has_turns_with_others_in_the_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "SLICE_SECONDS", 0)
    seen: list[str] = []
    both = (off_loop_in_turns(_steps(name, 5, seen), is_large=True) for name in "ab")
    assert await asyncio.gather(*both) == ["a", "b"]
    assert seen == ["a in skep-evaluation", "b in skep-evaluation"] * 5


async def test_long_work_in_steps_has_turns_with_others_though_it_was_not_known_to_be_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "SLICE_SECONDS", 0)
    seen: list[str] = []
    both = (off_loop_in_turns(_steps(name, 5, seen, AT_ONCE), is_large=False) for name in "ab")
    assert await asyncio.gather(*both) == ["a", "b"]
    assert seen == ["a in skep-evaluation", "b in skep-evaluation"] * 5


async def test_what_fails_in_a_step_is_told_as_ever() -> None:
    with pytest.raises(ExpressionError, match=f"more than {BUDGET} steps"):
        await off_loop_in_turns(_steps("a", 2, [], BUDGET), is_large=True)


class Counted(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Counted.compared += 1
        return str.__lt__(self, other)


def test_an_error_shows_the_first_keys_of_a_map_and_sorts_none() -> None:
    compiled = compile_expression("j.k.id", {"j": JSON})
    keys = [Counted(f"k{number}") for number in range(1_000, 0, -1)]
    with pytest.raises(ExpressionError) as failed:
        evaluate(compiled, {"j": {"k": dict.fromkeys(keys, 0)}})

    assert (
        failed.value.details["value"] == "{" + "".join(f"'k{number}': 0, " for number in range(1_000, 992, -1)) + "...}"
    )
    assert Counted.compared == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [({}, "{}"), ({"a": {"b": [1]}}, "{'a': {'b': [1]}}"), ({1: {2: {3: {4: {5: 6}}}}}, "{1: {2: {3: {4: {...}}}}}")],
)
def test_a_map_in_an_error_is_cut_where_it_is_deep(value: object, text: str) -> None:
    assert shown(value) == text
