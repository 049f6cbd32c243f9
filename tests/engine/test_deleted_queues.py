"""What a server keeps in memory of deleted queues: nothing, some minutes after it last heard of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from itertools import count, islice
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.engine import Engine
from skep.engine.pop.consumers import FORGOTTEN_SECONDS
from skep.model import Outcome, PopRequest, QueueKey, QueueSettings
from skep.server.compose import open_engine
from tests.engine.driver import ANY, message, settlement, until
from tests.support.memory import census

QUEUES = 12
"""How many are made and deleted between two looks: what is kept of each shows as so many objects."""
GROUPS = ("mail", "print")
LOOKS = 3
"""At its first look at all that is in memory a server notes when it was used, at the next it forgets what was not used since."""
SETTINGS = QueueSettings(namespace="shop", retention_seconds=60, max_age_seconds=50)


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Engine]:
    is_file = request.param == "sqlite"
    url = str(tmp_path / "skep.db") if is_file else request.getfixturevalue("empty_tables_dsn")
    async with open_engine(url, clock=clock) as engine:
        yield engine


async def use_and_delete(engine: Engine, key: QueueKey) -> None:
    """Let a queue have groups, consumers, leases and a failed message, and delete it."""
    await engine.create_queue(key, SETTINGS)
    await engine.push([message(str(number), key, partition=str(number)) for number in range(4)])
    for group in GROUPS:
        request = PopRequest(key, group=group, batch=2, consumer="consumer")
        first, second = (await engine.pop(request)).deliveries
        await engine.settle([settlement(first), settlement(second, Outcome.NACK)])
    await engine.pop_matching(PopRequest(ANY, group="late"), namespace="shop")
    await engine.delete_queue(key)


async def rest(engine: Engine, clock: ManualClock) -> None:
    """Let so much time pass that the server forgets what nobody uses."""
    for _ in range(LOOKS):
        clock.advance(FORGOTTEN_SECONDS)
        await until(lambda: engine.is_quiet)


async def test_nothing_of_a_deleted_queue_stays_in_memory(engine: Engine, clock: ManualClock) -> None:
    keys = (QueueKey(f"orders-{number}") for number in count())
    looks = list[Counter[str]]()
    for _ in range(2):
        for key in islice(keys, QUEUES):
            await use_and_delete(engine, key)
        await rest(engine, clock)
        looks.append(census(engine))

    before, after = looks
    assert (before["Chores"], before["LogicalQueue"]) == (1, 0)
    assert {name: grown for name, grown in (after - before).items() if grown >= QUEUES} == {}
