"""W3C trace context: what is taken for one, and what a message carries of it."""

from __future__ import annotations

import msgspec
import pytest

from skep.traceparent import context_in, trace_context, with_context

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
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01\n", f" {SOUND}", f"00_{TRACE}_{SPAN}_01",
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
    assert msgspec.json.decode(with_context(None, context)) == {"traceparent": SOUND}
    assert msgspec.json.decode(with_context(b'{"a":"b"}', context)) == {"a": "b", "traceparent": SOUND}
    own = b'{"traceparent":"mine"}'
    assert with_context(own, context) == own
    assert with_context(b"no json", context) == b"no json"


def test_a_context_is_found_in_headers() -> None:
    found = context_in(msgspec.json.encode({"traceparent": SOUND}))
    assert found is not None
    assert found.trace_id.hex() == TRACE
    for headers in (None, b"{}", b'{"traceparent":"x"}', b'{"traceparent":1}', b'"traceparent"'):
        assert context_in(headers) is None
