"""Splitting and sharing, without a Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.spark.offsets import ROWS_OF_A_TASK, ROWS_WORTH_A_TASK, QueueStretch, in_order, shares, split, stretches

AMOUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10_000), min_size=1)


@given(AMOUNTS, st.integers(1, 200))
def test_every_seq_is_in_one_portion_and_in_order(sizes: dict[str, int], parts: int) -> None:
    whole = [QueueStretch(queue, 7, 6 + size) for queue, size in sizes.items()]

    found = split(whole, parts)

    for stretch in whole:
        mine = [part for part in found if part.queue == stretch.queue]
        seqs = [seq for part in mine for seq in range(part.first, part.last + 1)]
        assert seqs == list(range(stretch.first, stretch.last + 1))
        assert max(map(len, mine)) - min(map(len, mine)) <= 1


@given(AMOUNTS, st.integers(1, 5_000))
def test_shares_use_all_there_is_and_no_more(wanted: dict[str, int], most: int) -> None:
    given_out = shares(wanted, most)

    assert sum(given_out.values()) == min(most, sum(wanted.values()))
    assert all(0 <= given_out[queue] <= wanted[queue] for queue in wanted)


def test_a_small_queue_is_not_starved_by_a_large_one() -> None:
    assert shares({"large": 1_000_000, "small": 1}, 10) == {"large": 9, "small": 1}


def test_few_rows_are_one_task_and_many_are_not_too_many_for_one() -> None:
    assert len(split([QueueStretch("q", 1, 100)], None, cores=8)) == 1
    assert len(split([QueueStretch("q", 1, ROWS_WORTH_A_TASK * 3)], None, cores=8)) == 3
    assert len(split([QueueStretch("q", 1, ROWS_WORTH_A_TASK * 100)], None, cores=8)) == 8
    assert len(split([QueueStretch("q", 1, ROWS_OF_A_TASK * 100)], None, cores=8)) == 100
    assert split([], 5) == []


def test_a_queue_that_starts_nowhere_is_read_from_its_beginning() -> None:
    assert stretches({"a": 5}, {"a": 5, "b": 2}) == [QueueStretch("b", 1, 2)]


def test_offsets_are_in_the_order_of_their_queues() -> None:
    assert list(in_order({"b": 1, "a": 2})) == ["a", "b"]
