"""How many messages the next piece of a chore takes."""

from __future__ import annotations

import pytest

from skep.store import pieces as pieces_module
from skep.store.pieces import FIRST, TOO_LONG, Pieces

SECONDS = 0.002
MOST = 1_000
LEAST = 20


@pytest.fixture(autouse=True)
def by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes go by time, which they do in no other test."""
    monkeypatch.setattr(pieces_module, "LEAST", LEAST)


def test_a_kind_begins_small_and_is_bounded_by_what_the_caller_allows() -> None:
    pieces = Pieces(SECONDS)

    assert pieces.size("retain", MOST) == FIRST
    assert pieces.size("retain", 7) == 7
    assert pieces.size("retain", 0) == 0


def test_a_piece_that_took_too_long_makes_the_next_one_as_much_smaller() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("retain", 100, SECONDS * 4, more=True)

    assert pieces.size("retain", MOST) == 25
    assert pieces.size("purge", MOST) == FIRST, "each kind by itself"


def test_a_piece_touches_some_messages_at_the_least() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("retain", 30, SECONDS * 1_000, more=True)

    assert pieces.size("retain", MOST) == LEAST


def test_short_pieces_grow_while_there_is_more_to_do() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("retain", 100, SECONDS / 10, more=True)
    assert pieces.size("retain", MOST) == 200

    pieces.took("retain", 200, SECONDS / 10, more=False)
    assert pieces.size("retain", MOST) == 200, "a piece that found little says nothing of a full one"

    for _ in range(10):
        pieces.took("retain", pieces.size("retain", MOST), SECONDS / 10, more=True)
    assert pieces.size("retain", MOST) == MOST


def sizes(pieces: Pieces, piece_seconds: float, message_seconds: float) -> list[int]:
    """The sizes of pieces that cost so much by themselves, and so much for each message."""
    found = []
    for _ in range(200):
        size = pieces.size("expire", MOST)
        pieces.took("expire", size, piece_seconds + size * message_seconds, more=True)
        found.append(size)
    return found


def test_pieces_come_to_the_size_that_takes_the_time() -> None:
    assert all(50 <= size <= 100 for size in sizes(Pieces(SECONDS), 0.0, SECONDS / 100)[10:])


def test_pieces_of_large_messages_are_small() -> None:
    assert set(sizes(Pieces(SECONDS), 0.0, SECONDS * 3)[10:]) == {LEAST}


def test_where_a_piece_costs_much_by_itself_it_does_not_shrink_to_nothing() -> None:
    found = sizes(Pieces(SECONDS), SECONDS * 4, SECONDS / 200)

    assert sum(found) / len(found) > 100


def test_a_kind_whose_pieces_cannot_be_made_short_is_long_until_one_is_short_again() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("expire", 1, SECONDS * TOO_LONG * 2, more=True)
    assert pieces.is_long("expire")
    assert not pieces.is_long("retain")

    pieces.took("expire", 1, SECONDS, more=True)
    assert not pieces.is_long("expire")
