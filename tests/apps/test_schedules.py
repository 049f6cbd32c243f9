"""Schedules: one message for each firing, whoever pushes it, and at most one for a time when nobody ran."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from skep.clock import ManualClock
from skep.model import MessageFilter, QueueChanges, QueueKey
from skep.server.compose import Opened, open_server
from tests.apps.driver import apply_text
from tests.engine.driver import until

REPORTS = QueueKey("Reports")
SPEC = """app Nightly {
  queue Reports { message_type { day: string } }
  schedule Report { cron: "*/10 * * * *", queue: Reports, message { day: string(now).substring(11, 16) } }
}
"""
NOON = 1_782_907_200  # 2026-07-01T12:00:00Z


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON * 1_000_000)


async def days(opened: Opened) -> list[str]:
    page = await opened.engine.browse.messages(MessageFilter(queue=REPORTS, limit=100))
    return [json.loads(one.payload)["day"] for one in page.messages]


async def quiet(*servers: Opened) -> None:
    for opened in servers:
        await until(lambda: opened.schedules.is_quiet)  # noqa: B023 - awaited at once


async def advance(clock: ManualClock, seconds: float, *servers: Opened) -> None:
    clock.advance(seconds)
    await quiet(*servers)


def test_noon_is_noon() -> None:
    assert datetime.fromtimestamp(NOON, UTC).isoformat() == "2026-07-01T12:00:00+00:00"


async def test_a_message_comes_at_each_firing_with_the_time_it_was_due(opened: Opened, clock: ManualClock) -> None:
    await apply_text(opened, SPEC)
    await quiet(opened)
    assert await days(opened) == []
    await advance(clock, 599, opened)
    assert await days(opened) == []
    await advance(clock, 1, opened)
    assert await days(opened) == ["12:10"]
    await advance(clock, 605, opened)
    await advance(clock, 595, opened)
    assert await days(opened) == ["12:10", "12:20", "12:30"]


async def test_after_a_time_without_servers_the_last_firing_is_made_up_for_and_no_other(
    store_url: str, clock: ManualClock
) -> None:
    async with open_server(store_url, clock=clock, environment={}) as opened:
        await apply_text(opened, SPEC)
        await advance(clock, 600, opened)
    clock.advance(3_725)
    for _ in range(2):  # a second start finds that it was made up for
        async with open_server(store_url, clock=clock, environment={}) as opened:
            await quiet(opened)
            assert await days(opened) == ["12:10", "13:10"]
            await advance(clock, 1, opened)
            assert await days(opened) == ["12:10", "13:10"]


async def test_a_process_that_stood_still_makes_up_for_one(opened: Opened, clock: ManualClock) -> None:
    await apply_text(opened, SPEC)
    await quiet(opened)
    await advance(clock, 3_605, opened)
    assert await days(opened) == ["12:10", "13:00"]


async def test_what_was_due_before_the_app_was_applied_is_not_pushed(opened: Opened, clock: ManualClock) -> None:
    await advance(clock, 605, opened)
    await apply_text(opened, SPEC)
    await advance(clock, 1, opened)
    assert await days(opened) == []


async def test_applying_an_app_again_loses_no_firing(opened: Opened, clock: ManualClock) -> None:
    await apply_text(opened, SPEC)
    await quiet(opened)
    await advance(clock, 300, opened)
    await apply_text(opened, SPEC.replace("message_type { day: string }", "message_type { day: string }, batch: 5"))
    await advance(clock, 300, opened)
    assert await days(opened) == ["12:10"]


async def test_a_schedule_that_changes_or_goes_fires_no_longer_as_it_was(opened: Opened, clock: ManualClock) -> None:
    await apply_text(opened, SPEC)
    await quiet(opened)
    await apply_text(opened, SPEC.replace("*/10", "*/15"))
    await advance(clock, 600, opened)
    assert await days(opened) == []
    await advance(clock, 300, opened)
    assert await days(opened) == ["12:15"]
    await apply_text(opened, "app Nightly { queue Reports {} }")
    await advance(clock, 3_600, opened)
    assert await days(opened) == ["12:15"]


async def test_a_queue_that_is_full_gets_its_message_once_there_is_room(opened: Opened, clock: ManualClock) -> None:
    await apply_text(opened, SPEC.replace("Reports {", "Reports { retention { max_depth: 1 },", 1))
    await quiet(opened)
    await advance(clock, 600, opened)
    await advance(clock, 600, opened)
    assert await days(opened) == ["12:10"]
    await opened.engine.update_queue(REPORTS, QueueChanges(max_depth=10))
    await advance(clock, 2, opened)
    assert await days(opened) == ["12:10", "12:20"]


async def test_a_firing_that_waits_for_room_outlives_the_spec_that_makes_room(
    opened: Opened, clock: ManualClock
) -> None:
    full = SPEC.replace("Reports {", "Reports { retention { max_depth: 1 },", 1)
    await apply_text(opened, full)
    await quiet(opened)
    await advance(clock, 600, opened)
    await advance(clock, 600, opened)
    await advance(clock, 5, opened)
    await apply_text(opened, full.replace("max_depth: 1", "max_depth: 9"))
    await advance(clock, 2, opened)
    assert await days(opened) == ["12:10", "12:20"]


async def test_a_firing_whose_message_cannot_be_made_is_passed_over(opened: Opened, clock: ManualClock) -> None:
    await apply_text(
        opened, SPEC.replace("substring(11, 16)", "substring(11, 16 + 1000 * (now.getMinutes() / 20 % 2))")
    )
    await quiet(opened)
    for _ in range(4):
        await advance(clock, 600, opened)
    assert await days(opened) == ["12:10", "12:40"]


async def test_names_may_be_long(opened: Opened, clock: ManualClock) -> None:
    long = SPEC.replace("Nightly", "N" * 200).replace("Report {", f'"{"R" * 200}" {{')
    await apply_text(opened, long)
    await quiet(opened)
    await advance(clock, 600, opened)
    assert await days(opened) == ["12:10"]


async def test_several_servers_of_one_store_push_one_message_per_firing(
    empty_tables_dsn: str, clock: ManualClock
) -> None:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(open_server(empty_tables_dsn, clock=clock, environment={}))
            for _ in range(3)
        ]
        await apply_text(servers[0], SPEC)
        for server in servers:
            await server.catalogue.load()
        await quiet(*servers)
        for _ in range(5):
            await advance(clock, 600, *servers)
        assert await days(servers[0]) == ["12:10", "12:20", "12:30", "12:40", "12:50"]


@pytest.mark.parametrize("ahead", [3_600, 86_400, 10 * 365 * 86_400])
async def test_a_schedule_goes_on_when_a_clock_that_was_ahead_is_put_back(
    opened: Opened, clock: ManualClock, ahead: int
) -> None:
    clock.advance(ahead)
    await apply_text(opened, SPEC)
    await quiet(opened)
    clock.put_back(ahead)
    clock.advance(10)  # it looks at the clock now and then
    await until(lambda: opened.schedules.next_at == (NOON + 600) * 1_000_000)
    await advance(clock, 590, opened)

    assert await days(opened) == ["12:10"]
