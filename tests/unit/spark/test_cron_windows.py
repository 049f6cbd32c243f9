"""Windows of cron expressions: each time is in one, they follow each other without gaps, also where the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.errors import SkepError
from skep.spark.cron_windows import MICROSECONDS, Cron, cron_window, windows_of

SHIFTS = Cron("0 6,14,22 * * *", "Europe/Berlin")
CRONS = ("* * * * *", "*/15 * * * *", "30 2 * * *", "0 6,14,22 * * *", "0 9 * * 1-5", "0 0 1 * *", "0 0 29 2 *")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
CHANGES = [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)]
"""When the clocks of Berlin change."""


def windows(firings: Cron, *times: datetime | None) -> list[tuple[datetime, datetime] | None]:
    found = windows_of(firings, pa.array(times, MICROSECONDS)).to_pylist()
    return [None if one is None else (one["start"], one["end"]) for one in found]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}Z")


def test_a_window_begins_with_a_firing_and_ends_with_the_next() -> None:
    winter = windows(SHIFTS, utc("2026-01-31T12:59:59.999999"), utc("2026-01-31T13:00"), None, utc("2026-01-31T05:00"))

    morning, late = (
        (utc("2026-01-31T05:00"), utc("2026-01-31T13:00")),
        (utc("2026-01-31T13:00"), utc("2026-01-31T21:00")),
    )
    assert winter == [morning, late, None, morning]


@pytest.mark.parametrize(
    ("time", "start", "end"),
    [
        ("2026-03-29T00:30", "2026-03-28T21:00", "2026-03-29T04:00"),  # seven hours: the clocks go forward
        ("2026-10-25T02:00", "2026-10-24T20:00", "2026-10-25T05:00"),  # nine: they go back
    ],
)
def test_a_night_in_which_the_clocks_change_is_longer_or_shorter(time: str, start: str, end: str) -> None:
    assert windows(SHIFTS, utc(time)) == [(utc(start), utc(end))]


@settings(max_examples=50)
@given(
    st.sampled_from(CRONS), st.sampled_from(ZONES), st.sampled_from(CHANGES), st.lists(st.integers(-600, 600), max_size=12)
)  # fmt: skip
def test_each_time_is_in_its_window_and_windows_do_not_overlap(
    cron: str, zone: str, change: datetime, minutes: list[int]
) -> None:
    times = [change + timedelta(minutes=offset, microseconds=offset) for offset in minutes]

    found = windows(Cron(cron, zone), *times)

    alone = [windows(Cron(cron, zone), time)[0] for time in times]
    assert found == alone
    known = [one for one in found if one is not None]
    assert len(known) == len(times)
    assert all(start <= time < end for time, (start, end) in zip(times, known, strict=True))
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(set(known))))


def test_where_no_firing_comes_before_there_is_no_window() -> None:
    assert windows(Cron("0 0 29 2 *", "UTC"), datetime(1970, 1, 2, tzinfo=UTC)) == [None]
    assert windows(SHIFTS) == []
    assert windows(SHIFTS, None) == [None]


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("0 6", "UTC", "'0 6' is not a cron expression; write minute hour day month weekday"),
        ("0 0 0 6 * *", "UTC", "is not a cron expression"),
        ("0 6 * * *", "Berlin", "there is no time zone 'Berlin'; write Europe/Berlin"),
    ],
)
def test_what_is_no_cron_expression_is_refused_before_anything_runs(cron: str, zone: str, said: str) -> None:
    with pytest.raises(SkepError, match=said):
        cron_window("created_at", cron, zone)
