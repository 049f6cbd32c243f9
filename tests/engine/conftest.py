"""An engine on a frozen clock and a store in memory, with the store's calls noted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from skep.clock import ManualClock
from skep.config import EngineSettings
from skep.engine import Engine
from skep.ids import IdMint
from skep.store.sqlite import SqliteStore
from tests.engine.driver import EngineDriver
from tests.engine.recording import RecordingStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings() -> EngineSettings:
    """What a test's module overrides to have other settings."""
    return EngineSettings()


@pytest.fixture
async def store() -> AsyncIterator[RecordingStore]:
    inner = SqliteStore(":memory:")
    await inner.open()
    yield RecordingStore(inner)
    await inner.close()


@pytest.fixture
async def engine(store: RecordingStore, clock: ManualClock, settings: EngineSettings) -> AsyncIterator[Engine]:
    engine = Engine(store.as_store, clock, IdMint(clock), Random(7), settings)
    await engine.start()
    yield engine
    store.let_all_go()
    await engine.stop()


@pytest.fixture
def driver(engine: Engine, clock: ManualClock, store: RecordingStore) -> EngineDriver:
    return EngineDriver(engine, clock, store)
