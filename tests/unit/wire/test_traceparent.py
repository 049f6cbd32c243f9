"""W3C trace context: what is taken for one, and what a message carries of it."""

from __future__ import annotations

import msgspec
import pytest

from skep.spec.kept_headers import KeptHeaders
from skep.webhooks.request import kept_headers
from skep.wire.traceparent import STATE_CHARACTERS_MAX, context_in, context_of, trace_context, with_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SOUND = f"00-{TRACE}-{SPAN}-01"


def test_the_trace_id_is_that_of_the_caller() -> None:
    context = trace_context(SOUND, "congo=t61rcWkgMzE")
    assert context is not None
    assert context.trace_id.hex() == TRACE
    assert context.headers == {"traceparent": SOUND, "tracestate": "congo=t61rcWkgMzE"}


def test_a_later_version_may_say_more() -> None:
    assert trace_context(f"01-{TRACE}-{SPAN}-01-more") is not None


@pytest.mark.parametrize(
    "text",
    [
        "", "00", SOUND.upper(), SOUND[:-1], SOUND + "0", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
        f"{SOUND}-", f"{SOUND}-more", f"01-{TRACE}-{SPAN}-01more", f"ff-{TRACE}-{SPAN}-01-more", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01\n", f" {SOUND}", f"00_{TRACE}_{SPAN}_01",
    ],
)  # fmt: skip
def test_what_is_malformed_counts_for_nothing(text: str) -> None:
    assert trace_context(text) is None
    assert trace_context(None) is None


def test_a_state_that_is_too_long_is_left_out() -> None:
    context = trace_context(SOUND, "a" * 513)
    assert context is not None
    assert context.tracestate is None


def test_headers_get_a_context_unless_they_have_one() -> None:
    context = trace_context(SOUND)
    assert context is not None
    assert msgspec.json.decode(with_context(None, context) or b"") == {"traceparent": SOUND}
    assert msgspec.json.decode(with_context(b'{"a":"b"}', context) or b"") == {"a": "b", "traceparent": SOUND}
    own = b'{"traceparent":"mine"}'
    assert with_context(own, context) == own
    assert with_context(b"no json", context) == b"no json"


def test_a_context_is_found_in_headers() -> None:
    found = context_in(msgspec.json.encode({"traceparent": SOUND}))
    assert found is not None
    assert found.trace_id.hex() == TRACE
    for headers in (None, b"{}", b'{"traceparent":"x"}', b'{"traceparent":1}', b'"traceparent"'):
        assert context_in(headers) is None


PARENT = (b"traceparent", SOUND.encode())


def states(*values: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"tracestate", value) for value in values]


def test_two_parents_count_for_none() -> None:
    other = (b"traceparent", f"00-{TRACE}-{SPAN}-00".encode())
    assert context_of([PARENT, other]) is None
    assert context_of([PARENT, PARENT]) is None
    assert context_of([PARENT, (b"traceparent", b"")]) is None
    assert context_of([(b"host", b"x"), PARENT]) == trace_context(SOUND)


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ((b"a=1", b"b=2", b"c=3"), "a=1,b=2,c=3"),
        ((b"", b"a=1"), "a=1"),
        ((b"a=1", b"", b" ", b"b=2,"), "a=1,b=2"),
        ((b"a=1 ,\tb=2",), "a=1 ,\tb=2"),
        ((b"", b""), None),
        ((), None),
    ],
)
def test_several_states_are_one_in_their_order(given: tuple[bytes, ...], state: str | None) -> None:
    context = context_of([*states(*given), PARENT])
    assert context is not None
    assert context.tracestate == state


def test_a_state_without_a_sound_parent_is_dropped() -> None:
    for parents in ([], [PARENT, PARENT], [(b"traceparent", b"00-x")], [(b"traceparent", SOUND.encode() + b"-more")]):
        assert context_of([*parents, *states(b"a=1")]) is None


def test_of_a_state_that_is_too_long_the_newest_members_are_carried() -> None:
    members = [f"k{number}={'v' * 20}".encode() for number in range(100)]
    context = context_of([PARENT, *states(*members)])
    assert context is not None
    assert context.tracestate is not None
    assert len(context.tracestate) <= STATE_CHARACTERS_MAX
    assert b",".join(members).decode().startswith(context.tracestate + ",")


def test_a_state_in_headers_goes_with_the_parent_beside_it_or_not_at_all() -> None:
    context = trace_context(SOUND, "ours=1")
    stateless = trace_context(SOUND)
    alone, broken = b'{"a":"b","tracestate":"x=1"}', b'{"traceparent":"00-x","tracestate":"x=1"}'
    own = msgspec.json.encode({"traceparent": SOUND, "tracestate": "x=1"})

    assert with_context(alone, None) == b'{"a":"b"}'
    assert msgspec.json.decode(with_context(alone, stateless) or b"") == {"a": "b", "traceparent": SOUND}
    assert msgspec.json.decode(with_context(alone, context) or b"")["tracestate"] == "ours=1"
    assert with_context(broken, context) == b'{"traceparent":"00-x"}'
    assert with_context(own, context) == own == with_context(own, None)
    assert with_context(b'{"a":"tracestate"}', None) == b'{"a":"tracestate"}'
    assert with_context(None, None) is None


def test_a_webhook_reads_them_alike() -> None:
    kept = KeptHeaders(None)
    assert kept_headers(kept, [PARENT, *states(b"", b"a=1", b"b=2")]) == {"traceparent": SOUND, "tracestate": "a=1,b=2"}
    later = (b"traceparent", f"01-{TRACE}-{SPAN}-01-more".encode())
    assert kept_headers(kept, [later, later, *states(b"a=1")]) == {}
    assert kept_headers(kept, states(b"a=1")) == {}
    assert kept_headers(KeptHeaders(["tracestate"]), [PARENT, *states(b"a=1")]) == {}
