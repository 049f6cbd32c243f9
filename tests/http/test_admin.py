"""`/admin`, with the names of its first users."""

from __future__ import annotations

import pytest

from tests.http.driver import Api


def bury(api: Api, queue: str, payload: object, error: str) -> None:
    api.push(queue, payload)
    [message] = api.pop(queue)
    api.ack(message, "dlq", error=error)


def test_vital_signs_are_told_by_tenant(api: Api) -> None:
    api.push("q", 1, 2)
    api.pop("q", batch=1)

    by_header = api.get("/admin/queues").json
    by_parameter = api.request("GET", f"/admin/queues?tenant_id={api.tenant}", headers={"Skep-Tenant": "other"}).json

    [queue] = by_header["queues"]
    assert (queue["name"], queue["depth"], queue["in_flight"]) == ("q", 2, 1)
    assert queue["oldest_message_age_seconds"] >= 0
    assert "messages_per_minute" in queue
    assert by_parameter["queues"][0]["depth"] == 2


def test_dead_letters_are_listed_with_a_preview(api: Api) -> None:
    bury(api, "q", {"incident": "fire"}, "guard rejected")
    bury(api, "q", "x" * 5000, "too long")

    short, long = api.get("/admin/queues/q/dlq").json["dead_letters"]

    assert (short["error"], short["attempts"], short["preview"]) == (
        "guard rejected", 1, {"payload": {"incident": "fire"}},
    )  # fmt: skip
    assert isinstance(short["failed_at"], int)
    assert len(long["preview"]["payload"]) == 1024


def test_a_dead_letter_is_replayed_by_its_id(api: Api) -> None:
    bury(api, "q", 1, "no")
    [letter] = api.get("/admin/queues/q/dlq").json["dead_letters"]

    reply = api.post(f"/admin/queues/q/dlq/{letter['id']}/replay")

    assert reply.json["ok"] is True
    [message] = api.pop("q")
    assert message["id"] == reply.json["new_message_id"]
    assert api.post(f"/admin/queues/q/dlq/{letter['id']}/replay").code == "MESSAGE_NOT_FOUND"


def test_a_dead_letter_is_deleted_by_its_id_also_by_the_dead_letter_queue(api: Api) -> None:
    bury(api, "q", 1, "no")
    [letter] = api.get("/admin/queues/q.dead/dlq").json["dead_letters"]

    assert api.delete(f"/admin/queues/q.dead/dlq/{letter['id']}").json == {"ok": True}
    assert api.delete(f"/admin/queues/q.dead/dlq/{letter['id']}").status == 404
    assert api.get("/admin/queues/q/dlq").json == {"dead_letters": [], "after": None}


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_shred_of_a_queue_that_is_not_there_is_told(api: Api, dry_run: bool) -> None:
    api.push("payments", 1)

    misspelt = api.post("/api/v1/encryption/shred", {"queue": "paymets", "dryRun": dry_run})
    plain = api.post("/api/v1/encryption/shred", {"queue": "payments", "dryRun": dry_run})

    assert (misspelt.status, misspelt.code) == (404, "QUEUE_NOT_FOUND")
    assert (plain.status, plain.json) == (200, {"keys": 0})
