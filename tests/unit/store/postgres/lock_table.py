"""The table of `docs/log.md` that says which locks each call waits for, and which rows it locks or writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[4] / "docs/log.md"
HEAD = "| call | verb | waits for | locks or writes rows of |\n|---|---|---|---|\n"
WORD = re.compile(r"`([\w.]+)`")


class Line(NamedTuple):
    """A call: the verb of the store that it is of, what it waits for in turn, also in an unordered queue, and the tables of its rows."""

    call: str
    verb: str
    waits: str
    waits_unordered: str
    rows: frozenset[str]

    def shares(self, other: Line) -> bool:
        """Whether both want some row or lock: that of a group, of a configuration, of a log, or of rows of a table."""
        return bool(self._wanted() & other._wanted())

    def _wanted(self) -> set[str]:
        locks = {"group" if lock in ("share", "take") else lock for lock in self.waits_unordered.split()}
        return locks | self.rows


def read_table() -> list[Line]:
    """The lines, in their order."""
    table = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0]
    return [_line(*(cell.strip() for cell in line.strip("|").split("|"))) for line in table.split("\n")]


def _line(call: str, verb: str, waits: str, rows: str) -> Line:
    ordered, _, unordered = waits.replace(",", "").replace("nothing", "").partition("; unordered:")
    return Line(
        call.strip("`"), verb.strip("`"), ordered.strip(), (unordered or ordered).strip(), frozenset(WORD.findall(rows))
    )


def read_verbs_without_line() -> set[str]:
    """The verbs that the lists below the table name: those that only read, and those whose rows no other verb touches."""
    below = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n## ")[0]
    return {word for line in below.split("\n") if line.startswith("- ") for word in WORD.findall(line)}
