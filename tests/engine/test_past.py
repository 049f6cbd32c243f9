"""The past as charts get it: what the store leaves out because nothing changed is a flat line, not a hole."""

from __future__ import annotations

import pytest

from skep.clock import Instant, seconds
from skep.config import EngineSettings
from skep.dashboard.charts import charts
from skep.engine.history import steady
from skep.model.history import Moment
from tests.engine.driver import EngineDriver

A_MINUTE = 60

LOOKS_SELDOM = EngineSettings(sample_seconds=7 * 24 * 60 * A_MINUTE)
"""For tests that look at the counters themselves: a look of the engine's own could come between."""


async def test_a_queue_that_was_idle_for_hours_is_a_flat_line_from_end_to_end(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    for _ in range(5 * A_MINUTE):
        await driver.store.sample(driver.clock.now())
        driver.clock.advance(A_MINUTE)
    now = driver.clock.now()
    since = Instant(now - seconds(3_600))

    [moments] = await driver.engine.history.figures_of(["orders"], since)
    whole = await driver.engine.history.figures(since)

    assert [(one.at, one.depth, one.pushed) for one in moments] == [(since, 2, 2), (now, 2, 2)]
    assert whole == moments
    assert charts(moments)[0].lines[0].values == [None, 0.0]


@pytest.mark.parametrize("settings", [LOOKS_SELDOM])
async def test_a_change_after_an_idle_time_is_no_slope_over_that_time(driver: EngineDriver) -> None:
    await driver.push("1")
    for _ in range(30):
        await driver.store.sample(driver.clock.now())
        driver.clock.advance(A_MINUTE)
    await driver.push(*map(str, range(60)))
    await driver.store.sample(driver.clock.now())

    [moments] = await driver.engine.history.figures_of(["orders"], Instant(driver.clock.now() - seconds(20 * A_MINUTE)))

    rates = [rate for rate in charts(moments)[0].lines[0].values if rate is not None]
    assert [one.depth for one in moments] == [1, 1, 61]
    assert rates[0] == 0.0
    assert rates[1] >= 0.5


@pytest.mark.parametrize(("age_seconds", "points"), [(50, 1), (70, 2)])
def test_the_last_moment_holds_until_now_only_if_somebody_has_looked_since(age_seconds: int, points: int) -> None:
    last = Moment(Instant(seconds(1_000)), 5, 4, 0, 0, 1)

    assert len(steady([last], Instant(0), Instant(last.at + seconds(age_seconds)), 10)) == points


def test_a_first_moment_that_changes_at_once_is_not_moved() -> None:
    moments = [Moment(Instant(seconds(990)), 5, 4, 0, 0, 1), Moment(Instant(seconds(1_050)), 6, 4, 0, 0, 2)]

    assert steady(moments, Instant(seconds(1_000)), Instant(seconds(1_060)), 10) == moments
