"""An engine with a spool, on a store that can be cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.store.sqlite import SqliteStore
from tests.spool.driver import SpoolDriver
from tests.spool.outage import CutOff


@pytest.fixture
async def store() -> AsyncIterator[CutOff]:
    inner = SqliteStore(":memory:")
    await inner.open()
    yield CutOff(inner)
    await inner.close()


@pytest.fixture
async def driver(store: CutOff, tmp_path: Path) -> AsyncIterator[SpoolDriver]:
    driver = SpoolDriver(store, ManualClock(), tmp_path / "spool")
    await driver.start()
    yield driver
    if store.held is not None:
        store.held.set()
    await driver.stop()
