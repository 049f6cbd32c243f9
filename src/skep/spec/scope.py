"""What an evaluation carries along: the message, the variables of comprehensions, and what it may still spend.

Everything whose cost depends on the message pays by `spend`: a comprehension for each step, a string for what is built or
searched. So an evaluation ends after a bounded time and holds a bounded amount, whatever the expression and the message.
"""

from __future__ import annotations

from collections.abc import Mapping

BUDGET = 100_000
"""Units one evaluation may spend; some ten milliseconds of work."""
CHARACTERS_SEARCHED = 256
CHARACTERS_BUILT = 32
"""How many characters one unit pays for."""


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

    def search(self, text: str) -> None:
        """Pay for looking through a text."""
        self.spend(1 + len(text) // CHARACTERS_SEARCHED)

    def build(self, characters: int) -> None:
        """Pay for a text before it is made."""
        self.spend(1 + characters // CHARACTERS_BUILT)
