"""Counts: what a page says is counted, over all queues, and over nothing else than it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.clock import Instant, ManualClock
from skep.model import NewMessage, Outcome, PopRequest, QueueKey
from skep.testing.server import RunningServer, running_server
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api

QUEUES = 1_050
LAST = "zebra"
START = Instant(1_790_000_000_000_000)


async def fill(server: RunningServer) -> None:
    """More queues than a thousand, each with a message; the deepest comes last by name, and has a dead letter."""
    keys = [QueueKey(f"queue-{number:04}") for number in range(QUEUES)]
    engine = server.engine
    for first in range(0, QUEUES, 350):
        await engine.push([NewMessage(key, b"1") for key in keys[first : first + 350]])
    last = QueueKey(LAST)
    await engine.push([NewMessage(last, b"1")] * 30)
    [delivery] = (await engine.pop(PopRequest(last, batch=1))).deliveries
    await engine.settle([delivery.settlement(Outcome.REJECT, error="no such customer")])


@pytest.fixture(scope="module")
def many() -> Iterator[RunningServer]:
    """A server with very many queues; its tests only look."""
    with running_server() as server:
        server.run(fill(server))
        yield server


def shown(visitor: Visitor, path: str) -> str:
    """A page, once the look at all queues is taken."""
    page = visitor.ask("GET", path, headers={"HX-Request": "true"})
    assert page.status == 200
    return page.text


def test_queues_after_the_first_thousand_are_on_the_overview(many: RunningServer) -> None:
    text = shown(Visitor(many), "/")

    assert f"Backlog {QUEUES + 29:,}" in text
    assert f"All queues ({QUEUES + 2:,})" in text
    assert "+ queues" not in text
    assert LAST in text
    assert "Dead letters 1 " in text


def test_queues_after_the_first_thousand_are_found_by_the_filter(many: RunningServer) -> None:
    assert "1 queue" in shown(Visitor(many), f"/queues?filter={LAST}")
    assert f"Queues {QUEUES + 1:,}" in shown(Visitor(many), "/queues")


def test_dead_letters_of_a_queue_after_the_first_thousand_are_shown(many: RunningServer) -> None:
    assert "no such customer" in shown(Visitor(many), "/dead-letters")


def test_the_api_adds_up_all_queues(many: RunningServer) -> None:
    api = Api(many, "default")

    overview = api.get("/api/v1/resources/overview").json
    status = api.get("/api/v1/status").json

    assert (overview["queues"], overview["depth"], overview["complete"]) == (QUEUES + 2, QUEUES + 29, True)
    assert (status["totals"]["queues"], status["totals"]["complete"]) == (QUEUES + 2, True)
    assert api.get("/api/v1/resources/namespaces").json["complete"] is True
    api.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def ticking(clock: ManualClock) -> Iterator[RunningServer]:
    """A server by a clock that one holds."""
    with running_server(clock=clock) as server:
        yield server


def give_up(api: Api, queue: str, times: int) -> None:
    for _ in range(times):
        [message] = api.pop(queue, 1)
        api.ack(message, "dlq", error="no such customer")


def test_one_message_that_was_dead_lettered_is_one_and_not_a_rate_times_sixty(
    ticking: RunningServer, clock: ManualClock
) -> None:
    api, visitor = Api(ticking, "default"), Visitor(ticking)
    api.push("orders", *range(5))
    ticking.run(ticking.engine._store.sample(ticking.engine.now()))
    clock.advance(20)

    give_up(api, "orders", 1)

    assert "1 message dead-lettered in the last minute" in visitor.open("/").text
    clock.advance(30)
    give_up(api, "orders", 2)
    clock.advance(2)
    assert "3 messages dead-lettered in the last minute" in visitor.open("/").text
    clock.advance(29)
    assert "2 messages dead-lettered in the last minute" in visitor.open("/").text
    clock.advance(31)
    assert "dead-lettered in the last minute" not in visitor.open("/").text
    api.close()


def test_the_queues_with_the_largest_backlog_are_the_deepest_with_their_age_beside(
    ticking: RunningServer, clock: ManualClock
) -> None:
    api = Api(ticking, "default")
    api.push("old", 1)
    clock.advance(100)
    for number in range(8):
        api.push(f"deep-{number}", *range(3))
    clock.advance(1)

    table = Visitor(ticking).open("/").html.partition("largest backlog")[2]

    assert table.count('<th scope="row">') == 8
    assert "deep-7" in table
    assert ">old<" not in table
    assert "Oldest" in table
    api.close()


def test_a_partition_s_pending_messages_are_called_what_they_are(api: Api, visitor: Visitor) -> None:
    for number in range(60):
        api.push("orders", number, partition=f"p{number % 3}")
    api.pop("orders", 2)
    api.push("orders", *range(940), partition="p1")

    text = visitor.open("/queues/orders").text

    groups = api.get("/api/v1/resources/queues/orders").json["groups"]
    partitions = api.get("/api/v1/status/queues/orders/partitions").json["partitions"]
    known, pending = sum(one["pending"] for one in partitions), groups[0]["pending"]
    assert known < pending
    assert f"{pending:,} pending in the whole group" in text
    assert f"discovered {known:,} of its {pending:,} pending messages" in text
    assert f"the other {pending - known:,} as consumers pop" in text
    assert "Partition Discovered In flight" in text
