"""Sessions of PostgreSQL that do not ask what its own types are, if an earlier one of the same process did.

asyncpg asks for each kind of array that a session meets, which takes longer than most statements of a store: it reads all types there are.
The answer for types that come with PostgreSQL is always the same. What the asking does to a session is what the first one of each worker
shows, and every server that is a process.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import asyncpg

FIRST_OF_OTHERS = 16_384
"""The least number that a type has that does not come with PostgreSQL."""


def ask_for_types_once() -> None:
    """Let sessions that are opened in this process from now on know what earlier ones have asked."""
    ask = vars(asyncpg.Connection)["_introspect_types"]
    known: dict[frozenset[int], Any] = {}

    async def told(connection: object, numbers: set[int], seconds: float | None) -> tuple[Any, Any]:
        types = frozenset(numbers)
        if types in known:
            return known[types], SimpleNamespace(name="none was made, so the last one stays valid")
        found, statement = await ask(connection, numbers, seconds)
        if max(types) < FIRST_OF_OTHERS:
            known[types] = found
        return found, statement

    setattr(asyncpg.Connection, "_introspect_types", told)  # noqa: B010 - it is no attribute that types know
