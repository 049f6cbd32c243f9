"""Confirmation before a command deletes or moves messages. The question says how many. Without a terminal, `--yes` is needed."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cyclopts import Group, Parameter

from skep.cli.connection import Flag
from skep.cli.exits import note, printable
from skep.errors import Code, SkepError

_GROUP = Group("Before it happens", sort_key=90)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class Consent:
    """Options of a destructive command."""

    yes: Flag = False
    """Do not ask for confirmation."""
    dry_run: Flag = False
    """Only print the effect; change nothing."""

    def ask(self, consequence: str) -> None:
        """Say what will happen, and raise unless the user agrees."""
        if self.yes:
            note(consequence)
            return
        if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):  # stdin is None when it was closed: <&-
            raise SkepError(
                Code.INVALID_REQUEST, f"{consequence}; there is no terminal to ask on, so say --yes or --dry-run"
            )
        sys.stderr.write(f"{printable(consequence)}. Go ahead? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SkepError(Code.INVALID_REQUEST, "not agreed to, so nothing was done")
