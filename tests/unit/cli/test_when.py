"""What a typed time means: a duration is ahead where only the future makes sense, and behind us elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from skep.cli.when import deadline, duration, instant, position
from skep.errors import Code, SkepError

WRITTEN = [
    ("30s", timedelta(seconds=30)),
    ("10m", timedelta(minutes=10)),
    ("2h", timedelta(hours=2)),
    ("1d", timedelta(days=1)),
]


@pytest.mark.parametrize(("text", "length"), WRITTEN)
def test_a_duration_is_ahead_of_now_where_a_time_to_come_is_asked_for(text: str, length: timedelta) -> None:
    before = datetime.now(UTC)
    meant = deadline(text)
    assert before + length <= meant <= datetime.now(UTC) + length


@pytest.mark.parametrize(("text", "length"), WRITTEN)
def test_a_duration_is_so_long_ago_where_a_past_time_is_asked_for(text: str, length: timedelta) -> None:
    before = datetime.now(UTC)
    meant = instant(text)
    assert before - length <= meant <= datetime.now(UTC) - length


def test_a_duration_is_so_long_ago_as_a_position_in_a_log() -> None:
    meant = position("10m")
    assert isinstance(meant, datetime)
    assert meant < datetime.now(UTC)


@pytest.mark.parametrize("read", [instant, deadline])
def test_a_date_means_itself_in_both_directions(read: Callable[[str], datetime]) -> None:
    assert read("2001-02-03T04:05:06Z") == datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert read("2101-02-03T04:05:06+02:00") == datetime(2101, 2, 3, 2, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "10", "-10m", "10 m", "1w", "99999999999999d", "٣m", "2026-13-01"])
def test_what_is_no_time_is_refused_with_the_way_to_write_one(text: str) -> None:
    for read, direction in ((deadline, "from now"), (instant, "ago")):
        with pytest.raises(SkepError) as refused:
            read(text)
        assert refused.value.code is Code.INVALID_TIME
        assert f"10m, 2h, 1d {direction}, not {text!r}" in refused.value.message


def test_only_a_number_and_a_unit_are_a_duration() -> None:
    assert duration("90s") == timedelta(seconds=90)
    assert duration("2026-01-31") is None
