"""What clients have not taken of their answers, all together."""

from __future__ import annotations

from skep.http.connection.unsent import UnsentAnswers


class Slow:
    """A client that has so much to take."""

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.is_cut_off = False

    def cut_off(self) -> None:
        self.is_cut_off = True


def held(unsent: UnsentAnswers, *sizes: int) -> list[Slow]:
    readers = [Slow(size) for size in sizes]
    for reader in readers:
        unsent.hold(reader)
    return readers


def test_the_clients_that_have_been_slow_for_the_longest_are_cut_off() -> None:
    unsent = UnsentAnswers(100)
    readers = held(unsent, 40, 40, 20, 50)
    assert [reader.is_cut_off for reader in readers] == [True, True, False, False]
    assert unsent.held_bytes == 70


def test_what_was_taken_meanwhile_counts_no_longer() -> None:
    unsent = UnsentAnswers(100)
    first, second = held(unsent, 40, 60)
    first.unsent_bytes = 10
    [third] = held(unsent, 30)
    assert not any(reader.is_cut_off for reader in (first, second, third))
    assert unsent.held_bytes == 100
    unsent.let_go(second)
    unsent.let_go(second)
    assert unsent.held_bytes == 40


def test_the_only_answer_there_is_may_be_of_any_size() -> None:
    unsent = UnsentAnswers(100)
    [alone] = held(unsent, 1_000)
    assert not alone.is_cut_off
    [other] = held(unsent, 10)
    assert (alone.is_cut_off, other.is_cut_off) == (True, False)
