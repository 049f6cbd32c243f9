"""What a client says of itself: read strictly, bounded, and shown as text that does nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clock import Instant, ManualClock
from skep.engine.pop.consumers import FORGOTTEN_SECONDS, KEPT, Consumed, Consumers
from skep.model import LeaseInfo, QueueKey, Seq
from skep.model.consumer import HEADER_BYTES, ConsumerIdentity, consumer_of, said

ORDERS = QueueKey("orders")
WHOLE = b'name="mailer", host="web-3", version="0.9.0", pid="4711"'


def test_what_was_said_is_kept_and_taken_apart() -> None:
    kept = said(WHOLE)

    assert kept == WHOLE.decode()
    assert consumer_of(kept) == ConsumerIdentity("mailer", "web-3", "0.9.0", "4711")


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
    assert consumer_of(kept) == ConsumerIdentity(
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


def seen_by(clock: ManualClock, *places: Consumed) -> Consumers:
    consumers = Consumers(clock)
    for place in places:
        consumers.answered(consumers.asks(place, waits=False), waits=False)
    return consumers


def lease(consumer: str | None, clock: ManualClock, messages: int = 2) -> LeaseInfo:
    return LeaseInfo(
        queue=ORDERS, group="g", partition="p", messages=messages, first_seq=Seq(1), last_seq=Seq(messages),
        leased_at=clock.now(), deadline=Instant(clock.now() + 1), attempts=1, consumer=consumer,
    )  # fmt: skip


def test_who_waits_and_who_holds_leases_is_told_once() -> None:
    clock = ManualClock(Instant(1_000_000))
    consumers = Consumers(clock)
    asking = consumers.asks(Consumed(ORDERS, "g", "a"), waits=True)
    [one] = consumers.of(ORDERS.tenant, [lease("a", clock), lease("a", clock)])
    assert consumers.waiting(ORDERS, "g") == 1
    consumers.answered(asking, waits=True)

    assert (one.consumer, one.waiting, one.leases, one.messages, one.last_at) == ("a", 1, 2, 4, clock.now())
    assert consumers.waiting(ORDERS, "g") == 0


def test_a_holder_that_this_server_never_saw_is_there() -> None:
    clock = ManualClock(Instant(1_000_000))

    [one] = Consumers(clock).of(ORDERS.tenant, [lease("elsewhere", clock)])

    assert (one.consumer, one.waiting, one.leases) == ("elsewhere", 0, 1)


def test_who_is_gone_is_forgotten_and_who_waits_is_not() -> None:
    clock = ManualClock(Instant(1_000_000))
    consumers = seen_by(clock, Consumed(ORDERS, "g", "gone"))
    consumers.asks(Consumed(ORDERS, "g", "waits"), waits=True)
    clock.advance(FORGOTTEN_SECONDS + 1)

    assert [one.consumer for one in consumers.of(ORDERS.tenant, [])] == ["waits"]


def test_tenants_do_not_see_each_other() -> None:
    clock = ManualClock(Instant(1_000_000))
    consumers = seen_by(clock, Consumed(ORDERS, "g", "mine"), Consumed(QueueKey("orders", "other"), "g", "theirs"))

    assert [one.consumer for one in consumers.of("other", [])] == ["theirs"]


def test_a_client_with_ever_new_names_takes_no_more_room() -> None:
    clock = ManualClock(Instant(1_000_000))
    consumers = Consumers(clock)
    consumers.asks(Consumed(ORDERS, "g", "waits"), waits=True)
    for number in range(3 * KEPT):
        consumers.answered(consumers.asks(Consumed(ORDERS, "g", str(number)), waits=False), waits=False)
        clock.advance(0.001)

    found = {one.consumer for one in consumers.of(ORDERS.tenant, [])}
    assert len(found) <= KEPT
    assert {"waits", str(3 * KEPT - 1)} <= found
