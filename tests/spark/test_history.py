"""Metrics, journeys and quality of a past time, computed again from the lake when the server has nothing of it any more."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from skep.spark.running.past import LEASES, PastTime
from tests.spark.conftest import Lake
from tests.spark.test_passes import QUEUES, Shop, shop
from tests.spark.test_running import SHOP, ran
from tests.support.waiting import until

__all__ = ["shop"]
NIGHT = ("archive", "history", "metrics", "journeys")


def trade(shop: Shop) -> None:
    for number in range(3):
        shop.order(6)
        shop.work("billing")
        if number:
            shop.work("audit", batch=7)
        shop.work("sending", "invoices")
        shop.pass_time(shop.chance.choice([1, 9, 25, 70]))
        shop.catch_up()


def tables(shop: Shop) -> dict[str, list[dict[str, Any]]]:
    return {name: shop.table("lake", name) for name in ("metrics", "journeys")}


@pytest.mark.slow
def test_a_past_time_has_the_same_figures_when_the_server_has_lost_everything(shop: Shop, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for _ in range(4):
        trade(shop)
        shop.run("lake", *NIGHT)
    shop.pass_time(3600)
    shop.run("lake", *NIGHT)
    before, end = tables(shop), shop.now()
    assert {row["state"] for row in before["journeys"]} >= {"done", "broken"}
    assert sum(row["dead"] for row in before["metrics"]) > 0

    for queue in QUEUES:  # its log and its leases are gone, and the seqs of the new one begin at 1
        shop.client.delete_queue(queue)
    shop.make_queues()
    shop.pass_time(60)  # windows are computed whole: what comes now is in later ones
    trade(shop)
    shop.run("lake", "archive", "history", all_remade=True)
    again: dict[str, Any] = {"since": "2000-01-01T00:00:00+00:00", "until": end.isoformat()}
    shop.run("lake", "metrics", "journeys", **again)
    assert tables(shop) == before  # what was there is what comes out
    for name in before:
        shutil.rmtree(lake / name)
    shop.run("lake", "metrics", "journeys", **again)
    assert tables(shop) == before

    middle = before["metrics"][0]["window_start"].astimezone(UTC)
    shutil.rmtree(lake / "metrics")
    part: dict[str, Any] = {
        "since": (middle - timedelta(seconds=45)).isoformat(),
        "until": (middle + timedelta(seconds=45)).isoformat(),
    }
    shop.run("lake", "metrics", **part)
    windows = [
        row for row in before["metrics"] if abs(row["window_start"].astimezone(UTC) - middle) <= timedelta(seconds=60)
    ]
    assert [row for row in tables(shop)["metrics"] if row["pushed"] or row["delivered"]] == [
        row for row in windows if row["window_start"].astimezone(UTC) < middle + timedelta(seconds=60)
    ]  # fmt: skip


@pytest.mark.slow
def test_a_past_time_has_the_same_figures_when_retention_took_log_and_leases(shop: Shop, tmp_path: Path) -> None:
    def leases() -> int:
        held = shop.spark.read.format("skep").options(url=shop.url, table="leases", subscribe=",".join(QUEUES)).load()
        return held.count()

    for _ in range(2):
        trade(shop)
        shop.run("lake", *NIGHT)
    shop.pass_time(3600)
    shop.catch_up()
    for queue, group in (("orders", "billing"), ("orders", "audit"), ("invoices", "sending")):
        while messages := shop.client.pop(queue, group=group, batch=100):
            shop.client.ack(*messages)
    shop.pass_time(3600)
    shop.run("lake", *NIGHT)
    before, end = tables(shop), shop.now()
    assert leases() > 0

    for queue in QUEUES:
        shop.client.configure(queue, retention_seconds=60)
    shop.pass_time(8 * 86_400)
    until(
        lambda: all(
            shop.client.log_bounds(queue).first_seq > shop.client.log_bounds(queue).last_seq for queue in QUEUES
        )
    )
    until(lambda: leases() == 0)
    for name in before:
        shutil.rmtree(tmp_path / "lake" / name)
    shop.run("lake", "metrics", "journeys", since="2000-01-01T00:00:00+00:00", until=end.isoformat())
    assert tables(shop) == before


@pytest.mark.slow
def test_history_has_each_lease_once_and_no_partition_by_its_name(shop: Shop, tmp_path: Path) -> None:
    for _ in range(3):
        trade(shop)
        shop.run("lake", "archive", "history")
        shop.run("lake", "history")
    rows = shop.table("lake", LEASES)
    held = shop.spark.read.format("skep").options(url=shop.url, table="leases", subscribe="orders,invoices").load()
    assert sorted((row["queue"], row["position"]) for row in rows) == sorted(
        (row["queue"], row["position"]) for row in held.collect()
    )
    assert not any("p1" in repr(row) for row in rows)


@pytest.mark.slow
def test_the_checks_of_a_past_time_are_made_on_the_messages_of_the_lake(lake: Lake) -> None:
    lake.client.push("Placed", [{"number": 1, "cents": 5}, {"number": 2, "cents": -5}])
    assert ran(lake, "archive").run.error is None
    now = ran(lake, "quality", app=SHOP).run
    lake.client.clear("Placed")
    past = ran(lake, "quality", app=SHOP, since="2000-01-01T00:00:00+00:00").run
    assert [(one.name, one.held, one.figures) for one in past.checks] == [
        (one.name, one.held, one.figures) for one in now.checks
    ]
    assert ran(lake, "quality", app=SHOP, until="2000-01-01T00:00:00+00:00").run.stages[0].rows_in == 0
    assert "run the pipeline history" in (ran(lake, "metrics", since="2000-01-01T00:00:00+00:00").run.error or "")


def test_a_past_time_is_widened_to_whole_windows() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    past = PastTime(noon + timedelta(seconds=1), noon + timedelta(seconds=61))
    assert past.widened(60) == PastTime(noon, noon + timedelta(seconds=120))
    assert PastTime(noon, noon).widened(60) == PastTime(noon, noon)
