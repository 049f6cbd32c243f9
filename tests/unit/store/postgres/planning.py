"""Sees the plan of every statement that a session runs, those inside functions too.

`debug_print_plan` sends each plan, as PostgreSQL's own node tree, when it is made. From that tree one needs only the scans: of
which table, by which index, and whether the index's first column is bound, without which the whole index is walked.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import asyncpg

from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import SESSION, _prepare

LOGGING = {
    "debug_print_plan": "on",
    "debug_pretty_print": "off",
    "client_min_messages": "log",
    "log_min_messages": "fatal",
}
_SCAN = re.compile(r"\{(SEQSCAN|INDEXSCAN|INDEXONLYSCAN|BITMAPHEAPSCAN|TIDSCAN|TIDRANGESCAN) .*?scanrelid (\d+)")
_INDEX = re.compile(r":indexid (\d+) :indexqual (.*?) :(?:indexqualorig|recheckqual) ")
_SORT = "SORT :"
_FIRST_COLUMN = ":varno -3 :varattno 1 "


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of one table in a plan; ``bound`` says that it reads a part of the index and not all of it.

    ``sorted`` says that its plan sorts something. A join that compares each row with each is a scan of kind FILTER, of no table.
    """

    table: str
    kind: str
    index: str | None = None
    bound: bool = False
    sorted: bool = False


class Planner:
    """A session of the store's kind that keeps the scans of all plans it made."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], names: dict[int, str]) -> None:
        self.connection = connection
        self.scans: list[Scan] = []
        self._names = names

    @classmethod
    async def open(cls, dsn: str) -> Planner:
        connection = await asyncpg.connect(dsn, server_settings=SESSION | LOGGING)
        await _prepare(connection)
        rows = await connection.fetch("SELECT oid, relname FROM pg_class WHERE relnamespace = 'skep'::regnamespace")
        planner = cls(connection, {row["oid"]: row["relname"] for row in rows})
        connection.add_log_listener(planner._heard)
        return planner

    def serve(self, store: PostgresStore) -> None:
        """Let all calls of a store run in this one session."""
        store.pool.connection = lambda: nullcontext(self.connection)  # type: ignore[method-assign, assignment, return-value]

    async def plan(self, sql: str) -> list[Scan]:
        """The scans of one statement's generic plan."""
        count = max(map(int, re.findall(r"\$(\d+)", sql)), default=0)
        arguments = "(" + ", ".join(["NULL"] * count) + ")" if count else ""
        self.scans.clear()
        await self.connection.execute(
            f"DEALLOCATE ALL; PREPARE looked_at AS {sql}; EXPLAIN EXECUTE looked_at{arguments}"
        )
        return list(self.scans)

    def take(self) -> list[Scan]:
        """The scans since the last call."""
        scans, self.scans = self.scans, []
        return scans

    def _heard(self, _connection: Any, message: Any) -> None:
        if message.message == "plan:":
            self.scans += scans_of(message.detail, self._names)


def scans_of(tree: str, names: dict[int, str]) -> list[Scan]:
    """The scans of our tables in a node tree."""
    tree = " ".join(tree.split())
    range_table = [re.search(r":relid (\d+)", entry) for entry in tree.split("{RANGETBLENTRY ")[1:]]
    found = []
    for scan in _SCAN.finditer(tree):
        relation = range_table[int(scan[2]) - 1]
        table = names.get(int(relation[1])) if relation else None
        if table is None:
            continue
        if scan[1].startswith("INDEX"):
            index = _INDEX.search(tree, scan.end())
            assert index is not None, tree[scan.start() :]
            found.append(Scan(table, scan[1], names[int(index[1])], _FIRST_COLUMN in index[2], _SORT in tree))
        else:
            found.append(Scan(table, scan[1]))
    if found and "joinqual (" in tree:
        found.append(Scan("", "FILTER"))
    return found
