"""One message is deleted from its page, after a page that says whose it is."""

from __future__ import annotations

from tests.dashboard.visitor import Visitor
from tests.http.driver import Api

PATH = "/queues/orders/messages/1/delete"


def test_the_message_leads_to_a_question_and_the_answer_deletes_it(visitor: Visitor, api: Api) -> None:
    api.push("orders", {"card": "declined"}, {"n": 2}, transactionId=None)
    api.pop("orders")

    shown = visitor.open("/messages", q="queue:orders", seq="1")
    assert PATH in shown.links
    asked = visitor.open(PATH)
    assert "Message 1 of orders will be deleted permanently, for every group." in asked.text
    assert "A consumer holds it." in asked.text
    assert "declined" in asked.text
    done = visitor.send(asked.form("/delete"))

    assert done.notice == "Message 1 was deleted."
    assert [message["seq"] for message in api.get("/api/v1/messages?queue=orders").json["messages"]] == [2]


def test_what_was_confirmed_is_what_is_deleted(visitor: Visitor, api: Api) -> None:
    """The queue was deleted and made anew between the question and the answer: its message 1 is another one."""
    api.push("orders", "old")
    asked = visitor.open(PATH)
    api.delete("/api/v1/resources/queues/orders")
    api.push("orders", "new")

    refused = visitor.send(asked.form("/delete"))

    assert refused.status == 404
    assert [message["payload"] for message in api.pop("orders")] == ["new"]


def test_a_settled_message_has_nothing_to_delete(visitor: Visitor, api: Api) -> None:
    api.push("orders", 1)
    [held] = api.pop("orders")
    asked = visitor.open(PATH)
    api.post("/api/v1/ack", {"leaseId": held["leaseId"], "seq": 1, "status": "completed"})

    assert "Every group has settled message 1" in visitor.open(PATH).text
    assert visitor.send(asked.form("/delete")).status == 409
    assert visitor.open("/queues/orders/messages/9/delete").status == 404


def test_hostile_input_is_refused_and_changes_nothing(visitor: Visitor, api: Api) -> None:
    api.push("orders", "<script>alert(1)</script>", partition="<b>p</b>", transactionId='"><i>')

    assert "<script>alert" not in visitor.open(PATH).html
    assert "<b>p</b>" not in visitor.open(PATH).html
    for fields in ([], [("id", "nope")], [("id", "")]):
        assert visitor.post(PATH, fields).status in (400, 422)
    assert visitor.open("/queues/orders/messages/x/delete").status in (400, 422)
    assert len(api.pop("orders")) == 1
