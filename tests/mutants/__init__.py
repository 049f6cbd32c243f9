"""Mutants: deliberate faults in the real code, each with the tests that must fail because of it.

`./skep test --mutants` applies them to a copy of the checkout, one at a time. A fault that no test notices is a survivor: either a new
test kills it, or its ``equivalent`` says in one sentence why nobody could notice. A table of this folder has the faults of one part of
the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault: in a file under ``src/skep`` the text ``old``, which is there once, becomes ``new``.

    ``killed_by`` are the arguments of pytest for the tests that must fail.
    """

    name: str
    file: str
    old: str
    new: str
    killed_by: str
    equivalent: str | None = None

    def apply(self, text: str) -> str:
        """The file's text with the fault; ValueError unless the old text is there exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has the old text {text.count(self.old)} times")
        return text.replace(self.old, self.new)
