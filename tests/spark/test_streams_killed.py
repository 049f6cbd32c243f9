"""A recipe as its user runs it, killed with all its processes between and within batches: each order goes on once."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import psutil
import pytest

import skep
from skep.testing.server import running_server
from tests.spark.killing import ROOT, RUN_SECONDS, dead, family

ORDERS = 3_000
"""New ones before each kill; each is pushed twice."""
KILLED = ("driver", "python", "driver", "python", "driver")
PUSHED = 200
"""At once, so that there are several batches."""
LOOK_SECONDS = 0.05


def started(url: str, folder: Path) -> psutil.Popen:
    with (folder / "driver.log").open("ab") as output:
        return psutil.Popen(
            [sys.executable, str(ROOT / "examples" / "streams" / "dedup.py")], cwd=folder, stdout=output, stderr=output,
            env={**os.environ, "SKEP_URL": url, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip


def waited(driver: psutil.Popen, client: skep.Client, messages: int, folder: Path) -> psutil.Popen:
    """The driver when so many messages have come through. One that has ended is started again, as a service would be."""
    deadline = time.monotonic() + RUN_SECONDS
    while client.log_bounds("unique").last_seq < messages:
        assert time.monotonic() < deadline, (folder / "driver.log").read_text(errors="replace")[-4000:]
        try:
            driver.wait(LOOK_SECONDS)
        except psutil.TimeoutExpired:
            continue
        driver = started(client.settings.urls[0], folder)
    return driver


def kill(victim: str, driver: psutil.Popen) -> None:
    """Kill the driver with its Java; or its Python processes, of which Spark replaces those of tasks, and ends without that of the source."""
    java, python = family(driver)
    if victim == "python":
        dead(*python)
    else:
        dead(*java, driver)
        driver.wait()


@pytest.mark.slow
def test_a_stream_that_is_killed_again_and_again_writes_each_order_once(tmp_path: Path) -> None:
    chance = random.Random(1)
    with running_server() as server, skep.Client(server.url) as client:
        client.configure("unique")
        client.configure("orders")
        driver = started(server.url, tmp_path)
        try:
            for number, victim in enumerate(KILLED):
                new = [{"number": number * ORDERS + order} for order in range(ORDERS)] * 2
                chance.shuffle(new)
                for first in range(0, len(new), PUSHED):
                    client.push("orders", new[first : first + PUSHED])
                # Some have come through: the kill is within the batch that follows, or between this one's commit and Spark's own.
                some = number * ORDERS + chance.choice((1, ORDERS // 2, ORDERS))
                driver = waited(driver, client, some, tmp_path)
                kill(victim, driver)
            client.push("orders", {"number": len(KILLED) * ORDERS})
            driver = waited(driver, client, len(KILLED) * ORDERS + 1, tmp_path)
        finally:
            kill("driver", driver)
        found = sorted(one.json()["number"] for one in client.messages("unique"))

    assert found == list(range(len(KILLED) * ORDERS + 1))
