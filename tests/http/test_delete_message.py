"""One message is deleted over the wire, by its seq or its transaction id, for all groups and from who holds it."""

from __future__ import annotations

import pytest

from tests.http.driver import Api

TRACE = "01a1de2f-4a86-75f1-89bd-cf7336a85775"
MESSAGES = "/api/v1/resources/queues/q/messages"


def test_a_message_is_deleted_by_its_seq_and_nobody_gets_it(api: Api) -> None:
    [first, _] = api.push("q", "a", "b").json["messages"]

    would = api.delete(f"{MESSAGES}/1?dryRun=true")
    did = api.delete(f"{MESSAGES}/1?messageId={first['message_id']}")

    assert (would.status, would.json["dryRun"]) == (200, True)
    assert (did.status, did.json) == (
        200,
        {
            "queue": "q", "partition": "Default", "seq": 1, "id": first["message_id"], "transactionId": None,
            "dryRun": False, "consumerGroups": [], "leasesEnded": 0,
        },
    )  # fmt: skip
    assert [message["payload"] for message in api.pop("q")] == ["b"]
    assert api.get(f"{MESSAGES}/1").code == "MESSAGE_NOT_FOUND"


def test_a_message_that_is_held_is_deleted_and_the_late_ack_is_refused(api: Api) -> None:
    api.push("q", "a", "b")
    [held] = api.pop("q", 1)

    did = api.delete(f"{MESSAGES}/1").json
    late = api.post("/api/v1/ack", {"leaseId": held["leaseId"], "seq": 1, "status": "completed"})

    assert (did["consumerGroups"], did["leasesEnded"]) == (["__QUEUE_MODE__"], 1)
    assert (late.status, late.code) == (409, "STALE_LEASE")
    assert api.post(f"/api/v1/lease/{held['leaseId']}/extend").status == 409
    assert [message["payload"] for message in api.pop("q")] == ["b"]


def test_a_message_is_deleted_by_partition_and_transaction_id(api: Api) -> None:
    api.push("q", {"n": 1}, partition="a/b", transactionId="t 1")

    did = api.delete("/api/v1/messages/a%2Fb/t%201?queue=q")
    again = api.push("q", {"n": 1}, partition="a/b", transactionId="t 1")

    assert (did.status, did.json["seq"], did.json["transactionId"]) == (200, 1, "t 1")
    assert api.delete("/api/v1/messages/a%2Fb/t%201?queue=q").code == "MESSAGE_NOT_FOUND"
    assert again.json["messages"][0]["status"] == "duplicate", "its transaction id stays taken"
    assert api.pop("q") == []


def test_what_cannot_be_deleted_says_why(api: Api) -> None:
    api.push("q", "a", "b")
    [held] = api.pop("q", 1)
    api.post("/api/v1/ack", {"leaseId": held["leaseId"], "seq": 1, "status": "completed"})
    api.push("q", "later", deliverAt="2101-01-01T00:00:00Z", transactionId="s")

    settled = api.delete(f"{MESSAGES}/1")

    assert (settled.status, settled.code) == (409, "MESSAGE_SETTLED")
    for path, status, code in (
        (f"{MESSAGES}/9", 404, "MESSAGE_NOT_FOUND"),
        (f"{MESSAGES}/2?messageId={TRACE}", 404, "MESSAGE_NOT_FOUND"),
        ("/api/v1/resources/queues/none/messages/1", 404, "QUEUE_NOT_FOUND"),
        ("/api/v1/messages/Default/none?queue=q", 404, "MESSAGE_NOT_FOUND"),
        ("/api/v1/messages/Default/s?queue=q", 404, "MESSAGE_NOT_FOUND"),
    ):
        reply = api.delete(path)
        assert (reply.status, reply.code) == (status, code), path


@pytest.mark.parametrize(
    "path", [f"{MESSAGES}/x", f"{MESSAGES}/-1", f"{MESSAGES}/1?messageId=x", f"{MESSAGES}/1?dryRun=perhaps"]
)
def test_what_is_no_message_is_refused_and_nothing_is_deleted(api: Api, path: str) -> None:
    api.push("q", "a")

    assert api.delete(path).status in (400, 422)
    assert len(api.pop("q")) == 1
