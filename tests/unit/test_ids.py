"""Ids are UUIDv7s of RFC 9562 that rise within a process, whatever its clock does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest

from skep.clock import MICROS_PER_MS, MICROS_PER_SECOND, Instant, ManualClock
from skep.ids import Id, IdMint, id_text, id_texts, minted_at, parse_id


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def mint(clock: ManualClock) -> IdMint:
    return IdMint(clock)


def test_an_id_is_a_version_7_of_the_rfc(clock: ManualClock, mint: IdMint) -> None:
    for id_ in mint.mint_many(1000):
        text = id_text(id_)
        read = UUID(text)
        assert (len(text.replace("-", "")), read.version, read.variant) == (32, 7, RFC_4122)
        assert read.int >> 80 == clock.now() // MICROS_PER_MS
        assert minted_at(id_) == clock.now() // MICROS_PER_MS * MICROS_PER_MS


def test_ids_rise_within_a_millisecond(mint: IdMint) -> None:
    ids = [*(mint.mint() for _ in range(1000)), *mint.mint_many(1000), *(mint.mint() for _ in range(1000))]

    assert all(earlier < later for earlier, later in pairwise(ids))


def test_ids_rise_though_the_clock_goes_back(mint: IdMint, clock: ManualClock) -> None:
    before = mint.mint()
    clock.advance(-3600)
    behind = mint.mint_many(10)
    clock.advance(7200)
    after = mint.mint()

    assert before < behind[0] < behind[-1] < after
    assert minted_at(after) == clock.now() // MICROS_PER_MS * MICROS_PER_MS


def test_threads_share_a_mint_and_never_an_id(mint: IdMint) -> None:
    def several(_: int) -> list[Id]:
        return [id_ for _ in range(50) for id_ in mint.mint_many(3)]

    with ThreadPoolExecutor(8) as threads:
        each = list(threads.map(several, range(8)))

    assert len({id_ for ids in each for id_ in ids}) == 8 * 150
    assert all(ids == sorted(ids) for ids in each)


@pytest.mark.parametrize("counter", [2**62 - 3, 2**73 + 2**62 - 2, 2**74 - 3])
def test_a_counter_that_runs_over_spoils_neither_variant_nor_order(
    mint: IdMint, clock: ManualClock, counter: int
) -> None:
    before = mint.mint()
    mint._counter = counter  # as it comes to stand once in ages
    ids = [before, *mint.mint_many(5), *(mint.mint() for _ in range(5)), *mint.mint_many(5)]

    assert ids[1:] == sorted(set(ids[1:]))
    assert all((UUID(bytes=id_).version, UUID(bytes=id_).variant) == (7, RFC_4122) for id_ in ids)
    later = minted_at(ids[-1])
    assert later is not None
    assert later - clock.now() < MICROS_PER_SECOND


def test_ids_are_written_and_read_as_uuids(mint: IdMint, clock: ManualClock) -> None:
    ids = mint.mint_many(3)
    clock.advance(1)
    ids += mint.mint_many(2)

    assert id_texts(ids) == [str(UUID(bytes=id_)) for id_ in ids]
    assert [parse_id(text) for text in id_texts(ids)] == ids
    assert minted_at(UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8").bytes) is None
    assert minted_at(UUID("00000000-03e8-7000-8000-000000000000").bytes) == Instant(1000 * MICROS_PER_MS)
    with pytest.raises(ValueError):
        parse_id("no id")
