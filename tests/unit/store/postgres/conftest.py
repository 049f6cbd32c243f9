"""A store on a database of its own, a driver for it, and a session beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from skep.clock import ManualClock
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver


@pytest.fixture
async def store(postgres_dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_dsn)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def driver(store: PostgresStore) -> Driver:
    return Driver(store, ManualClock(), "tenant")


@pytest.fixture
async def other(store: PostgresStore, postgres_dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session that is not the store's."""
    connection = await asyncpg.connect(postgres_dsn, server_settings={"search_path": "skep"})
    yield connection
    connection.terminate()
