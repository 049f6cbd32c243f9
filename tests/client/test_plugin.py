"""The fixtures for users' own tests, as pytest finds them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import skep
from skep.clock import ManualClock, SystemClock, seconds
from skep.spec import load
from skep.testing.plugin import SkepServer
from skep.wire.times import to_datetime, to_instant


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


def test_what_the_clock_makes_due_is_done_when_it_has_advanced(
    skep_client: skep.Client, skep_clock: ManualClock
) -> None:
    """Of many queues: a server that is not waited for is not done with all of them by the time of the first look."""
    queues = [f"orders-{number}" for number in range(40)]
    for queue in queues:
        skep_client.push(queue, 1, delay=timedelta(hours=1))
        skep_client.configure(f"{queue}-old", max_age_seconds=60)
        skep_client.push(f"{queue}-old", 1)

    skep_clock.advance(3600)

    assert [len(skep_client.pop(queue)) for queue in queues] == [1] * len(queues)
    assert [len(list(skep_client.dead_letters(f"{queue}-old"))) for queue in queues] == [1] * len(queues)


NIGHTLY = """
app Nightly {
  queue Reports {}
  schedule Report {
    cron: "0 * * * *"
    queue: Reports
  }
}
"""


def test_the_clock_fires_what_a_spec_schedules(skep_client: skep.Client, skep_clock: ManualClock) -> None:
    skep_client.apply(load(NIGHTLY, "nightly.skep"))

    skep_clock.advance(3600)

    assert len(skep_client.pop("Reports")) == 1


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

    assert set(run.stdout.split()) == {"skep", "skep._lazy", "skep.testing", "skep.testing.plugin"}


SPEC = """
app Shop {
  queue Orders {
    message_type {
      total: int
    }
    delivery {
      max_attempts: 7
    }
  }
}
"""


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_spec_that_the_client_applies_is_for_its_own_queues_and_for_this_test_alone(
    skep_client: skep.Client, time: str
) -> None:
    assert skep_client.apps() == []

    skep_client.apply(load(SPEC, "shop.skep"))

    assert [queue.name for queue in skep_client.queues()] == ["Orders"]
    assert skep_client.stats("Orders").settings.max_attempts == 7
    with pytest.raises(skep.SkepError, match="MESSAGE_INVALID"):
        skep_client.push("Orders", {"total": "many"})


def test_the_clock_begins_now_and_stands_still(skep_clock: ManualClock, skep_client: skep.Client) -> None:
    began = skep_clock.now()
    skep_client.push("orders", [1])

    [message] = skep_client.messages("orders")

    assert abs(SystemClock().now() - began) < seconds(3600)
    assert to_instant(message.created_at) == skep_clock.now() == began


def test_a_time_that_is_counted_from_now_is_reached_by_the_clock(
    skep_client: skep.Client, skep_clock: ManualClock
) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    skep_client.push("orders", [1], deliver_at=due)
    assert skep_client.pop("orders") == []
    assert to_instant(due) < skep_clock.now() + seconds(2 * 3600)

    skep_clock.advance(2 * 3600)

    assert [message.json() for message in skep_client.pop("orders", wait_seconds=30)] == [1]
