"""A large push is written in pieces inside its transaction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.store.postgres.copy_format import PIECE_ROWS, MessageRow, encode, pieces
from skep.store.rules import PIECE_BYTES

BLOCK = bytes(PIECE_BYTES * 2)


def row(seq: int, size: int) -> MessageRow:
    return (seq, 0, bytes(16), None, 1, None, 0, "p", None, None, None, BLOCK[:size])


@given(st.lists(st.one_of(st.integers(0, 2000), st.integers(PIECE_BYTES // 5, PIECE_BYTES * 2)), max_size=30))
def test_pieces_are_all_rows_in_order_and_none_is_too_large(sizes: list[int]) -> None:
    rows = [row(seq, size) for seq, size in enumerate(sizes)]
    found = list(pieces(rows))
    assert [one for piece in found for one in piece] == rows
    for piece in found:
        assert 0 < len(piece) <= PIECE_ROWS
        assert len(piece) == 1 or sum(len(one[11]) for one in piece) <= PIECE_BYTES


def test_many_small_rows_are_divided_by_number() -> None:
    rows = [row(seq, 10) for seq in range(PIECE_ROWS * 2 + 1)]
    assert [len(piece) for piece in pieces(rows)] == [PIECE_ROWS, PIECE_ROWS, 1]
    assert b"".join(encode(piece) for piece in pieces(rows)) == encode(rows)
