"""When a schedule comes: by its zone, over both changes of the clocks, and the same seen from before and after."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.apps.firings import as_datetime, first_after, last_until
from skep.clock import Instant
from skep.spec.ir import Schedule


def instant(text: str) -> Instant:
    return Instant(round(datetime.fromisoformat(text).timestamp() * 1_000_000))


def firings(schedule: Schedule, start: str, count: int) -> list[str]:
    found, moment = [], instant(start)
    for _ in range(count):
        following = first_after(schedule, moment)
        assert following is not None
        found.append(as_datetime(following).astimezone(UTC).strftime("%m-%d %H:%M"))
        moment = following
    return found


BERLIN = "Europe/Berlin"
CHANGES = [
    # In spring there is no 02:30: it comes as soon as there is a time again.
    ("30 2 * * *", BERLIN, "2026-03-28T00:00+00:00", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
    # In autumn there are two: it comes once.
    ("30 2 * * *", BERLIN, "2026-10-24T00:00+00:00", ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
    # Every hour is every hour.
    ("0 * * * *", BERLIN, "2026-10-24T23:30+00:00", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
    ("30 3 * * 1-5", "UTC", "2026-01-02T12:00+00:00", ["01-05 03:30", "01-06 03:30"]),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00+00:00", ["02-29 00:00"]),
]


@pytest.mark.parametrize(("cron", "zone", "start", "expected"), CHANGES)
def test_a_schedule_comes_by_the_clock_of_its_zone(cron: str, zone: str, start: str, expected: list[str]) -> None:
    assert firings(Schedule(cron=cron, queue="Q", timezone=zone), start, len(expected)) == expected


def test_a_server_that_starts_within_the_second_of_two_equal_hours_does_not_fire_again() -> None:
    schedule = Schedule(cron="30 2 * * *", queue="Q", timezone=BERLIN)
    assert firings(schedule, "2026-10-25T01:15+00:00", 1) == ["10-26 01:30"]


@pytest.mark.parametrize("moment", ["2026-05-01T12:00:00+00:00", "2026-05-01T12:00:00.000001+00:00"])
def test_the_last_firing_may_be_now(moment: str) -> None:
    schedule = Schedule(cron="0 12 * * *", queue="Q")
    assert last_until(schedule, instant(moment)) == instant("2026-05-01T12:00+00:00")
    assert last_until(schedule, Instant(instant("2026-05-01T12:00+00:00") - 1)) == instant("2026-04-30T12:00+00:00")


CRONS = ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 1,2,3 * * 0", "0 12 29 2 *", "5 4 L * *"]


@settings(max_examples=200)
@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe"]),
    moment=st.integers(instant("2026-01-01T00:00+00:00"), instant("2028-01-01T00:00+00:00")),
)
def test_nothing_lies_between_the_last_firing_and_the_next(cron: str, zone: str, moment: int) -> None:
    schedule = Schedule(cron=cron, queue="Q", timezone=zone)
    last, following = last_until(schedule, Instant(moment)), first_after(schedule, Instant(moment))
    assert following is not None
    assert following > moment
    if last is not None:
        assert last <= moment
        assert first_after(schedule, last) == following
