"""Dead letters over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.driver import Api


def bury(api: Api, queue: str, *payloads: object, error: str | None = None, group: str = "g") -> None:
    """Push messages and give up on each of them."""
    for payload in payloads:
        api.push(queue, payload, partition=f"p-{payload}")
    for message in api.pop(queue, query=f"&consumerGroup={group}"):
        assert api.ack(message, "dlq", error=error).json["status"] == "dead"


def letters(api: Api, query: str) -> list[dict[str, Any]]:
    reply = api.get(f"/api/v1/dlq?{query}")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["deadLetters"]
    return found


def test_dead_letters_are_listed_by_their_own_queue_or_by_the_one_they_come_from(api: Api) -> None:
    bury(api, "q", 1, 2, error="no such customer")

    by_dead = letters(api, "queue=q.dead")
    by_source = letters(api, "queue=q")

    assert by_dead == by_source
    first = by_dead[0]
    assert (first["queue"], first["sourceQueue"], first["sourceSeq"], first["seq"]) == ("q.dead", "q", 1, 1)
    assert (first["reason"], first["error"], first["attempts"]) == ("rejected", "no such customer", 1)
    assert (first["consumerGroup"], first["partition"], first["payload"]) == ("g", "p-1", 1)


def test_a_popped_dead_letter_says_why_it_died_and_other_messages_do_not(api: Api) -> None:
    bury(api, "q", 1, error="no such customer")
    (letter,) = letters(api, "queue=q")

    (popped,) = api.pop("q.dead")

    assert popped["deadLetter"] == {
        "sourceQueue": "q", "sourceSeq": 1, "partition": "p-1", "consumerGroup": "g", "reason": "rejected",
        "error": "no such customer", "attempts": 1, "failedAt": letter["failedAt"],
    }  # fmt: skip
    assert (popped["id"], popped["attempt"]) == (letter["id"], 1)
    api.push("q", 2)
    assert all("deadLetter" not in message for message in api.pop("q"))


def test_a_source_means_its_own_dead_letters_also_in_a_shared_queue(api: Api) -> None:
    for name in ("a", "b"):
        api.post("/api/v1/configure", {"queue": name, "settings": {"dead_letter_queue": "graveyard"}})
        bury(api, name, name)

    assert [letter["payload"] for letter in letters(api, "queue=a")] == ["a"]
    assert [letter["payload"] for letter in letters(api, "queue=graveyard")] == ["a", "b"]
    assert [letter["payload"] for letter in letters(api, "queue=graveyard&sourceQueue=b")] == ["b"]


def test_dead_letters_are_narrowed_and_paged(api: Api) -> None:
    bury(api, "q", 1, error="timeout")
    bury(api, "q", 2, 3, error="no such customer")

    def found(query: str) -> list[int]:
        return [letter["payload"] for letter in letters(api, f"queue=q&{query}")]

    assert found("error=such") == [2, 3]
    assert found("partition=p-2") == [2]
    assert found("reason=rejected") == [1, 2, 3]
    assert found("reason=expired") == []
    assert found("consumerGroup=other") == []
    assert found("since=2100-01-01T00:00:00Z") == []
    assert found("until=2100-01-01T00:00:00Z") == [1, 2, 3]
    page = api.get("/api/v1/dlq?queue=q&limit=2").json
    assert found(f"after={page['after']}") == [3]


def test_a_queue_of_which_nothing_died_yet_has_no_dead_letters(api: Api) -> None:
    api.push("q", 1)

    assert letters(api, "queue=q") == []
    assert api.post("/api/v1/dlq/replay", {"queue": "q"}).json == {
        "dryRun": False,
        "count": 0,
        "replayed": [],
        "upToSeq": None,
    }
    assert api.post("/api/v1/dlq/purge", {"queue": "q"}).json == {"dryRun": False, "count": 0, "upToSeq": None}


def test_a_queue_that_keeps_no_dead_letters_says_so(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "q", "settings": {"dead_letter_queue": "none"}})

    reply = api.get("/api/v1/dlq?queue=q")

    assert (reply.status, reply.code) == (422, "NOT_A_DEAD_LETTER_QUEUE")


def test_a_dead_letter_is_shown_whole_by_seq_or_id(api: Api) -> None:
    payload = {"text": "x" * 5000}
    bury(api, "q", 0)
    api.push("q", payload)
    [message] = api.pop("q", query="&consumerGroup=g")
    api.ack(message, "dlq")
    _, listed = letters(api, "queue=q&preview=10")

    by_seq = api.get("/api/v1/dlq/q.dead/2").json
    by_id = api.get(f"/api/v1/dlq/q/{listed['id']}").json

    assert (listed["payload"], listed["preview"]) == (None, '{"text": "')
    assert by_seq == by_id == {**listed, "payload": payload, "preview": None}
    assert api.get("/api/v1/dlq/q/999").code == "MESSAGE_NOT_FOUND"


def test_a_replay_sends_back_what_was_selected_after_a_dry_run_told_how_many(api: Api) -> None:
    bury(api, "q", 1, error="timeout")
    bury(api, "q", 2, error="no such customer")

    would = api.post("/api/v1/dlq/replay", {"queue": "q", "error": "timeout", "dryRun": True}).json
    assert (would["count"], api.pop("q", query="&consumerGroup=g")) == (1, [])

    did = api.post("/api/v1/dlq/replay", {"queue": "q", "error": "timeout"}).json
    assert (did["count"], did["replayed"][0]["queue"], did["replayed"][0]["deadSeq"]) == (1, "q", 1)
    [back] = api.pop("q", query="&consumerGroup=g")
    assert (back["payload"], back["seq"], back["attempt"]) == (1, did["replayed"][0]["seq"], 1)
    assert [letter["payload"] for letter in letters(api, "queue=q")] == [2]


def test_a_dead_letter_goes_back_with_another_payload(api: Api) -> None:
    bury(api, "q", 1, 2)

    did = api.post("/api/v1/dlq/q/1/replay", {"payload": {"mended": True}})

    [back] = api.pop("q", query="&consumerGroup=g")
    assert (back["payload"], back["partition"], back["attempt"]) == ({"mended": True}, "p-1", 1)
    assert did.json["replayed"] == [{"deadSeq": 1, "queue": "q", "seq": back["seq"], "id": back["id"]}]
    [other] = letters(api, "queue=q")
    assert other["payload"] == 2
    assert api.post(f"/api/v1/dlq/q.dead/{other['id']}/replay", {"payload": None}).json["count"] == 1
    assert {message["payload"] for message in api.pop("q", query="&consumerGroup=other")} == {1, 2}  # as ever
    assert api.pop("q.dead") == []


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("q/9", {"payload": 1}, 404, "MESSAGE_NOT_FOUND"),
        ("q/1", {}, 422, "INVALID_REQUEST"),
        ("q/1", {"payload": 1, "headers": {}}, 422, "INVALID_REQUEST"),
        ("q/one", {"payload": 1}, 422, "INVALID_REQUEST"),
        ("none/1", {"payload": 1}, 404, "QUEUE_NOT_FOUND"),
    ],
)
def test_an_edit_that_cannot_be_done_leaves_the_letter_as_it_is(
    api: Api, path: str, body: dict[str, object], status: int, code: str
) -> None:
    bury(api, "q", 1)

    reply = api.post(f"/api/v1/dlq/{path}/replay", body)

    assert (reply.status, reply.code) == (status, code)
    assert [letter["payload"] for letter in letters(api, "queue=q")] == [1]


def test_a_purge_deletes_what_was_selected_after_a_dry_run_told_how_many(api: Api) -> None:
    bury(api, "q", 1, 2, 3)
    [one, two, _] = letters(api, "queue=q")

    would = api.post("/api/v1/dlq/purge", {"queue": "q", "seqs": [one["seq"]], "dryRun": True}).json
    assert (would, len(letters(api, "queue=q"))) == ({"dryRun": True, "count": 1, "upToSeq": 3}, 3)

    assert api.post("/api/v1/dlq/purge", {"queue": "q", "ids": [two["id"]]}).json["count"] == 1
    assert [letter["payload"] for letter in letters(api, "queue=q")] == [1, 3]
    assert api.post("/api/v1/dlq/purge", {"queue": "q.dead"}).json["count"] == 2


@pytest.mark.parametrize("wrong", [{"ids": ["x"]}, {"seqs": [-1]}, {"reason": "boredom"}, {"since": "now"}, {"id": 1}])
def test_a_selection_that_cannot_be_meant_touches_nothing(api: Api, wrong: dict[str, object]) -> None:
    bury(api, "q", 1)

    reply = api.post("/api/v1/dlq/purge", {"queue": "q", **wrong})

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")
    assert len(letters(api, "queue=q")) == 1


def test_messages_of_a_log_are_buried_once_under_a_name(api: Api) -> None:
    api.push("q", 1, 2, 3)
    wanted = {
        "queue": "q",
        "name": "pipeline-1",
        "letters": [{"seq": 2, "error": "no order"}, {"seq": 9, "error": "?"}],
    }

    told = api.post("/api/v1/dlq/bury", wanted)
    again = api.post("/api/v1/dlq/bury", wanted)

    assert told.json == again.json == {"queue": "q", "deadLetterQueue": "q.dead", "buried": 1, "gone": 1}
    [letter] = api.get("/api/v1/dlq?queue=q").json["deadLetters"]
    assert (letter["sourceSeq"], letter["reason"], letter["error"], letter["payload"]) == (2, "invalid", "no order", 2)
    assert len(api.pop("q")) == 3
    assert api.post("/api/v1/dlq/bury", {**wanted, "queue": "none", "name": "other"}).code == "QUEUE_NOT_FOUND"
    assert api.post("/api/v1/dlq/bury", {**wanted, "letters": [{"seq": 0, "error": ""}]}).code == "INVALID_REQUEST"


def replays(api: Api, query: str) -> list[dict[str, Any]]:
    reply = api.get(f"/api/v1/dlq/replays?{query}")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["replays"]
    return found


def test_replays_are_listed_with_what_became_of_them(api: Api) -> None:
    bury(api, "q", 1, 2, 3, 4, error="no such customer")
    dead = letters(api, "queue=q")
    assert replays(api, "queue=q") == []
    sent = api.post("/api/v1/dlq/replay", {"queue": "q"}).json["replayed"]
    done, again, held = (api.pop("q", 1, "&consumerGroup=g")[0] for _ in range(3))
    api.ack(done)
    api.ack(again, "dlq")

    found = replays(api, "queue=q")

    assert replays(api, "queue=q.dead") == found
    results = {one["seq"]: one["replayResult"] for one in found}
    assert results[done["seq"]] == "settled"
    assert results[again["seq"]] == "dead"
    assert results[held["seq"]] == "in_flight"
    assert sorted(results.values()) == ["dead", "in_flight", "pending", "settled"]
    last = found[0]
    assert last.pop("replayedAt") > dead[3]["failedAt"]
    assert last == {
        "deadLetterQueue": "q.dead", "deadSeq": 4, "deadId": dead[3]["id"], "queue": "q", "seq": sent[3]["seq"],
        "id": sent[3]["id"], "consumerGroup": "g", "reason": "rejected", "error": "no such customer", "attempts": 1,
        "replayResult": results[sent[3]["seq"]],
    }  # fmt: skip


def test_replays_come_in_pages_and_outlive_group_and_queue(api: Api) -> None:
    bury(api, "q", 1, 2)
    api.post("/api/v1/dlq/replay", {"queue": "q"})
    page = api.get("/api/v1/dlq/replays?queue=q&limit=1").json
    assert [one["deadSeq"] for one in page["replays"]] == [2]
    assert [one["deadSeq"] for one in replays(api, f"queue=q&after={page['after']}")] == [1]

    assert api.delete("/api/v1/consumer-groups/g?queue=q").status == 200

    assert [one["replayResult"] for one in replays(api, "queue=q.dead")] == [None, None]
    assert api.get("/api/v1/dlq/replays?queue=nothing").code == "QUEUE_NOT_FOUND"
