"""kill -9 of a worker at any point leaves entities, receipts and queues consistent: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import skep
from skep.clock import ManualClock
from tests.support.waiting import until
from tests.worker.killing import killed_at
from tests.worker.place import Place
from tests.worker.test_entities import ACCOUNTS, assert_sound

SPEC = ACCOUNTS.replace("key: account", "key: account\n    batch: 4\n    concurrency: 1\n    delivery { lease: 30s }")
MESSAGES = [{"account": f"a-{number % 3}", "cents": 200 + number} for number in range(12)]
TENANTS = (f"killed-{number}" for number in itertools.count(1))


def reached(place: Place, depth: int) -> bool:
    return place.depth("Deposits") <= depth


def fresh(place: Place) -> Place:
    tenant = next(TENANTS)
    return Place(place.url, skep.Client(place.url, tenant=tenant, clock=place.clock), place.clock)


async def assert_all_done_once(place: Place, app: skep.App) -> None:
    states = [assert_sound(place, app, f"a-{number}")["state"] for number in range(3)]
    assert sum(state["cents"] for state in states) == sum(int(str(one["cents"])) for one in MESSAGES)
    assert sum(state["deposits"] for state in states) == len(MESSAGES)
    followers = place.payloads("Receipts")
    assert len(followers) == len(MESSAGES)
    assert len({(one["account"], one["version"]) for one in followers}) == len(MESSAGES)
    assert (place.depth("Deposits"), place.dead("Deposits")) == (0, [])


async def survive(place: Place, clock: ManualClock, folder: Path, wanted: int, *, answered: bool) -> bool:
    """Kill a worker at its wanted request, and let another one finish; False when it ended before that."""
    there = fresh(place)
    try:
        app = there.app(SPEC)
        spec = folder / "accounts.skep"
        await asyncio.to_thread(spec.write_text, SPEC)
        for one in MESSAGES:
            there.client.push("Deposits", one, partition=str(one["account"]))
        requests, status = await killed_at(place.url, spec, there.client.settings.tenant, wanted, answered=answered)
        assert status in (0, -signal.SIGKILL), requests
        clock.advance(31)  # its leases end
        await there.work(app)
        while there.depth("Deposits"):
            await there.work(app)
        await assert_all_done_once(there, app)
        return status != 0
    finally:
        there.client.close()


@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("wanted", [1, 2, 3, 6])
async def test_a_worker_killed_around_a_request_loses_and_doubles_nothing(
    timed: tuple[Place, ManualClock], tmp_path: Path, wanted: int, answered: bool
) -> None:
    place, clock = timed
    assert await survive(place, clock, tmp_path, wanted, answered=answered)


@pytest.mark.slow
@pytest.mark.parametrize("answered", [False, True], ids=["unsent", "unanswered"])
async def test_a_worker_killed_at_each_of_its_requests_loses_and_doubles_nothing(
    timed: tuple[Place, ManualClock], tmp_path: Path, answered: bool
) -> None:
    place, clock = timed
    for wanted in itertools.count(1):
        if not await survive(place, clock, tmp_path, wanted, answered=answered):
            assert wanted > 9
            return


@pytest.mark.slow
def test_workers_killed_at_random_again_and_again_lose_and_double_nothing(place: Place, tmp_path: Path) -> None:
    spec = ACCOUNTS.replace("key: account", "batch: 20\n    delivery { lease: 1s, max_attempts: 1000 }")
    app = place.app(spec)
    file = tmp_path / "accounts.skep"
    file.write_text(spec)
    chance = random.Random(7)
    count, kills = 2_000, 0
    for start in range(0, count, 1_000):
        numbers = range(start, start + 1_000)
        place.client.push(
            "Deposits",
            [skep.NewMessage({"account": f"a-{n % 40}", "cents": 1}, partition=f"p{n % 60}") for n in numbers],
        )
    tenant = place.client.settings.tenant
    command = [
        sys.executable,
        "-m",
        "skep",
        "work",
        str(file),
        "--url",
        place.url,
        "--tenant",
        tenant,
        "--log-level",
        "error",
    ]
    workers = [subprocess.Popen(command) for _ in range(2)]
    try:
        while before := place.depth("Deposits"):
            goal = max(0, before - 1 - chance.randrange(20))  # once something was done, at any moment from then on
            until(partial(reached, place, goal))
            victim = chance.randrange(2)
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = subprocess.Popen(command)
            kills += 1
        for worker in workers:
            worker.terminate()
            assert worker.wait(60) in (0, -signal.SIGTERM)  # one that has just been started may not listen yet
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert kills >= 3
    states = [assert_sound(place, app, f"a-{number}")["state"] for number in range(40)]
    assert sum(state["cents"] for state in states) == count
    assert sum(state["deposits"] for state in states) == count
    assert place.dead("Deposits") == []
