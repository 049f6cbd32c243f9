"""Confirmed: what someone confirmed is what is done, and what a page says was done, was. All of it without a script."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.testing.server import RunningServer, running_server
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """On both stores: the mark of a dry run is theirs to keep."""
    if request.param == "sqlite":
        with running_server() as server:
            yield server
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    dsn = postgres.create_database()
    with running_server(dsn) as server:
        yield server
    postgres.drop_database(dsn)


def give_up(api: Api, times: int, error: str = "no such customer") -> None:
    api.push("orders", *range(times))
    for message in api.pop("orders", times):
        api.ack(message, "dlq", error=error)


def left(api: Api) -> int:
    return len(api.get("/api/v1/dlq?queue=orders&limit=100").json["deadLetters"])


@pytest.mark.parametrize("query", ["", "&error=customer", "&reason=rejected"])
def test_a_replay_of_4_replays_4_though_a_fifth_came_meanwhile(api: Api, visitor: Visitor, query: str) -> None:
    give_up(api, 4)
    confirm = visitor.open(f"/dead-letters/orders.dead/confirm?do=replay{query}")
    assert "Replay 4" in confirm.text

    give_up(api, 1)
    done = visitor.send(confirm.form("/replay"), button="Replay 4")

    assert done.notice == "4 dead letters replayed."
    assert left(api) == 1


def test_a_replay_of_one_error_s_letters_takes_those_that_were_counted(api: Api, visitor: Visitor) -> None:
    give_up(api, 3)
    kind = next(link for link in visitor.open("/dead-letters").links if "do=replay" in link)
    confirm = visitor.ask("GET", kind)
    assert "Replay 3" in confirm.text

    give_up(api, 2)
    done = visitor.send(confirm.form("/replay"), button="Replay 3")

    assert done.notice == "3 dead letters replayed."
    assert left(api) == 2


def test_a_purge_deletes_what_was_counted_also_when_some_are_gone_already(api: Api, visitor: Visitor) -> None:
    give_up(api, 4)
    confirm = visitor.open("/dead-letters/orders.dead/confirm?do=purge")
    api.post("/api/v1/dlq/purge", {"queue": "orders", "seqs": [1]})

    give_up(api, 2)
    done = visitor.send(confirm.form("/purge"), ("confirm", "purge"))

    assert done.notice == "3 dead letters deleted permanently."
    assert left(api) == 2


def test_the_api_s_dry_run_gives_the_mark_that_the_doing_call_respects(api: Api) -> None:
    give_up(api, 3)
    for verb in ("replay", "purge"):
        told = api.post(f"/api/v1/dlq/{verb}", {"queue": "orders", "dryRun": True}).json
        assert (told["count"], told["upToSeq"]) == (3, 3)
    give_up(api, 2)

    done = api.post("/api/v1/dlq/purge", {"queue": "orders", "upToSeq": 3}).json

    assert done["count"] == 3
    assert api.post("/api/v1/dlq/replay", {"queue": "orders", "upToSeq": 4}).json["count"] == 1
    assert api.post("/api/v1/dlq/replay", {"queue": "orders", "upToSeq": -1}).code == "INVALID_REQUEST"
    assert left(api) == 1


def test_a_queue_that_grew_after_the_confirmation_is_not_cleared(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1, 2)
    confirm = visitor.open("/queues/orders/clear")
    api.push("orders", 3)

    again = visitor.send(confirm.form("/clear"), ("confirm", "orders"))

    assert "More messages arrived after you confirmed" in again.text
    assert api.get("/api/v1/resources/queues/orders").json["stats"]["depth"] == 3
    done = visitor.send(again.form("/clear"), ("confirm", "orders"))
    assert done.notice == "3 messages cleared."


def test_no_url_claims_that_something_was_done(visitor: Visitor) -> None:
    for query in ("notice=replayed&number=9999", "notice=purged"):
        page = visitor.open(f"/dead-letters?{query}")
        assert page.notice is None
        assert "9,999" not in page.text


def test_a_notice_is_said_once_and_by_the_page_it_is_meant_for(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)
    form = visitor.open("/queues/orders").form("/pause")

    paused = visitor.send(form, button="Pause")

    assert paused.notice == "The queue is paused: it accepts messages and delivers none."
    assert visitor.open("/queues/orders").notice is None


@pytest.mark.parametrize("cookie", ["nosuch.1", "replayed.-1", "replayed.<b>", "replayed", "replayed." + "9" * 40])
def test_a_made_up_cookie_says_nothing(visitor: Visitor, cookie: str) -> None:
    visitor.cookies["skep_notice"] = cookie

    assert visitor.open("/dead-letters").notice is None
