"""Queues over the wire: made, changed, listed, paused, cleared, deleted."""

from __future__ import annotations

import pytest

from tests.http.driver import Api

QUEUES = "/api/v1/resources/queues"


def configure(api: Api, queue: str, **settings: object) -> None:
    assert api.post("/api/v1/configure", {"queue": queue, "settings": settings}).status == 200


def test_configure_makes_a_queue_and_later_changes_only_what_is_given(api: Api) -> None:
    made = api.post("/api/v1/configure", {"queue": "q", "settings": {"max_attempts": 7, "namespace": "shop"}})
    changed = api.post("/api/v1/configure", {"queue": "q", "settings": {"lease_seconds": 60}})

    assert (made.status, changed.status) == (200, 200)
    settings = changed.json["settings"]
    assert (settings["max_attempts"], settings["namespace"], settings["lease_seconds"]) == (7, "shop", 60.0)
    assert changed.json["createdAt"] == made.json["createdAt"]


def test_a_setting_is_unset_by_null(api: Api) -> None:
    configure(api, "q", namespace="shop")

    assert (
        api.post("/api/v1/configure", {"queue": "q", "settings": {"namespace": None}}).json["settings"]["namespace"]
        is None
    )


def test_a_misspelt_setting_is_named_and_the_right_one_suggested(api: Api) -> None:
    reply = api.post("/api/v1/configure", {"queue": "q", "settings": {"max_attemps": 7}})

    assert (reply.status, reply.code) == (422, "INVALID_SETTING")
    assert "max_attempts" in reply.json["error"]["message"]
    assert api.get(f"{QUEUES}/q").status == 404


def test_a_value_that_a_setting_does_not_have_is_told_with_those_it_has(api: Api) -> None:
    reply = api.post("/api/v1/configure", {"queue": "q", "settings": {"ordering": "lifo"}})

    assert (reply.status, reply.code) == (422, "INVALID_SETTING")
    assert reply.json["error"]["message"] == "'ordering' is one of per_key, fifo, unordered, not 'lifo'."


def test_queues_are_listed_page_by_page(api: Api) -> None:
    for name in ("c", "a", "b"):
        configure(api, name)

    first = api.get(f"{QUEUES}?limit=2").json
    second = api.get(f"{QUEUES}?limit=2&after={first['after']}").json

    assert [queue["name"] for queue in first["queues"]] == ["a", "b"]
    assert [queue["name"] for queue in second["queues"]] == ["c"]
    assert second["after"] is None


def test_a_list_is_narrowed_by_namespace_and_task(api: Api) -> None:
    configure(api, "a", namespace="shop", task="bill")
    configure(api, "b", namespace="shop")
    configure(api, "c", task="bill")

    def names(query: str) -> list[str]:
        return [queue["name"] for queue in api.get(f"{QUEUES}?{query}").json["queues"]]

    assert names("namespace=shop") == ["a", "b"]
    assert names("task=bill") == ["a", "c"]
    assert names("namespace=shop&task=bill") == ["a"]


def test_a_list_tells_figures_unless_they_are_not_wanted(api: Api) -> None:
    api.push("q", 1, 2)

    assert api.get(QUEUES).json["queues"][0]["stats"]["depth"] == 2
    assert api.get(f"{QUEUES}?stats=false").json["queues"][0]["stats"] is None


def test_a_queue_is_shown_with_settings_figures_and_groups(api: Api) -> None:
    api.push("q", 1, 2, 3)
    api.pop("q", batch=1, query="&consumerGroup=g")

    shown = api.get(f"{QUEUES}/q").json

    assert shown["settings"]["ordering"] == "per_key"
    assert (shown["stats"]["depth"], shown["stats"]["inFlight"], shown["stats"]["lastSeq"]) == (3, 1, 3)
    [group] = shown["groups"]
    assert (group["consumerGroup"], group["lag"], group["inFlight"], group["pending"]) == ("g", 3, 1, 2)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{QUEUES}/none"),
        ("DELETE", f"{QUEUES}/none"),
        ("DELETE", f"{QUEUES}/none?dryRun=true"),
        ("POST", "/api/v1/queues/none/pause"),
        ("POST", "/api/v1/queues/none/clear"),
        ("GET", "/api/v1/status/queues/none"),
        ("GET", "/api/v1/status/queues/none/partitions"),
        ("GET", "/api/v1/messages?queue=none"),
        ("GET", "/api/v1/messages/p/t?queue=none"),
        ("GET", "/api/v1/dlq?queue=none"),
        ("GET", "/api/v1/status/retention?queue=none"),
        ("GET", "/api/v1/status/lease-history?queue=none"),
        ("GET", "/api/v1/consumer-groups?queue=none"),
        ("DELETE", "/api/v1/consumer-groups/g?queue=none"),
    ],
)
def test_a_queue_that_is_not_there_is_404(api: Api, method: str, path: str) -> None:
    reply = api.request(method, path)

    assert (reply.status, reply.code) == (404, "QUEUE_NOT_FOUND")


def test_a_dry_run_of_a_deletion_tells_what_would_go_and_deletes_nothing(api: Api) -> None:
    api.push("q", 1, 2)
    api.pop("q", batch=1)

    would = api.delete(f"{QUEUES}/q?dryRun=true").json
    does = api.delete(f"{QUEUES}/q").json

    assert (would["dryRun"], would["depth"], would["inFlight"], would["groups"]) == (True, 2, 1, 1)
    assert does == {**would, "dryRun": False}
    assert api.get(f"{QUEUES}/q").status == 404


def test_a_queue_that_others_bury_in_is_not_deleted(api: Api) -> None:
    configure(api, "graveyard")
    configure(api, "q", dead_letter_queue="graveyard")

    reply = api.delete(f"{QUEUES}/graveyard")

    assert (reply.status, reply.code) == (409, "DEAD_LETTER_QUEUE_IN_USE")


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(api: Api) -> None:
    api.push("q", 1)

    assert api.post("/api/v1/queues/q/pause").json["settings"]["paused"] is True
    assert api.pop("q") == []
    assert api.post("/api/v1/queues/q/resume").json["settings"]["paused"] is False
    assert len(api.pop("q")) == 1


def test_clearing_takes_what_waits_after_a_dry_run_told_how_much(api: Api) -> None:
    api.push("q", 1, 2)
    api.push("q", 3, deliverAt="2100-01-01T00:00:00Z")

    would = api.post("/api/v1/queues/q/clear", {"scope": "all", "dryRun": True}).json
    assert (would["pending"], would["scheduled"], api.get(f"{QUEUES}/q").json["stats"]["depth"]) == (2, 1, 3)

    did = api.post("/api/v1/queues/q/clear").json
    assert (did["scope"], did["pending"], did["scheduled"]) == ("pending", 2, 0)
    assert api.post("/api/v1/queues/q/clear", {"scope": "scheduled"}).json["scheduled"] == 1
    assert api.get(f"{QUEUES}/q").json["stats"]["depth"] == 0


def test_namespaces_and_tasks_are_told_with_their_number_of_queues(api: Api) -> None:
    configure(api, "a", namespace="shop", task="bill")
    configure(api, "b", namespace="shop")
    configure(api, "c", namespace="bank")

    namespaces = api.get("/api/v1/resources/namespaces").json
    tasks = api.get("/api/v1/resources/tasks").json

    assert namespaces == {
        "namespaces": [{"name": "bank", "queues": 1}, {"name": "shop", "queues": 2}],
        "complete": True,
    }
    assert tasks == {"tasks": [{"name": "bill", "queues": 1}], "complete": True}


def test_the_overview_adds_up_the_queues_and_counts_dead_letters_once(api: Api) -> None:
    api.push("a", 1, 2)
    api.push("b", 3)
    [message] = api.pop("b")
    api.ack(message, "dlq")
    api.pop("a", batch=1)

    overview = api.get("/api/v1/resources/overview").json

    assert (overview["queues"], overview["groups"]) == (3, 2)
    assert (overview["depth"], overview["inFlight"], overview["deadLetters"]) == (2, 1, 1)
    assert overview["complete"] is True


def test_an_unknown_parameter_is_refused_on_every_route(api: Api) -> None:
    reply = api.get("/api/v1/resources/overview?limit=3")

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "9999999999999999999999"])
def test_a_page_is_bounded(api: Api, limit: str) -> None:
    reply = api.get(f"{QUEUES}?limit={limit}")

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_a_tenant_sees_its_own_queues_only(api: Api) -> None:
    api.push("q", 1)

    reply = api.request("GET", QUEUES, headers={"Skep-Tenant": api.tenant + "-other"})

    assert reply.json == {"queues": [], "after": None}
