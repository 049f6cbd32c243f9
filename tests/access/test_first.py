"""A key guards pushing and popping."""

from __future__ import annotations

import json

from skep.access.keys import mint
from skep.clock import Instant
from skep.model.key import Grant, Verb
from tests.access.driver import Door


def test_without_a_key_nothing_is_pushed_or_popped(door: Door) -> None:
    nobody = door.with_token(None, door.tenant)

    for reply in (nobody.push("orders", 1), nobody.pop("orders")):
        assert (reply.status, reply.code) == (401, "UNAUTHENTICATED")
        assert reply.headers["www-authenticate"].startswith("Bearer")


def test_a_key_pushes_and_pops_what_it_grants_and_nothing_else(door: Door) -> None:
    pusher = door.caller(Verb.PUSH, queues=["orders*"])
    popper = door.caller(Verb.POP, queues=["orders"])

    assert pusher.push("orders", {"n": 1}).status == 201
    assert (pusher.pop("orders").status, pusher.push("invoices", 1).status) == (403, 403)
    [message] = popper.pop("orders").json["messages"]
    assert message["payload"] == {"n": 1}
    assert popper.push("orders", 1).code == "FORBIDDEN"
    assert popper.pop("orders-too").status == 403
    assert pusher.ack(message).status == 403
    assert popper.ack(message).status == 200


def test_one_message_of_a_batch_that_may_not_be_pushed_refuses_all(door: Door) -> None:
    both = door.caller(Verb.PUSH, Verb.POP, queues=["a"])
    items = [{"queue": "a", "payload": 1}, {"queue": "b", "payload": 1}]

    assert both.post("/api/v1/push", {"items": items}).status == 403
    assert both.pop("a").status in (204, 404)


def test_a_key_of_one_tenant_cannot_name_another(door: Door) -> None:
    own = door.caller(Verb.PUSH)
    own.tenant = door.tenant + "-other"

    assert own.push("orders", 1).status == 403


def test_a_key_of_one_tenant_need_not_name_it(door: Door) -> None:
    door.caller(Verb.PUSH).push("orders", "mine")

    [message] = door.caller(Verb.POP, tenant=door.tenant).pop("orders").json["messages"]
    assert message["payload"] == "mine"


def test_a_key_for_several_tenants_says_which_one_is_meant(door: Door) -> None:
    tenants = [door.tenant + "-a", door.tenant + "-b"]
    both = door.caller(Verb.PUSH, tenants=tenants)

    assert both.push("orders", 1).status == 403
    for tenant in tenants:
        both.tenant = tenant
        assert both.push("orders", tenant).status == 201
        [message] = door.caller(Verb.POP, tenants=[tenant]).pop("orders").json["messages"]
        assert message["payload"] == tenant


def test_a_lease_of_another_queue_or_tenant_cannot_be_settled_or_extended(door: Door) -> None:
    owner = door.caller(Verb.PUSH, Verb.POP)
    owner.push("orders", 1)
    [message] = owner.pop("orders").json["messages"]
    neighbour = door.caller(Verb.POP, queues=["mine"])
    stranger = door.caller(Verb.POP, tenants=["stranger"])

    for other in (neighbour, stranger):
        assert other.ack(message).status == 403
        assert other.post(f"/api/v1/lease/{message['leaseId']}/extend").status == 403
        assert other.post("/api/v1/leases/extend", {"leaseIds": [message["leaseId"]]}).status == 403
    assert owner.ack(message).status == 200


def test_a_revoked_key_counts_no_longer_at_once(door: Door) -> None:
    minted = door.key(Verb.PUSH)
    caller = door.with_token(minted.text)
    assert caller.push("orders", 1).status == 201

    door.revoke(minted)

    reply = caller.push("orders", 1)
    assert (reply.status, reply.json["error"]["message"]) == (401, "The key was revoked.")


def test_a_made_up_key_or_a_wrong_secret_is_nobody(door: Door) -> None:
    right = door.key(Verb.PUSH)
    made_up = mint("x", [Grant((Verb.PUSH,))], created_by="x", now=Instant(1)).text
    head, _, secret = right.text.rpartition("_")
    wrong = f"{head}_{secret[:-1]}{'a' if secret[-1] != 'a' else 'b'}"
    answers = set()
    for token in (made_up, wrong, right.text + "x", right.text.upper(), head, "", "skep__", "x" * 10_000, "ü"):
        reply = door.with_token(token.encode().decode("latin-1")).push("orders", 1)
        assert reply.status == 401, token
        answers.add(json.dumps(reply.json))
    assert len(answers) <= 2  # they do not tell a key that is there from one that is not
