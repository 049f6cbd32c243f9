"""Driver, Python workers and server killed at random while messages are copied: none is lost, none is there twice, each partition
keeps its order. On both stores, and with two servers of one store; into a lake and into another queue.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

import skep
from tests.spark.killing import MESSAGES, Driver, Kept, expected_kills, fill, kept, numbers_of
from tests.support.spark_driver import Job

BATCHES = 200
"""So many leave time for all kills."""
VICTIMS = ("driver", "worker", "server", "worker", "driver")


def copied(job: Job, server: Kept, folder: Path, seed: int) -> dict[str, int]:
    """Run the driver until it has done all, and kill something every now and then; how often what was killed."""
    chance = random.Random(seed)
    driver = Driver(job, folder, chance)
    strikes = {
        "driver": driver.kill, "worker": driver.kill_worker, "server": lambda: server.kill(chance.randrange(len(server.urls))),
    }  # fmt: skip
    return driver.finish(strikes, lambda _: chance.choice(VICTIMS))


@pytest.fixture(params=["sqlite", "postgres", "postgres with two servers"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int]:
    """A store, and how many servers it has."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db"), 1
    return str(request.getfixturevalue("postgres_dsn")), 1 if request.param == "postgres" else 2


@pytest.mark.slow
def test_from_queue_to_queue_nothing_is_lost_or_doubled_and_order_is_kept(
    store: tuple[str, int], tmp_path: Path
) -> None:
    with kept(store, tmp_path) as server:
        fill(server.urls, "orders")
        urls, checkpoint = ",".join(server.urls), str(tmp_path / "checkpoint")
        job = Job(urls, "orders", checkpoint, None, "copies", max(1_000, MESSAGES // BATCHES))
        killed = copied(job, server, tmp_path, seed=1)

        with skep.Client(server.urls) as client:
            keys, numbers = numbers_of(client, "copies")
            lag = client.group("copier", "orders").lag
    assert sum(killed.values()) >= expected_kills()
    assert lag == 0
    assert len(numbers) == MESSAGES
    assert len(np.unique(numbers)) == MESSAGES
    for key in set(keys):
        mine = numbers[[one == key for one in keys]]
        assert (np.diff(mine) > 0).all()


@pytest.mark.slow
def test_from_queue_to_lake_nothing_is_lost_or_doubled(
    spark: SparkSession, store: tuple[str, int], tmp_path: Path
) -> None:
    with kept(store, tmp_path) as server:
        fill(server.urls, "orders")
        urls, lake = ",".join(server.urls), str(tmp_path / "lake")
        job = Job(urls, "orders", str(tmp_path / "checkpoint"), lake, None, max(1_000, MESSAGES // BATCHES))
        killed = copied(job, server, tmp_path, seed=2)

    rows = spark.read.parquet(lake).selectExpr("count(*)", "count(distinct seq)", "max(seq)", "sum(bigint(payload))")
    assert sum(killed.values()) >= expected_kills()
    assert tuple(rows.collect()[0]) == (MESSAGES, MESSAGES, MESSAGES, MESSAGES * (MESSAGES - 1) // 2)
