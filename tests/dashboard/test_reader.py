"""A key that may only read, on every page that there is: no form, no link to one, and what is sent by hand is refused.

The pages are found by following links, so that a new page is looked at, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from skep.config import AccessSettings
from skep.model.key import Grant, Verb
from skep.spec import load, to_json
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Caller, Door
from tests.dashboard.visitor import Shown, Visitor

APP = "app A {\n queue Q {}\n webhook Bell { queue: Q, verify: none, idempotency { key: payload.id } }\n}\n"
SOON = "2101-01-01T00:00:00Z"
PAGES_MAX = 200
FORM_PAGES = (
    "/queues/orders/clear", "/queues/orders/publish", "/queues/orders/groups/billing/seek",
    "/dead-letters/orders.dead/confirm?do=replay", "/dead-letters/orders.dead/confirm?do=purge",
    "/queues/orders/scheduled/confirm?do=run", "/queues/orders/scheduled/confirm?do=move", "/operations/audit",
    "/queues/orders/messages/3/delete",
)  # fmt: skip
"""Pages that are there only to change something, or to say what was changed."""


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(access=AccessSettings(required=True)) as server:
        yield server


@pytest.fixture
def door(server: RunningServer) -> Iterator[Door]:
    door = Door(server, "default")
    yield door
    door.close()


@pytest.fixture
def admin(door: Door) -> Caller:
    """A server with something on every page: groups, a lease, dead letters, replays, scheduled messages, refused webhooks."""
    admin = door.caller(*Verb)
    admin.push("orders", 1, 2, 3, 4, 5, traceId="01a1de2f-4a86-75f1-89bd-cf7336a85775")
    for message, error in zip(
        admin.pop("orders", "&consumerGroup=billing").json["messages"], ("no 1", "no money"), strict=False
    ):
        told = {"leaseId": message["leaseId"], "seq": message["seq"], "status": "dlq", "error": error}
        assert admin.post("/api/v1/ack", told).status == 200
    assert len(admin.post("/api/v1/dlq/replay", {"queue": "orders", "error": "money"}).json["replayed"]) == 1
    admin.push("orders", "later", deliverAt=SOON)
    admin.push("mails", "later", deliverAt=SOON)
    owner = door.caller(*Verb, tenants=["*"])
    assert owner.request("PUT", "/api/v1/apps/A", to_json(load(APP, "a.skep")).encode()).status == 200
    assert door.with_token(None).request("POST", "/hook/Bell", b"{}").status == 422
    return admin


def signed_in(server: RunningServer, door: Door, *verbs: Verb) -> Visitor:
    visitor = Visitor(server)
    visitor.sign_in(door.key(*verbs).text)
    return visitor


def all_pages(visitor: Visitor) -> dict[str, Shown]:
    """All pages that links lead to."""
    found: dict[str, Shown] = {}
    left = ["/"]
    while left and len(found) < PAGES_MAX:
        path = left.pop()
        found[path] = visitor.open(path)
        for link in found[path].links:
            parts = urlsplit(link)
            is_page = link.startswith("/") and not parts.path.startswith(("/docs", "/assets"))
            # One order of a table and one range of a chart are as good as another.
            address = f"{parts.path}?{parts.query}".rstrip("?")
            if is_page and not re.search(r"(sort|range|show)=", address) and address not in {*found, *left}:
                left.append(address)
    assert len(found) < PAGES_MAX, "the walk did not come to its end"
    return found


def forms_of(pages: dict[str, Shown]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """The forms that change something: where each goes, with what."""
    return {
        (form.action, tuple(form.fields))
        for page in pages.values()
        for form in page.forms
        if form.method == "post" and not form.action.endswith("/logout")
    }


def test_no_page_has_a_form_that_a_reader_may_not_send(server: RunningServer, door: Door, admin: Caller) -> None:
    pages = all_pages(signed_in(server, door, Verb.READ))

    walked = " ".join(pages)
    for place in ("/scheduled", "/queues/orders/scheduled", "/operations/refusals", "/consumers", "/letters/", "/kinds/",
                  "/replays", "/settings", "/traces", "/pipelines", "/tenants", "/messages"):  # fmt: skip
        assert place in walked, place
    assert {path: page.status for path, page in pages.items() if page.status != 200} == {}
    assert forms_of(pages) == set()


def test_a_page_that_only_changes_something_is_refused_to_a_reader(
    server: RunningServer, door: Door, admin: Caller
) -> None:
    reader, changer = signed_in(server, door, Verb.READ), signed_in(server, door, *Verb)

    for path in FORM_PAGES:
        assert reader.open(path).status == 403, path
        assert changer.open(path).status == 200, path


def test_every_form_of_an_admin_is_refused_to_a_reader(server: RunningServer, door: Door, admin: Caller) -> None:
    forms = forms_of(all_pages(signed_in(server, door, *Verb)))
    reader = signed_in(server, door, Verb.READ)

    actions = {re.sub(r"[0-9a-f-]{36}", "ID", urlsplit(action).path) for action, _ in forms}
    for part in ("/pause", "/settings", "/publish", "/clear", "/release", "/seek", "/delete", "/replay", "/purge", "/edit",
                 "/scheduled/run", "/scheduled/move", "/scheduled/cancel"):  # fmt: skip
        assert any(action.endswith(part) for action in actions), (part, actions)
    for action, fields in sorted(forms):
        assert reader.post(action, fields).status == 403, action
    assert "paused" not in reader.open("/queues/orders").text.partition("Groups")[0].lower()


def test_a_key_that_may_change_and_not_read_sees_no_payload_in_a_form_that_is_shown_again(
    server: RunningServer, door: Door
) -> None:
    owner = door.caller(*Verb)
    owner.push("orders", {"card": "4111"})
    [message] = owner.pop("orders").json["messages"]
    owner.post("/api/v1/ack", {"leaseId": message["leaseId"], "seq": message["seq"], "status": "dlq"})
    owner.push("orders", {"card": "4111"}, deliverAt=SOON)
    grants = (Grant((Verb.ADMIN, Verb.PUSH), ("default",), ("*",)), Grant((Verb.READ,), ("default",), ("else",)))
    blind = Visitor(server)
    blind.sign_in(door.key(grants=grants).text)

    for path, pairs in (
        ("/dead-letters/orders.dead/letters/1/edit", [("payload", "{oops")]),
        ("/dead-letters/orders.dead/purge", [("confirm", "no")]),
        ("/queues/orders/scheduled/move", [("time", "tomorrow")]),
    ):
        shown = blind.post(path, pairs)
        assert shown.status in (400, 422), path
        assert "4111" not in shown.html, path
