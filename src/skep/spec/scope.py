"""The scope of an evaluation: the message, the variables of comprehensions, and the rest of the budget.

All work whose cost depends on the message is paid by `spend` before it is done: each step of a comprehension, each text that is
built or searched, the program of a pattern (`skep.spec.patterns`). So an evaluation has bounded time and memory, whatever the expression
and the message. A unit pays for at most about a microsecond of work; `tests/spec/test_costs.py` counts the work.
"""

from __future__ import annotations

from collections.abc import Mapping

BUDGET = 100_000
"""The units of one evaluation: 20 to 100 milliseconds of work."""
CHARACTERS_COMPARED = 256
CHARACTERS_SEARCHED = 128
CHARACTERS_BUILT = 32
"""How many characters one unit pays for."""
PART_CHARACTERS = 100
"""Up to this length, Python may compare a part with the text at every position; a longer part is found in linear time."""
COMPARISONS = 1_024
"""How many such comparisons one unit pays for."""
TIME_UNITS = 4
"""The cost of reading or writing a time, a duration or a float."""
ZONE_UNITS = 500
"""The cost of a time zone that comes with the message: its file is looked for."""


class NoValueError(Exception):
    """The failure of an evaluation without a value: the reason, the offset, and the offending value."""

    def __init__(self, message: str, value: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.value = value
        self.at: int | None = None


class BudgetError(Exception):
    """An evaluation that spent its budget. Unlike a failure, no operator catches it."""


class Scope:
    __slots__ = ("bound", "budget", "message")

    def __init__(self, message: Mapping[str, object], bound: list[object] | None, budget: int) -> None:
        self.message = message
        self.bound = bound
        self.budget = budget

    def spend(self, units: int) -> None:
        """Pay units, or end the evaluation."""
        self.budget -= units
        if self.budget < 0:
            raise BudgetError

    def compare(self, text: str) -> None:
        """Pay for comparing a text with another."""
        self.spend(1 + len(text) // CHARACTERS_COMPARED)

    def search(self, text: str, part: str) -> None:
        """Pay for searching a part in a text."""
        self.spend(search_units(len(text), len(part)))

    def build(self, characters: int) -> None:
        """Pay for a new text of so many characters."""
        self.spend(1 + characters // CHARACTERS_BUILT)


def search_units(characters: int, part_characters: int) -> int:
    """The highest cost of searching a part in a text."""
    comparisons = characters * min(part_characters, PART_CHARACTERS)
    return 1 + characters // CHARACTERS_SEARCHED + comparisons // COMPARISONS


def backwards_units(characters: int, part_characters: int) -> int:
    """The highest cost of searching a part from a text's end. Python compares the whole part at every position, however long it is."""
    return 1 + characters // CHARACTERS_SEARCHED + characters * part_characters // COMPARISONS
