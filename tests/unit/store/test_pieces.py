"""How many messages the next piece of a chore takes."""

from __future__ import annotations

from skep.store.pieces import FIRST, TOO_LONG, Pieces

SECONDS = 0.002
MOST = 1_000


def test_a_kind_begins_small_and_is_bounded_by_what_the_caller_allows() -> None:
    pieces = Pieces(SECONDS)

    assert pieces.size("retain", MOST) == FIRST
    assert pieces.size("retain", 7) == 7


def test_a_piece_that_took_too_long_makes_the_next_one_as_much_smaller() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("retain", 100, SECONDS * 4, more=True)

    assert pieces.size("retain", MOST) == 25
    assert pieces.size("purge", MOST) == FIRST, "each kind by itself"


def test_a_piece_touches_one_message_at_the_least() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("retain", 2, SECONDS * 1_000, more=True)

    assert pieces.size("retain", MOST) == 1


def test_short_pieces_grow_while_there_is_more_to_do() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("retain", 100, SECONDS / 10, more=True)
    assert pieces.size("retain", MOST) == 200

    pieces.took("retain", 200, SECONDS / 10, more=False)
    assert pieces.size("retain", MOST) == 200, "a piece that found little says nothing of a full one"

    for _ in range(10):
        pieces.took("retain", pieces.size("retain", MOST), SECONDS / 10, more=True)
    assert pieces.size("retain", MOST) == MOST


def test_a_kind_whose_pieces_cannot_be_made_short_is_long_until_one_is_short_again() -> None:
    pieces = Pieces(SECONDS)
    pieces.took("expire", 1, SECONDS * TOO_LONG * 2, more=True)
    assert pieces.is_long("expire")
    assert not pieces.is_long("retain")

    pieces.took("expire", 1, SECONDS, more=True)
    assert not pieces.is_long("expire")
