"""Grants: each counts for its own verbs, tenants and queues, and patterns match what they say."""

from __future__ import annotations

import pytest

from skep.access.principal import Principal
from skep.access.scopes import includes, is_within, matches
from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model.key import EVERY, Grant, Verb


def test_a_grant_counts_for_its_own_tenant_and_does_not_lend_its_verbs_to_another() -> None:
    grants = [Grant((Verb.PUSH,), ("a",), ("orders",)), Grant((Verb.POP,), ("b",), (EVERY,))]
    principal = Principal("key:k", grants, ManualClock())
    asked = [
        (verb, tenant, queue) for queue in ("orders", "bills") for tenant in "ab" for verb in (Verb.PUSH, Verb.POP)
    ]

    assert [one for one in asked if principal.may(*one)] == [
        (Verb.PUSH, "a", "orders"),
        (Verb.POP, "b", "orders"),
        (Verb.POP, "b", "bills"),
    ]
    assert [principal.may_all(Verb.POP, tenant) for tenant in "ab"] == [False, True]
    assert [principal.may_all(Verb.PUSH, tenant) for tenant in "ab"] == [False, False]
    assert [principal.may_anywhere(Verb.PUSH, tenant) for tenant in "ab"] == [True, False]
    assert (principal.may_everywhere(Verb.POP), principal.may_somewhere(Verb.PUSH)) == (False, False)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["orders2", "order", "Orders"]),
        ("orders*", ["orders", "orders2"], ["order", "my orders"]),
        ("ab*ba", ["abba", "ab-ba"], ["aba", "ab", "ba"]),
        ("*one*two*", ["one two", "onetwo", "-one-two-"], ["two one", "one", "ontwo"]),
    ],
)
def test_a_pattern_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in (*yes, *no) if matches(pattern, name)] == yes


@pytest.mark.parametrize(
    ("outer", "inner", "does"),
    [(EVERY, "a*", True), ("a*", "ab*", True), ("ab", "ab*", False), ("ab*", "a*", False), ("a*b", "a*b", True)],
)
def test_a_pattern_includes_another(outer: str, inner: str, does: bool) -> None:
    assert includes(outer, inner) is does


def test_nobody_gives_a_queue_they_do_not_have() -> None:
    own = [Grant((Verb.PUSH,), ("a",), ("orders",))]

    assert is_within(Grant((Verb.PUSH,), ("a",), ("orders",)), own)
    assert not is_within(Grant((Verb.PUSH,), ("a",), ("orders", "bills")), own)


def test_a_request_names_a_tenant_that_its_key_has_and_need_not_name_the_only_one() -> None:
    one = Principal("key:k", [Grant((Verb.PUSH,), ("a",), (EVERY,))], ManualClock())
    two = Principal("key:k", [Grant((Verb.PUSH,), ("a", "b"), (EVERY,))], ManualClock())

    assert (one.tenant(None), one.tenant("a"), two.tenant("b")) == ("a", "a", "b")
    for principal, named in ((one, "b"), (two, None), (two, "c")):
        with pytest.raises(SkepError) as refused:
            principal.tenant(named)
        assert refused.value.code is Code.FORBIDDEN


def test_a_request_under_way_is_refused_once_its_key_is_revoked() -> None:
    principal = Principal("key:k", [Grant((Verb.PUSH,), ("a",), (EVERY,))], ManualClock())
    principal.check(Verb.PUSH, "a", "orders")
    principal.revoke()
    with pytest.raises(SkepError) as refused:
        principal.check(Verb.PUSH, "a", "orders")

    assert refused.value.code is Code.UNAUTHENTICATED
