"""The guard of a route: who is let in before the body is read, and that no answer leaves without a check."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from skep.config import HttpLimits
from skep.http.request.bodies import Bodies
from skep.http.request.call import Answer, Call, Event, json_answer
from skep.http.request.endpoint import Endpoint, Handler
from skep.http.request.guard import Guard
from skep.http.request.peers import Peers
from skep.http.request.permission import ADMIN_TO_PUSH, PUSH, Permission
from skep.model.key import Grant, Verb
from skep.observe.metrics import Meter
from tests.access.test_gate import Desk


async def unread() -> Event:
    raise AssertionError("the body is read")


async def status(need: Permission, verbs: tuple[Verb, ...], handler: Handler) -> int:
    """The answer of a route with this handler to the holder of a key for these verbs."""
    desk = Desk()
    minted = desk.minted(Grant(verbs))
    await desk.access.put_key(minted.record)
    meter = Meter().route("POST", "/", "test")
    endpoint = Endpoint(handler, HttpLimits(), Bodies(1, Peers("")), None, meter, guard=Guard(desk.gate, need))
    scope = {"query_string": b"", "headers": [(b"authorization", f"Bearer {minted.text}".encode())]}
    sent: list[Event] = []

    async def send(event: Event) -> None:
        sent.append(event)

    await endpoint(scope, unread, send)
    found: int = sent[0]["status"]
    return found


async def with_a_check(call: Call) -> Answer:
    return json_answer(call.queue("orders").name)


async def without_a_check(_call: Call) -> Answer:
    return json_answer("what is in the queue")


async def test_an_answer_that_was_made_without_a_check_is_held_back() -> None:
    assert await status(PUSH, (Verb.PUSH,), with_a_check) == HTTPStatus.OK
    assert await status(PUSH, (Verb.PUSH,), without_a_check) == HTTPStatus.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize(
    ("verbs", "answer"),
    [
        ((Verb.ADMIN, Verb.PUSH), HTTPStatus.OK),
        ((Verb.ADMIN,), HTTPStatus.FORBIDDEN),
        ((Verb.PUSH,), HTTPStatus.FORBIDDEN),
    ],
)
async def test_a_route_that_needs_two_verbs_refuses_who_has_one_of_them(verbs: tuple[Verb, ...], answer: int) -> None:
    assert await status(ADMIN_TO_PUSH, verbs, with_a_check) == answer
