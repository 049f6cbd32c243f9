"""Scheduled messages on pages: listed, and changed after a preview."""

from __future__ import annotations

from tests.dashboard.visitor import Shown, Visitor
from tests.http.driver import Api

SOON, LATER = "2101-01-01T00:00:00Z", "2101-01-02T00:00:00Z"
TRACE = "01a1de2f-4a86-75f1-89bd-cf7336a85775"


def left(api: Api) -> list[object]:
    return [one["payload"] for one in api.get("/api/v1/scheduled?queue=orders").json["messages"]]


def confirm(visitor: Visitor, **query: str) -> Shown:
    shown = visitor.open("/queues/orders/scheduled/confirm", **query)
    assert shown.status == 200, shown.text
    return shown


def test_the_queue_leads_to_its_scheduled_messages(visitor: Visitor, api: Api) -> None:
    api.push("orders", "a", deliverAt=LATER, partition="p")
    api.push("orders", "b", deliverAt=SOON, transactionId="t")

    assert "/queues/orders/scheduled" in visitor.open("/queues/orders").links
    shown = visitor.open("/queues/orders/scheduled")

    assert shown.text.index('"b"') < shown.text.index('"a"')
    assert "2 messages scheduled in this queue" in shown.text
    narrow = visitor.open("/queues/orders/scheduled", txid="t").text
    assert '"b"' in narrow
    assert '"a"' not in narrow


def test_nothing_scheduled_is_told_calmly(visitor: Visitor, api: Api) -> None:
    api.push("orders", 1)

    assert "Nothing is scheduled" in visitor.open("/queues/orders/scheduled").text
    assert "/queues/orders/scheduled" not in visitor.open("/queues/orders").links


def test_what_was_confirmed_is_what_is_done(visitor: Visitor, api: Api) -> None:
    api.push("orders", 1, 2, 3, deliverAt=SOON)
    asked = confirm(visitor, do="cancel")
    assert "3 scheduled messages of orders will be cancelled" in asked.text

    api.push("orders", "after the question", deliverAt=SOON)
    done = visitor.send(asked.form("/scheduled/cancel"))

    assert done.notice == "3 scheduled messages cancelled."
    assert left(api) == ["after the question"]


def test_one_is_run_and_others_stay(visitor: Visitor, api: Api) -> None:
    [told] = api.push("orders", 1, deliverAt=SOON).json["messages"]
    api.push("orders", 2, deliverAt=SOON)
    asked = confirm(visitor, do="run", id=told["message_id"])

    done = visitor.send(asked.form("/scheduled/run"))

    assert done.notice == "1 scheduled message entered the log."
    assert left(api) == [2]
    assert [message["payload"] for message in api.pop("orders")] == [1]


def test_those_that_match_are_moved_to_the_time_that_is_typed(visitor: Visitor, api: Api) -> None:
    api.push("orders", 1, deliverAt=SOON, partition="p")
    api.push("orders", 2, deliverAt=SOON)
    asked = confirm(visitor, do="move", partition="p")

    wrong = visitor.send(asked.form("/scheduled/move"), ("time", "tomorrow"))
    assert wrong.status in (400, 422)
    done = visitor.send(asked.form("/scheduled/move"), ("time", LATER))

    assert done.notice == "1 scheduled message moved to another time."
    assert left(api) == [2, 1]


def test_hostile_input_is_refused_and_changes_nothing(visitor: Visitor, api: Api) -> None:
    api.push("orders", "<script>alert(1)</script>", deliverAt=SOON, partition="<b>p</b>", transactionId='"><i>')

    shown = visitor.open("/queues/orders/scheduled")
    assert "<script>alert" not in shown.html
    assert "<b>p</b>" not in shown.html
    for query in ({"do": "explode"}, {}, {"do": "run", "id": "nope"}):
        assert visitor.open("/queues/orders/scheduled/confirm", **query).status in (400, 422)
    assert visitor.open("/queues/orders/scheduled", after="x").status in (400, 422)
    assert visitor.post("/queues/orders/scheduled/cancel", [("mark", "-1")]).status in (400, 422)
    assert len(left(api)) == 1


def test_a_trace_shows_those_that_are_scheduled(visitor: Visitor, api: Api) -> None:
    api.push("orders", "later", deliverAt=SOON, traceId=TRACE, transactionId="t-later")

    for wanted in (TRACE, "t-later"):
        shown = visitor.open("/traces", id=wanted)
        assert "Scheduled messages of this trace" in shown.text
        assert '"later"' in shown.text
