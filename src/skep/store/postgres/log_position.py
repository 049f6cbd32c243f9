"""Finding seqs in logs, by a time and by the bytes of payloads: in many logs by one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from skep.clock import Instant
from skep.model import Seq
from skep.store.postgres.connection import Connection
from skep.store.statements import load_statements

SQL = load_statements(__package__, "log_position")


async def first_seqs_at(connection: Connection, tenant: str, queues: Sequence[str], at: Instant) -> dict[str, Seq]:
    """The first seq of each log at or after an instant."""
    return _by_queue(await connection.fetch(SQL["first_seqs_at"], tenant, list(queues), at))


async def last_seqs_within(
    connection: Connection, tenant: str, firsts: Mapping[str, Seq], max_bytes: int, max_rows: int
) -> dict[str, Seq]:
    """The last seq of each log up to which payloads from its first seq on fit into ``max_bytes``, at least one and at most ``max_rows`` seqs on."""
    rows = await connection.fetch(
        SQL["last_seqs_within"], tenant, list(firsts), list(firsts.values()), max_bytes, max_rows
    )
    return _by_queue(rows)


def _by_queue(rows: Sequence[asyncpg.Record]) -> dict[str, Seq]:
    return {row["name"]: Seq(row["seq"]) for row in rows}
