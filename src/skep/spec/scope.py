"""The scope of an evaluation: the message, the variables of comprehensions, and the rest of the budget.

Everything whose cost depends on the message pays by `spend`, before it is done: a comprehension for each step, a string for what
is built or searched, a pattern for its program (`skep.spec.patterns`). So an evaluation ends after a bounded time and holds a bounded
amount, whatever the expression and the message. A unit pays for about a microsecond of work at the most; `tests/spec/test_costs.py`
counts the work.
"""

from __future__ import annotations

from collections.abc import Mapping

BUDGET = 100_000
"""Units one evaluation may spend: 20 to 100 milliseconds of work."""
CHARACTERS_COMPARED = 256
CHARACTERS_SEARCHED = 128
CHARACTERS_BUILT = 32
"""How many characters one unit pays for."""
PART_CHARACTERS = 100
"""Up to this length Python may compare a part with the text at every place; a longer part is found in linear time."""
COMPARISONS = 1_024
"""How many such comparisons one unit pays for."""
TIME_UNITS = 4
"""What reading or writing a time, a duration or a float costs beyond a plain value."""


class NoValueError(Exception):
    """An evaluation that has no value: why, at which offset, and the value that was in the way."""

    def __init__(self, message: str, value: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.value = value
        self.at: int | None = None


class BudgetError(Exception):
    """An evaluation that spent its budget. Unlike a failure, no operator makes up for it."""


class Scope:
    """One evaluation's state."""

    __slots__ = ("bound", "budget", "message")

    def __init__(self, message: Mapping[str, object], bound: list[object] | None, budget: int) -> None:
        self.message = message
        self.bound = bound
        self.budget = budget

    def spend(self, units: int) -> None:
        """Pay, or end the evaluation."""
        self.budget -= units
        if self.budget < 0:
            raise BudgetError

    def compare(self, text: str) -> None:
        """Pay for holding a text against another."""
        self.spend(1 + len(text) // CHARACTERS_COMPARED)

    def search(self, text: str, part: str) -> None:
        """Pay for looking for a part all through a text."""
        self.spend(search_units(len(text), len(part)))

    def build(self, characters: int) -> None:
        """Pay for a text before it is made."""
        self.spend(1 + characters // CHARACTERS_BUILT)


def search_units(characters: int, part_characters: int) -> int:
    """What it costs to look for a part all through a text, at the most."""
    comparisons = characters * min(part_characters, PART_CHARACTERS)
    return 1 + characters // CHARACTERS_SEARCHED + comparisons // COMPARISONS
