"""The metrics, as Prometheus and as people read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from skep.clock import ManualClock
from skep.config import HttpLimits
from skep.errors import Code, SkepError
from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api, Reply

JSON = {"Accept": "application/json"}
TENANTS = (f"metered-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def fresh_server() -> Iterator[RunningServer]:
    """A server of its own: on one that all tests share, the queues of others would have taken all labels."""
    with running_server() as server:
        yield server


@pytest.fixture
def api(fresh_server: RunningServer) -> Iterator[Api]:
    """A connection as a tenant that nobody else is."""
    api = Api(fresh_server, next(TENANTS))
    yield api
    api.close()


def scrape(api: Api) -> dict[tuple[str, ...], float]:
    """Every sample as name and label values, in the order of the labels' names."""
    reply = api.get("/metrics")
    assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


def test_messages_are_counted_by_queue(api: Api) -> None:
    api.push("q", 1, transactionId="t")
    api.push("q", 1, transactionId="t")
    api.push("q", 2, partition="b")
    api.push("q", 3, partition="c")
    [one, two, three] = api.pop("q")
    api.ack(one)
    api.ack(two, "retry")
    api.ack(three, "dlq")
    api.ack(three)

    found = scrape(api)

    queue = ("q", api.tenant)
    assert found["skep_pushed_messages_total", *queue] == 3
    assert found["skep_duplicate_messages_total", *queue] == 1
    assert found["skep_popped_messages_total", *queue] == 3
    assert found["skep_refused_messages_total", *queue] == 1
    for outcome in ("completed", "retried", "dead"):
        assert found["skep_acked_messages_total", outcome, *queue] == 1


def test_acks_and_messages_of_one_call_are_counted(api: Api) -> None:
    api.push("q", 1)
    [done] = api.pop("q")
    api.push("q", 2)
    assert api.post("/api/v1/pop/queue/q", {"acknowledgments": [{"leaseId": done["leaseId"]}]}).status == 200

    found = scrape(api)

    queue = ("q", api.tenant)
    assert found["skep_popped_messages_total", *queue] == 2
    assert found["skep_acked_messages_total", "completed", *queue] == 1


def test_a_queue_nobody_made_gets_no_label(api: Api) -> None:
    before = scrape(api)
    api.push("made-up\n", 1)

    found = scrape(api)

    other = ("skep_refused_messages_total", "__other__", "__other__")
    assert found[other] == before[other] + 1
    assert not any("made-up" in label for key in found for label in key)


def test_requests_are_counted_by_template_and_status(api: Api) -> None:
    def requests() -> tuple[float, float]:
        found = scrape(api)
        name, route = "skep_http_requests_total", "/api/v1/pop/queue/{queue}"
        return found.get((name, "GET", route, "204"), 0), found.get((name, "GET", route, "404"), 0)

    api.push("q", 1)
    empty, unknown = requests()
    api.pop("q")
    api.get("/api/v1/pop/queue/q")
    api.get("/api/v1/pop/queue/none")

    assert requests() == (empty + 1, unknown + 1)


def test_latencies_are_counted_by_verb_and_waiting_is_not_latency(api: Api) -> None:
    def counts() -> tuple[float, float, float]:
        found = scrape(api)
        push, pop, poll = (found["skep_request_seconds_count", verb] for verb in ("push", "pop", "poll"))
        return push, pop, poll

    api.push("q", 1)
    push, pop, poll = counts()
    api.push("q", 2)
    api.pop("q", batch=1)
    api.pop("q", batch=1, query="&wait=true&timeout=0.01")

    assert counts() == (push + 1, pop + 1, poll + 1)


def test_what_waits_for_the_archive_is_read_at_the_scrape() -> None:
    with running_server(limits=HttpLimits(metrics_seconds=0)) as server:
        api = Api(server, "shop")
        api.post("/api/v1/configure", {"queue": "q", "settings": {"retention_requires_archive": True}})
        api.push("q", 1, 2, 3)
        api.post("/api/v1/consumer-groups/lake/progress", {"queue": "q", "seq": 1, "archived": True})
        found = scrape(api)
        api.close()

    assert found["skep_queue_unarchived_messages", "q", "shop"] == 2
    assert found["skep_queue_unarchived_seconds", "q", "shop"] > 0


def test_how_queues_and_groups_stand_is_read_at_the_scrape() -> None:
    with running_server(limits=HttpLimits(metrics_seconds=0)) as server:
        api = Api(server, "shop")
        api.push("q", 1, 2, 3)
        [one, two] = api.pop("q", batch=2, query="&consumerGroup=g")
        api.ack(one, "dlq")

        found = scrape(api)
        api.ack(two)
        after = scrape(api)
        api.close()

    assert ("skep_queue_unarchived_messages", "q", "shop") not in found
    assert found["skep_queue_depth", "q", "shop"] == 2
    assert found["skep_queue_in_flight", "q", "shop"] == 1
    assert found["skep_queue_dead_letters", "q", "shop"] == 1
    assert found["skep_queue_oldest_message_seconds", "q", "shop"] >= 0
    assert found["skep_group_lag_messages", "g", "q", "shop"] == 2
    assert found["skep_group_held_messages", "g", "q", "shop"] == 2
    assert found["skep_group_held_depth", "g", "q", "shop"] == 2
    assert found["skep_group_inactive_seconds", "g", "q", "shop"] >= 0
    assert found["skep_group_idle", "g", "q", "shop"] == 0
    assert found["skep_group_lease_utilisation", "g", "q", "shop"] == 0.5
    assert after["skep_group_lease_utilisation", "g", "q", "shop"] == 0
    assert (found["skep_store_up",], found["skep_metrics_complete",]) == (1, 1)
    assert after["skep_group_lag_messages", "g", "q", "shop"] == 1


def test_figures_are_told_again_for_a_while_without_asking_the_store() -> None:
    with running_server(limits=HttpLimits(metrics_seconds=1_000_000)) as server:
        api = Api(server, "shop")
        api.push("q", 1)
        first = scrape(api)
        api.push("q", 2)
        second = scrape(api)
        api.close()

    assert first["skep_queue_depth", "q", "shop"] == second["skep_queue_depth", "q", "shop"] == 1
    assert second["skep_pushed_messages_total", "q", "shop"] == 2


def test_a_clock_that_is_put_back_stops_neither_figures_nor_rates() -> None:
    clock = ManualClock()
    with running_server(limits=HttpLimits(metrics_seconds=10), clock=clock) as server:
        api = Api(server, "shop")
        api.push("q", 1)
        first = scrape(api)
        clock.put_back(3_600)
        api.push("q", 2)
        clock.advance(10)
        second = scrape(api)
        summary = api.request("GET", "/metrics", headers=JSON).json
        api.close()

    assert (first["skep_queue_depth", "q", "shop"], second["skep_queue_depth", "q", "shop"]) == (1, 2)
    assert summary["push"]["throughput"] == 0.2


def test_only_so_many_queues_have_labels_of_their_own() -> None:
    with running_server(limits=HttpLimits(metrics_queues=2, metrics_seconds=0)) as server:
        api = Api(server, "shop")
        for name in "abcd":
            api.push(name, 1)
        found = scrape(api)
        api.close()

    labelled = {key[1] for key in found if key[0] == "skep_pushed_messages_total"}
    assert labelled == {"a", "b", "__other__"}
    assert found["skep_pushed_messages_total", "__other__", "__other__"] == 2
    assert {key[1] for key in found if key[0] == "skep_queue_depth"} == {"a", "b"}
    assert found["skep_metrics_complete",] == 0


def test_prometheus_may_ask_for_open_metrics(api: Api) -> None:
    reply = api.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.body.endswith(b"# EOF\n")


def test_json_has_totals_throughput_and_quantiles(api: Api) -> None:
    def ask() -> Reply:
        return api.request("GET", "/metrics", headers=JSON)

    before = ask().json
    api.push("q", 1, 2)
    for message in api.pop("q"):
        api.ack(message)

    after = ask().json

    assert set(after) == {"push", "pop", "ack", "database", "file_buffer"}
    for verb in ("push", "pop", "ack"):
        assert after[verb]["total"] == before[verb]["total"] + 2
        assert after[verb]["throughput"] > 0
        assert after[verb]["avg_latency_ms"] > 0
        assert 0 < after[verb]["p95_latency_ms"] <= after[verb]["p99_latency_ms"]
    assert after["database"]["healthy"] is True
    assert after["file_buffer"] == {"pending": 0, "flushed": 0, "failed": 0}


def test_metrics_are_told_although_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(limits=HttpLimits(metrics_seconds=0)) as server:
        api = Api(server, "shop")
        api.push("q", 1)

        async def away(*_: object, **__: object) -> list[str]:
            raise SkepError(Code.STORE_UNAVAILABLE, "the database is away")

        monkeypatch.setattr(server.engine, "tenants", away)
        found = scrape(api)
        told = api.request("GET", "/metrics", headers=JSON).json
        api.close()

    assert (found["skep_store_up",], found["skep_pushed_messages_total", "q", "shop"]) == (0, 1)
    assert not any(key[0] == "skep_queue_depth" for key in found)
    assert told["database"]["healthy"] is False


def test_the_connections_of_the_store_are_told_where_there_are_any(server: RunningServer) -> None:
    api = Api(server, "default")
    database = api.request("GET", "/metrics", headers=JSON).json["database"]
    api.close()

    connections = database["connections_active"] + database["connections_idle"]
    is_pooled = type(server.engine._store).__name__ == "PostgresStore"
    assert (connections > 0) is is_pooled
