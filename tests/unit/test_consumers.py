"""What a client says of itself: read strictly, bounded, and shown as text that does nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.consumers import HEADER_BYTES, Consumer, consumer_of, said

WHOLE = b'name="mailer", host="web-3", version="0.9.0", pid="4711"'


def test_what_was_said_is_kept_and_taken_apart() -> None:
    kept = said(WHOLE)

    assert kept == WHOLE.decode()
    assert consumer_of(kept) == Consumer("mailer", "web-3", "0.9.0", "4711")


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (b'host="web-3"', 'host="web-3"'),
        (b'pid="1",name="a"', 'name="a", pid="1"'),
        (b'name="a", colour="blue"', 'name="a"'),
        (b'name="", host="b"', 'host="b"'),
        (b'name="a", name="b"', 'name="a"'),
    ],
)
def test_parts_may_be_missing_unknown_or_in_another_order(header: bytes, kept: str) -> None:
    assert said(header) == kept


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"mailer",
        b"name=mailer",
        b'name="a" host="b"',
        b'name="<script>"',
        b'name="a\x00"',
        b'name="a', b'name="a",',
        b'NAME="a"',
        b'colour="blue"',
        b'name="\xff"',
        b'name="' + b"a" * HEADER_BYTES + b'"',
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_read_counts_as_none(header: bytes | None) -> None:
    assert said(header) is None


def test_nothing_in_a_value_moves_a_cursor_or_turns_the_writing() -> None:
    kept = said(b'name="%1B%5B31mred%0A%E2%80%AE", host="%FF%C3", pid="%3Cb%3E"')

    assert kept is not None
    assert kept.isprintable()
    assert consumer_of(kept) == Consumer(
        "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",
        None,
        "<b>",
    )


@given(st.binary(max_size=300))
def test_no_header_breaks_it_and_what_is_kept_is_bounded(header: bytes) -> None:
    kept = said(header)

    if kept is not None:
        assert len(kept) <= 9 * HEADER_BYTES
        assert said(kept.encode()) in (kept, None)
        consumer_of(kept)


@given(st.text(max_size=40))
def test_text_that_is_kept_elsewhere_is_taken_apart_without_complaint(text: str) -> None:
    consumer_of(text)
