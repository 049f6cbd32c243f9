"""Refused requests are written together when the engine's clock says so, and wait while the store is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from skep.clock import ManualClock
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model.refusal import Refusal
from skep.store.protocol.refusals import REFUSALS_KEPT
from skep.store.sqlite import SqliteStore
from tests.engine.driver import until

WRITE_SECONDS = 3_600.0
"""An hour, so that nobody takes the machine's own time for the clock's."""


class Noting:
    """The refusals of a store that is away as long as ``away``; what it is given is counted."""

    def __init__(self) -> None:
        self.away = False
        self.tries = 0
        self.noted: list[Refusal] = []

    async def note(self, refusals: Sequence[Refusal]) -> None:
        self.tries += 1
        if self.away:
            raise SkepError(Code.STORE_UNAVAILABLE, "the store is away")
        self.noted += refusals


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
async def engine(clock: ManualClock, noting: Noting, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    monkeypatch.setattr("skep.engine.refusals.WRITE_SECONDS", WRITE_SECONDS)
    store = SqliteStore(":memory:")
    await store.open()
    store.refusals = noting  # type: ignore[assignment] # only what the writer asks for
    engine = Engine(store, clock, IdMint(clock), Random(7))
    await engine.start()
    await until(lambda: engine.is_quiet)
    yield engine
    await engine.stop()
    await store.close()


def refusal(number: int, webhook: str = "hook") -> Refusal:
    return Refusal(webhook, ManualClock().now(), "SIGNATURE_INVALID", 401, "", "::1", str(number))


async def test_refusals_are_written_together_when_the_engines_clock_says_so(
    engine: Engine, clock: ManualClock, noting: Noting
) -> None:
    for number in range(3):
        engine.refusals.note(refusal(number))
    clock.advance(WRITE_SECONDS)
    await until(lambda: bool(noting.noted))

    assert (noting.tries, [one.excerpt for one in noting.noted]) == (1, ["0", "1", "2"])

    engine.refusals.note(refusal(3))
    clock.advance(WRITE_SECONDS)
    await until(lambda: len(noting.noted) == 4)


async def test_a_clock_that_is_put_back_delays_them_no_longer(
    engine: Engine, clock: ManualClock, noting: Noting
) -> None:
    engine.refusals.note(refusal(0))
    clock.put_back(86_400)
    clock.advance(WRITE_SECONDS)

    await until(lambda: len(noting.noted) == 1)


async def test_while_the_store_is_away_the_newest_wait_and_are_written_with_the_next(
    engine: Engine, clock: ManualClock, noting: Noting
) -> None:
    noting.away = True
    for round_ in range(3):
        for number in range(REFUSALS_KEPT):
            engine.refusals.note(refusal(round_ * REFUSALS_KEPT + number))
        clock.advance(WRITE_SECONDS)
        await until(lambda tries=round_ + 1: noting.tries == tries)  # type: ignore[misc] # a default is an argument, too
    await until(lambda: not engine._in_flight._background)
    noting.away = False
    engine.refusals.note(refusal(-1))
    clock.advance(WRITE_SECONDS)
    await until(lambda: bool(noting.noted))

    expected = [str(number) for number in range(2 * REFUSALS_KEPT + 1, 3 * REFUSALS_KEPT)]
    assert [one.excerpt for one in noting.noted] == [*expected, "-1"]


async def test_what_waits_is_written_when_the_engine_stops(engine: Engine, noting: Noting) -> None:
    engine.refusals.note(refusal(0))

    await engine.stop()

    assert len(noting.noted) == 1
