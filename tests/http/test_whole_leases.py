"""Leases over the wire, acked as a whole or up to a seq, without their messages being named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.driver import Api


def popped(api: Api, count: int = 4, **fields: Any) -> list[dict[str, Any]]:
    for number in range(count):
        api.push("q", number, **fields)
    return api.pop("q")


def acked(api: Api, lease: object, **fields: Any) -> Any:
    return api.post("/api/v1/ack", {"leaseId": lease, **fields})


def test_a_lease_id_alone_completes_the_lease(api: Api) -> None:
    messages = popped(api)
    [lease] = {message["leaseId"] for message in messages}

    reply = acked(api, lease)

    assert reply.status == 200
    assert reply.json == {
        "seq": None, "status": "completed", "code": None, "retryAt": None, "deadLetterQueue": None, "messages": 4,
    }  # fmt: skip
    assert api.pop("q") == []


def test_with_a_seq_to_go_through_the_rest_stays_leased(api: Api) -> None:
    messages = popped(api)
    lease = messages[0]["leaseId"]

    reply = acked(api, lease, throughSeq=messages[1]["seq"])

    assert (reply.status, reply.json["messages"]) == (200, 2)
    assert api.ack(messages[2]).json["status"] == "completed"
    assert acked(api, lease).json["messages"] == 1


def test_I6_a_repeat_gets_the_first_answer_and_another_ack_of_the_lease_is_409(api: Api) -> None:
    messages = popped(api)
    lease = messages[0]["leaseId"]
    first = acked(api, lease)

    again, other = acked(api, lease), acked(api, lease, throughSeq=messages[1]["seq"])

    assert again.json == first.json | {"repeated": True}
    assert (other.status, other.code) == (409, "STALE_LEASE")


def test_a_seq_before_all_that_is_left_is_409(api: Api) -> None:
    messages = popped(api)
    api.ack(messages[0])

    reply = acked(api, messages[0]["leaseId"], throughSeq=messages[0]["seq"])

    assert (reply.status, reply.code) == (409, "NOT_IN_LEASE")


def test_a_batch_takes_leases_and_messages_and_what_it_names_is_not_completed_with_its_lease(api: Api) -> None:
    first, second = popped(api, 3, partition="a"), popped(api, 2, partition="b")
    failed = {"leaseId": first[1]["leaseId"], "seq": first[1]["seq"], "status": "retry"}
    acks = [{"leaseId": first[0]["leaseId"]}, failed, {"leaseId": second[0]["leaseId"]}]

    results = api.post("/api/v1/ack/batch", {"acknowledgments": acks}).json["results"]

    assert [(one["seq"], one["status"], one.get("messages")) for one in results] == [
        (None, "completed", 2), (first[1]["seq"], "retrying", None), (None, "completed", 2),
    ]  # fmt: skip
    assert [message["seq"] for message in api.pop("q")] == [first[1]["seq"]]


def test_I15_a_transaction_acks_a_lease_and_pushes(api: Api) -> None:
    messages = popped(api)
    body = {"acknowledgments": [{"leaseId": messages[0]["leaseId"]}], "items": [{"queue": "out", "payload": 2}]}

    reply, again = api.post("/api/v1/transaction", body), api.post("/api/v1/transaction", body)

    assert (reply.json["committed"], reply.json["results"][0]["messages"]) == (True, 4)
    assert again.json == reply.json | {"repeated": True}
    assert len(api.pop("out")) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "failed"}, {"status": "retry"}, {"status": "dlq"}, {"error": "no"}, {"seq": 1, "throughSeq": 1},
        {"seq": None}, {"throughSeq": None}, {"throughSeq": -1}, {"throughSeq": 2**63}, {"throughSeq": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_said_of_a_lease_is_refused_and_changes_nothing(api: Api, fields: dict[str, Any]) -> None:
    """A seq that somebody forgot to fill in is null, and must not complete what it does not name."""
    messages = popped(api)

    reply = acked(api, messages[0]["leaseId"], **fields)

    assert reply.status in (400, 422)
    assert acked(api, messages[0]["leaseId"]).json["messages"] == 4


def test_the_metrics_count_messages_and_not_leases(api: Api) -> None:
    messages = popped(api)
    acked(api, messages[0]["leaseId"])
    acked(api, messages[0]["leaseId"])

    lines = api.get("/metrics").body.decode().splitlines()

    mine = ("skep_acked_messages_total{", f'tenant="{api.tenant}"', 'outcome="completed"')
    [counted] = [line for line in lines if all(part in line for part in mine)]
    assert counted.split()[-1] in ("4", "4.0")
