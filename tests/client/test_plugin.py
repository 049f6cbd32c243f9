"""The fixtures for users' own tests, as pytest finds them."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import skep
from skep.clock import ManualClock
from skep.testing.plugin import SkepServer
from skep.wire.times import to_datetime


def test_a_test_finds_its_server_empty(skep_client: skep.Client) -> None:
    assert list(skep_client.queues()) == []
    skep_client.push("orders", [1])


def test_another_test_finds_it_empty_too(skep_client: skep.Client) -> None:
    assert list(skep_client.queues()) == []
    skep_client.push("orders", [1])


async def test_both_clients_are_of_the_same_tenant(
    skep_client: skep.Client, skep_async_client: skep.AsyncClient, skep_server: SkepServer
) -> None:
    skep_client.push("orders", [1])

    [message] = await skep_async_client.pop("orders")

    assert message.json() == 1
    assert skep_client.settings.tenant == skep_server.tenant


def test_the_clock_ends_leases(skep_client: skep.Client, skep_clock: ManualClock) -> None:
    skep_client.push("orders", [1])
    skep_client.pop("orders", lease_seconds=60)
    assert skep_client.pop("orders") == []

    skep_clock.advance(61)

    assert skep_client.pop("orders")[0].attempt == 2


def test_the_clock_wakes_who_waits(skep_client: skep.Client, skep_clock: ManualClock) -> None:
    due = to_datetime(skep_clock.now()) + timedelta(hours=1)
    skep_client.push("orders", [1], deliver_at=due)
    skep_clock.advance(3600)

    [message] = skep_client.pop("orders", wait_seconds=30)

    assert message.json() == 1


def test_the_clock_ends_backoff(skep_client: skep.Client, skep_clock: ManualClock) -> None:
    skep_client.push("orders", [1])
    skep_client.pop("orders")[0].nack(delay=100)
    skep_clock.advance(99)
    assert skep_client.pop("orders") == []

    skep_clock.advance(1)

    assert skep_client.pop("orders")[0].attempt == 2


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    code = (
        "import skep.testing.plugin, sys; print(*(n for n in sys.modules if n.startswith(('skep', 'uvicorn', 'apsw'))))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(run.stdout.split()) == {"skep", "skep.testing", "skep.testing.plugin"}
