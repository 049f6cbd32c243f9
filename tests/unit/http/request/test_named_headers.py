"""Headers by their names."""

from __future__ import annotations

from typing import Any

import pytest

from skep.config import HttpLimits
from skep.errors import Code, SkepError
from skep.http.request.bodies import Bodies
from skep.http.request.call import Call, Event
from skep.http.request.peers import Peers
from skep.http.request.scope import HEADERS, REPEATED, name_headers


async def nothing() -> Event:
    return {}


def call_of(*headers: tuple[bytes, bytes]) -> Call:
    """A call as any server of ASGI would hand it over."""
    return Call({"headers": list(headers)}, nothing, HttpLimits(), Bodies(1, Peers("")))


def test_of_several_values_the_first_counts() -> None:
    call = call_of((b"accept", b"first"), (b"x", b"1"), (b"accept", b"second"))

    assert call.header(b"accept") == b"first"
    assert call.header(b"x") == b"1"
    assert call.header(b"y") is None


def test_a_single_header_that_is_given_twice_is_refused_by_its_name() -> None:
    call = call_of((b"skep-tenant", b"a"), (b"x", b"1"), (b"skep-tenant", b"a"))

    with pytest.raises(SkepError, match="the header Skep-Tenant is given twice") as refused:
        call.single_header(b"skep-tenant", Code.UNAUTHENTICATED)

    assert refused.value.code is Code.UNAUTHENTICATED
    assert call.single_header(b"x", Code.UNAUTHENTICATED) == b"1"
    assert call.single_header(b"y", Code.UNAUTHENTICATED) is None


def test_the_connection_names_them_once_for_all() -> None:
    scope: dict[str, Any] = {}

    assert name_headers(scope, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]) == {b"a": b"1", b"b": b"2"}
    assert scope == {HEADERS: {b"a": b"1", b"b": b"2"}, REPEATED: {b"a"}}
