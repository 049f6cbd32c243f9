"""Rate limits: so many at once, then evenly, for each key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clock import Instant, seconds
from skep.runtime.token_bucket import BUCKETS_MAX, TokenBucket, TokenBuckets

START = Instant(1_750_000_000_000_000)


def test_a_bucket_gives_its_count_at_once_and_then_evenly() -> None:
    buckets = TokenBuckets(4, 2.0)
    waits = [(buckets.take("a", START) - START) / 1_000_000 for _ in range(7)]
    assert waits == [0, 0, 0, 0, 0.5, 1.0, 1.5]
    assert buckets.take("b", START) == START


def test_a_bucket_that_rested_is_full_again_and_no_more_than_that() -> None:
    buckets = TokenBuckets(2, 1.0)
    for _ in range(2):
        buckets.take("a", START)
    later = Instant(START + seconds(100))
    assert [buckets.take("a", later) - later for _ in range(3)] == [0, 0, seconds(0.5)]


def test_who_does_not_wait_takes_nothing_from_an_empty_bucket() -> None:
    bucket = TokenBucket(2, 1.0)

    assert [bucket.missing_seconds(START) for _ in range(4)] == [0, 0, 0.5, 0.5]
    assert bucket.missing_seconds(Instant(START + seconds(0.5))) == 0


@pytest.mark.parametrize("count", [7, 14, 999, 2_000])
def test_no_token_of_a_burst_is_lost_to_rounding(count: int) -> None:
    bucket = TokenBucket(count, 2.0)

    assert [bucket.missing_seconds(START) == 0 for _ in range(count + 1)] == [True] * count + [False]


@given(st.integers(1, 20), st.floats(0.1, 10), st.lists(st.integers(0, 3_000_000), max_size=60))
def test_no_window_has_more_than_twice_the_count_and_the_long_run_has_the_rate(
    count: int, per_seconds: float, pauses: list[int]
) -> None:
    buckets, now = TokenBuckets(count, per_seconds), START
    used: list[int] = []
    for pause in pauses:
        now = Instant(now + pause)
        used.append(buckets.take("a", now))
    assert used == sorted(used)
    window = seconds(per_seconds)
    for first in used:
        inside = sum(first <= at < first + window for at in used)
        assert inside <= 2 * count


def test_full_buckets_are_forgotten_and_their_number_is_bounded() -> None:
    buckets = TokenBuckets(1, 60.0)
    for number in range(BUCKETS_MAX + 10):
        buckets.take(str(number), START)
    assert len(buckets._buckets) == BUCKETS_MAX
    later = Instant(START + seconds(120))
    for number in range(BUCKETS_MAX):
        buckets.take(f"later {number % 5}", later)
    assert len(buckets._buckets) == 5
