"""Quantiles from buckets, and rates from totals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clock import ManualClock
from skep.observe.histogram import BOUNDS_SECONDS, Histogram
from skep.observe.throughput import WINDOW_SECONDS, Throughput


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


def test_an_empty_histogram_is_zero_all_over() -> None:
    assert (Histogram().count, Histogram().mean_seconds, Histogram().quantile_seconds(0.99)) == (0, 0, 0)


@given(st.lists(st.floats(0, 29), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    low = max((bound for bound in BOUNDS_SECONDS if bound < true), default=0.0)
    high = min(bound for bound in BOUNDS_SECONDS if bound >= true)

    found = filled(values).quantile_seconds(share)

    assert low - 1e-9 <= found <= high + 1e-9


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    assert filled([0.002] * 100).quantile_seconds(0.5) == pytest.approx(0.00175)


def test_what_took_longer_than_all_buckets_counts_as_the_longest_known() -> None:
    assert filled([1000.0]).quantile_seconds(0.99) == BOUNDS_SECONDS[-1]


def test_throughput_is_that_of_the_last_minute() -> None:
    clock = ManualClock()
    throughput = Throughput(clock.now())

    clock.advance(10)
    first = throughput.per_second(clock.now(), {"push": 100})
    clock.advance(WINDOW_SECONDS)
    second = throughput.per_second(clock.now(), {"push": 160})
    clock.advance(WINDOW_SECONDS)
    third = throughput.per_second(clock.now(), {"push": 160})

    assert (first["push"], second["push"], third["push"]) == (10, 1, 0)
