"""Every route without, with the wrong, and with the right scope. The route table makes the requests, so none is forgotten."""

from __future__ import annotations

from skep.http.request.permission import Reach
from skep.model.key import Grant, Verb
from tests.access.driver import Door
from tests.access.requests import ALL, SECRET, guarded_operations, lease_in, made

MAY_BE_OPEN = {
    ("GET", "/health"), ("GET", "/ready"), ("POST", "/api/v1/holder"), ("POST", "/hook/{webhook}"), ("POST", "/hook/{webhook}/{tenant}"),
    ("GET", "/assets/{asset}"), ("GET", "/login"), ("POST", "/login"), ("POST", "/logout"),
}  # fmt: skip

FIND = "/find"
REFUSALS = "/api/v1/webhooks/{webhook}/refusals"
"""The webhook that is asked for is none."""
"""It only leads to other pages."""


def test_nothing_is_open_but_what_must_be(door: Door) -> None:
    found = {(o.method, o.path) for o in door.server.app.every_route if o.access.reach is Reach.OPEN}
    assert found <= MAY_BE_OPEN


def test_every_route_refuses_who_shows_nothing_or_something_made_up(door: Door) -> None:
    lease = lease_in(door)
    nobody, liar = door.with_token(None, door.tenant), door.with_token("skep_" + "0" * 16 + "_" + "0" * 43, door.tenant)
    for operation in guarded_operations(door):
        request = made(operation, door.tenant, lease)
        for caller in (nobody, liar):
            reply = request.by(caller)
            # A page leads to the login instead.
            assert reply.status == 401 or (reply.status == 303 and "login" in reply.headers["location"]), request


def test_every_route_refuses_a_key_without_its_verbs(door: Door) -> None:
    lease = lease_in(door)
    for operation in guarded_operations(door):
        if operation.access.reach is Reach.KNOWN:
            continue
        others = [verb for verb in ALL if verb not in operation.access.verbs]
        reply = made(operation, door.tenant, lease).by(door.caller(*others, tenants=["*"], tenant=door.tenant))
        assert reply.status == 403, (operation.method, operation.path, reply)


def test_every_route_refuses_the_right_verbs_on_another_queue(door: Door) -> None:
    lease = lease_in(door)
    caller = door.caller(*ALL, queues=["mine", "order", "orders?", "Orders", "orders.*x", "*s-orders"])
    for operation in guarded_operations(door):
        reply = made(operation, door.tenant, lease).by(caller)
        if operation.access.reach in (Reach.KNOWN, Reach.LIST) and "tables" not in operation.path:
            told = (303,) if operation.path == FIND else (200, 204, 404)
            assert reply.status in told, (operation.method, operation.path, reply)
        elif "{operation}" in operation.path:  # whose queue is known when it is found
            assert reply.status in (403, 404), reply
        else:
            assert reply.status == 403, (operation.method, operation.path, reply)


def test_every_route_refuses_a_key_of_another_tenant(door: Door) -> None:
    lease = lease_in(door)
    caller = door.caller(*ALL, tenants=[door.tenant + "x", door.tenant[:-1]], tenant=door.tenant)
    for operation in guarded_operations(door):
        if operation.access.reach in (Reach.KNOWN, Reach.ADMINS):  # which are of no tenant
            continue
        reply = made(operation, door.tenant, lease).by(caller)
        assert reply.status == 403, (operation.method, operation.path, reply)


def test_every_route_lets_in_a_key_with_just_its_verbs(door: Door) -> None:
    shared_lease = lease_in(door)  # for all that take nothing away
    for number, operation in enumerate(guarded_operations(door)):
        reads = operation.method == "GET" and operation.access.verbs in ((), (Verb.READ,))
        own = door if reads else Door(door.server, f"{door.tenant}-{number}")
        lease = shared_lease if reads else lease_in(own)
        reach = operation.access.reach
        queues = [SECRET, SECRET + ".dead"] if reach in (Reach.QUEUES, Reach.LIST) else ["*"]
        tenants = ["*"] if reach in (Reach.SERVER, Reach.ADMINS) else [own.tenant]
        if operation.path.endswith("/transaction"):
            queues = ["*"]
        verbs = ALL if reach is Reach.ADMINS else operation.access.verbs or (Verb.READ,)
        if operation.path == "/queues/{queue}/publish":  # which is done by pages for admins, and is to push
            verbs = (*verbs, Verb.PUSH)
        grants = (Grant(verbs, tuple(tenants), tuple(queues)),)
        reply = made(operation, own.tenant, lease).by(own.caller(grants=grants, tenant=own.tenant))
        assert reply.status not in (401, 403, 500), (operation.method, operation.path, reply)
        if not reads:
            own.close()


def test_no_list_tells_of_a_queue_that_may_not_be_seen(door: Door) -> None:
    lease_in(door)
    lease_in(door, "mine")
    caller = door.caller(Verb.READ, Verb.POP, queues=["mine", "mine.dead"])
    for operation in guarded_operations(door):
        if operation.access.reach not in (Reach.LIST, Reach.KNOWN) or operation.path in ("/openapi.json", "/docs"):
            continue
        for query in ("", "?limit=1"):
            if query and "limit" not in operation.query_names:
                continue
            request = made(operation, door.tenant, "")
            path = request.path.replace("/leases?queue=orders", "/queues").replace("name=orders", "name=saw+orders")
            reply = caller.request("GET", path + query.replace("?", "&" if "?" in path else "?"))
            expected = {FIND: (303,), REFUSALS: (404,)}.get(operation.path, (200, 204))
            assert reply.status in expected, (path, reply)
            body = reply.body.replace(b"saw orders", b"")
            assert SECRET.encode() not in body, (path, reply)
    assert [q["name"] for q in caller.get("/api/v1/resources/queues").json["queues"]] == ["mine", "mine.dead"]
