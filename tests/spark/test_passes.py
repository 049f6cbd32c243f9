"""Metrics and journeys pass by pass: a pass reads what is new, and all passes together say what one at the end would."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skep
from skep.clock import MICROS_PER_SECOND, ManualClock
from skep.errors import Code
from skep.spark.options import ServerConnection
from skep.spark.running.context import Wishes
from skep.spark.running.runner import RunPlan, run_pipelines
from skep.spark.running.stretches import Stretch, merged
from skep.testing.server import running_server

BACKOFF_SECONDS = 10
LEASE_SECONDS = 20
QUEUES = ("orders", "invoices")
"""Not their dead letters: what is replayed leaves that log, which a pass at the end then knows nothing of."""


@contextmanager
def unless_stale() -> Iterator[None]:
    """A lease that ran out, or ended with a failure of a neighbour, settles nothing any more: I6."""
    try:
        yield
    except skep.SkepError as error:
        if error.code is not Code.STALE_LEASE:
            raise


class Shop:
    """Orders that become invoices, by workers who now and then fail, forget or come late; time moves when told to."""

    def __init__(self, url: str, clock: ManualClock, spark: SparkSession, folder: Path, seed: int = 1) -> None:
        self.client, self._clock, self.spark, self._folder = skep.Client(url), clock, spark, folder
        self.url, self.chance, self._number = url, random.Random(seed), 0
        self.make_queues()
        self._late: list[skep.Message] = []

    def make_queues(self) -> None:
        for queue in QUEUES:
            self.client.configure(
                queue, lease_seconds=LEASE_SECONDS, max_attempts=2, initial_backoff_ms=BACKOFF_SECONDS * 1000
            )

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now() / MICROS_PER_SECOND, UTC)

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def order(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self.client.push("orders", {"n": self._number}, partition=f"p{self._number % 5}")

    def work(self, group: str, queue: str = "orders", batch: int = 4) -> None:
        for message in self.client.pop(queue, group=group, batch=batch):
            with unless_stale():
                self._settle(message, queue)

    def _settle(self, message: skep.Message, queue: str) -> None:
        match self.chance.randrange(8):
            case 0:
                self.client.reject(message, error="never")
            case 1:
                self.client.nack(message, error="not now")
            case 2:
                return  # forgotten: its lease runs out
            case 3:
                self._late.append(message)
            case 4 | 5 if queue == "orders":
                with self.client.transaction() as tx:
                    tx.push("invoices", message.json(), partition=message.partition, trace_id=message.trace_id)
                    tx.ack(message)
            case _:
                self.client.ack(message)

    def catch_up(self) -> None:
        """Those who were slow settle at last."""
        for message in self._late:
            with unless_stale():
                self.client.ack(message)
        self._late.clear()

    def run(
        self, lake: str, *names: str, window: str = "30 seconds", queues: tuple[str, ...] = QUEUES, **wishes: Any
    ) -> dict[str, int]:
        """A pass; how many rows each stage read."""
        plan = RunPlan(
            names=names, connection=ServerConnection((self.url,), "default", None, 20.0), lake=str(self._folder / lake),
            queues=queues, master="local[2]", wishes=Wishes(window=window, buckets=2, **wishes),
        )  # fmt: skip
        run = run_pipelines(plan, spark=self.spark).run
        assert run.error is None, run.error
        return {stage.name: stage.rows_in for stage in run.stages}

    def table(self, lake: str, name: str) -> list[dict[str, Any]]:
        rows = self.spark.read.parquet(str(self._folder / lake / name)).collect()
        return sorted((row.asDict(recursive=True) for row in rows), key=repr)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    clock = ManualClock()
    with running_server(clock=clock) as server:
        made = Shop(server.url, clock, spark, tmp_path)
        yield made
        made.client.close()


def done(shop: Shop) -> int:
    """Whatever can be popped is popped and acked; how many it was."""
    count = 0
    while messages := shop.client.pop("orders", group="billing", batch=100):
        shop.client.ack(*messages)
        count += len(messages)
    return count


def same_as_at_once(shop: Shop, *, is_replayed: bool) -> None:
    shop.run("at-once", "metrics", "journeys")
    assert shop.table("lake", "journeys") == shop.table("at-once", "journeys")
    passes, at_once = shop.table("lake", "metrics"), shop.table("at-once", "metrics")
    assert given_up(passes) == given_up(at_once)
    if not is_replayed:
        assert passes == at_once


def given_up(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The windows without the difference between retried and dead: which of a lease's messages died is told by letters, and one
    that was replayed is no letter any more when all is read at the end.
    """
    return [
        {name: value for name, value in row.items() if name != "dead"} | {"retried": row["retried"] + row["dead"]}
        for row in windows
    ]


@pytest.mark.slow
@pytest.mark.parametrize("names", [("metrics",), pytest.param(("metrics", "journeys"), marks=pytest.mark.slow)])
def test_a_pass_reads_what_is_new_and_the_rest_stays(shop: Shop, names: tuple[str, ...]) -> None:
    shop.order(40)
    assert done(shop) == 40
    shop.pass_time(3600)
    shop.order(3)
    partitions = 5
    assert set(shop.run("lake", *names, queues=("orders",)).values()) == {43 + partitions}
    shop.pass_time(3600)
    assert done(shop) == 3
    shop.order(2)

    # Two new messages and three leases; and the three messages that these are of.
    assert set(shop.run("lake", *names, queues=("orders",)).values()) == {2 + 3 + 3}
    windows = shop.table("lake", "metrics")
    assert [sum(row[name] for row in windows) for name in ("pushed", "delivered", "settled")] == [45, 43, 43]
    if "journeys" not in names:
        return
    states = Counter(row["state"] for row in shop.table("lake", "journeys"))
    assert states == {"done": 43, "open": 2}
    waits = {row["hops"][0]["wait_seconds"] for row in shop.table("lake", "journeys")}
    assert waits == {0.0, 3600.0, None}


@pytest.mark.slow
def test_a_pass_leaves_hours_alone_in_which_nothing_changed(shop: Shop, tmp_path: Path) -> None:
    shop.order(2)
    for message in shop.client.pop("orders", group="billing", batch=2):
        shop.client.reject(message, error="never")
    shop.pass_time(7200)
    shop.order(2)
    shop.run("lake", "journeys")
    broken = min((tmp_path / "lake" / "journeys").rglob("*.parquet"))
    shop.pass_time(7200)
    shop.order(1)
    shop.run("lake", "journeys")
    assert broken.exists()
    assert Counter(row["state"] for row in shop.table("lake", "journeys")) == {"broken": 2, "open": 3}
    shop.client.replay("orders.dead")
    assert done(shop) == 5
    shop.run("lake", "journeys")
    assert Counter(row["state"] for row in shop.table("lake", "journeys")) == {"done": 5}


@pytest.mark.slow
def test_a_message_that_grew_too_old_between_two_passes_breaks_its_journey(shop: Shop) -> None:
    shop.client.configure("orders", max_age_seconds=100)
    assert done(shop) == 0  # the group is there
    shop.order(2)
    shop.run("lake", "journeys")
    assert Counter(row["state"] for row in shop.table("lake", "journeys")) == {"done": 2}  # nobody seems to read them
    shop.pass_time(200)
    shop.order(1)
    assert done(shop) == 1
    shop.order(1)
    shop.run("lake", "journeys")
    assert Counter(row["state"] for row in shop.table("lake", "journeys")) == {"broken": 2, "done": 1, "open": 1}
    shop.client.replay("orders.dead")
    assert done(shop) == 3
    shop.run("lake", "journeys")
    assert Counter(row["state"] for row in shop.table("lake", "journeys")) == {"done": 4}


@pytest.mark.slow
def test_windows_of_another_width_begin_where_the_old_ones_end(shop: Shop) -> None:
    for window in ("1 hour", "1 minute", "7 minutes", "1 hour"):
        for _ in range(4):
            shop.order(2)
            shop.pass_time(23 * 60)
        shop.run("lake", "metrics", window=window)
    assert sum(row["pushed"] for row in shop.table("lake", "metrics")) == 32


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_replayed"), [(1, False), (2, True), (3, True)])
def test_passes_amid_traffic_say_together_what_one_at_the_end_says(shop: Shop, seed: int, is_replayed: bool) -> None:
    shop.chance.seed(seed)
    for number in range(6):
        for _ in range(3):
            shop.order(6)
            shop.work("billing")
            if number > 1:  # a group that comes later reads from the beginning
                shop.work("audit", batch=7)
            shop.work("sending", "invoices")
            shop.pass_time(shop.chance.choice([1, 9, 25, 70]))
            shop.catch_up()
        if number == 3 and is_replayed:
            shop.client.replay("orders.dead")
        shop.run("lake", "metrics", "journeys")
    same_as_at_once(shop, is_replayed=is_replayed)


def test_few_reads_cover_what_is_wanted_of_a_log() -> None:
    held = Stretch(10, 1000)
    assert merged([Stretch(1, 5)], held, 8) == []
    assert merged([Stretch(1, 20), Stretch(15, 30), Stretch(31, 40)], held, 8) == [Stretch(10, 40)]
    parts = [Stretch(900, 2000), Stretch(100, 110), Stretch(120, 130), Stretch(500, 510)]
    assert merged(parts, held, 3) == [Stretch(100, 130), Stretch(500, 510), Stretch(900, 1000)]
    assert merged(parts, held, 1) == [Stretch(100, 1000)]
