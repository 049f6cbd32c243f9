"""Making, listing and revoking keys over the wire: nobody gives what they do not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skep.model.key import Verb
from tests.access.driver import Caller, Door
from tests.access.requests import ALL

KEYS = "/api/v1/keys"


def wish(**grant: Any) -> dict[str, Any]:
    return {"name": "k", "grants": [grant]}


@pytest.fixture
def admin(door: Door) -> Caller:
    """The admin of the test's own tenant."""
    return door.caller(*ALL)


def test_a_made_key_works_at_once_and_its_secret_is_told_once(door: Door, admin: Caller) -> None:
    made = admin.post(KEYS, wish(role="write-only", tenants=[door.tenant], queues=["a*"]))
    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    token, key = made.json["token"], made.json["key"]
    assert token.startswith(f"skep_{key['id']}_")
    caller = door.with_token(token)
    assert (caller.push("abc", 1).status, caller.push("b", 1).status, caller.pop("abc").status) == (201, 403, 403)

    listed = admin.get(KEYS)
    assert key in listed.json["keys"]
    assert token.rpartition("_")[2].encode() not in listed.body
    assert key["createdBy"].startswith("key:")


def test_a_revoked_key_is_refused_at_once_and_stays_listed(door: Door, admin: Caller) -> None:
    made = admin.post(KEYS, wish(role="write-only", tenants=[door.tenant])).json
    caller = door.with_token(made["token"])
    caller.push("a", 1)

    revoked = admin.delete(f"{KEYS}/{made['key']['id']}")

    assert (revoked.status, revoked.json["revokedAt"] is None) == (200, False)
    assert caller.push("a", 1).status == 401
    [listed] = [key for key in admin.get(KEYS).json["keys"] if key["id"] == made["key"]["id"]]
    assert listed["revokedAt"] == revoked.json["revokedAt"]


@pytest.mark.parametrize(
    "grant",
    [
        {"role": "admin", "tenants": ["*"]},
        {"role": "read-only", "tenants": ["{tenant}*"]},
        {"role": "read-only", "tenants": ["{tenant}", "default"]},
        {"role": "read-only", "tenants": ["other"]},
        {"role": "read-only"},
    ],
)
def test_nobody_makes_a_key_for_a_tenant_they_do_not_administer(
    door: Door, admin: Caller, grant: dict[str, Any]
) -> None:
    text = json.dumps(wish(**grant)).replace("{tenant}", door.tenant)
    assert admin.post(KEYS, json.loads(text)).status == 403


def test_nobody_makes_a_key_with_more_than_their_own_verbs_or_queues(door: Door) -> None:
    half = door.caller(Verb.ADMIN, Verb.READ)
    narrow = door.caller(*ALL, queues=["orders*"])
    own = {"tenants": [door.tenant]}

    assert half.post(KEYS, wish(verbs=["push"], **own)).status == 403
    assert half.post(KEYS, wish(verbs=["read", "admin"], **own)).status == 201
    assert narrow.post(KEYS, wish(role="read-only", queues=["orders.a"], **own)).status == 403
    assert narrow.get(KEYS).status == 403


def test_keys_of_other_tenants_are_neither_seen_nor_revoked(door: Door, admin: Caller) -> None:
    other = door.key(*ALL, tenants=[door.tenant + "-other"])
    everywhere = door.key(*ALL, tenants=["*"])
    partly = door.key(*ALL, tenants=[door.tenant, "x"])

    seen = {key["id"] for key in admin.get(f"{KEYS}?limit=1000").json["keys"]}
    for minted in (other, everywhere, partly):
        assert minted.record.id not in seen
        reply = admin.delete(f"{KEYS}/{minted.record.id}")
        assert (reply.status, reply.code) == (404, "KEY_NOT_FOUND")
        assert door.with_token(minted.text, door.tenant).get("/openapi.json").status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"name": "k", "grants": []},
        {"name": "", "grants": [{"role": "admin"}]},
        {"name": "k\n", "grants": [{"role": "admin"}]},
        {"name": "k", "grants": [{}]},
        {"name": "k", "grants": [{"role": "admin", "verbs": ["push"]}]},
        {"name": "k", "grants": [{"verbs": []}]},
        {"name": "k", "grants": [{"role": "root"}]},
        {"name": "k", "grants": [{"role": "admin", "queues": []}]},
        {"name": "k", "grants": [{"role": "admin", "queues": ["********a*"]}]},
        {"name": "k", "grants": [{"role": "admin", "queues": ["a\u0000"]}]},
        {"name": "k", "grants": [{"role": "admin", "surprise": 1}]},
        {"name": "k", "grants": [{"role": "admin"}], "expiresAt": "2001-01-01T00:00:00Z"},
        {"name": "k", "grants": [{"role": "admin"}], "requestsPerSecond": 0},
    ],
)
def test_an_unfit_key_is_refused(door: Door, body: dict[str, Any]) -> None:
    everywhere = door.caller(*ALL, tenants=["*"])
    assert everywhere.post(KEYS, body).status == 422


def test_what_admins_do_is_noted_with_who_what_where_and_how_it_went(door: Door, admin: Caller) -> None:
    admin.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 5}})
    admin.post("/api/v1/queues/nowhere/pause")
    admin.get("/api/v1/resources/queues")
    assert door.caller(Verb.READ).get("/api/v1/audit").status == 403

    entries = admin.get("/api/v1/audit").json["entries"]

    told = [(entry["action"], entry["names"], entry["outcome"], entry["tenant"]) for entry in entries]
    assert told == [
        ("POST /api/v1/queues/{queue}/pause", ["nowhere"], "failed", door.tenant),
        ("POST /api/v1/configure", ["orders"], "done", door.tenant),
    ]
    assert {entry["actor"] for entry in entries} == {f"key:{(admin.token or '').split('_')[1]}"}


def test_the_audit_log_of_everyone_is_for_who_administers_everything(door: Door, admin: Caller) -> None:
    made = admin.post(KEYS, wish(role="write-only", tenants=[door.tenant])).json["key"]
    everywhere = door.caller(*ALL, tenants=["*"], tenant=door.tenant)

    assert admin.get("/api/v1/audit?everywhere=true").status == 403
    first = everywhere.get("/api/v1/audit?everywhere=true&limit=1").json
    [entry] = first["entries"]
    assert (entry["action"], entry["names"], entry["tenant"]) == ("POST /api/v1/keys", [f"key:{made['id']}"], None)
    assert everywhere.get(f"/api/v1/audit?everywhere=true&after={first['after']}").status == 200


def test_who_may_not_leaves_no_entry_before_the_door(door: Door, admin: Caller) -> None:
    door.caller(Verb.READ).post("/api/v1/queues/orders/pause")

    assert admin.get("/api/v1/audit").json["entries"] == []
