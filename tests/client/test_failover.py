"""Several servers of one store: the next one when one is gone, the first again later, and none when all are down."""

from __future__ import annotations

import pytest

import skep
from skep.client.breaker import Breaker, BreakerState
from skep.client.failures import CircuitOpenError
from skep.client.servers import Servers, ranked
from skep.client.settings import client_settings
from skep.clock import Instant, ManualClock, seconds
from skep.errors import Code
from tests.client.scripted import HANG_UP, ScriptedServer, problem, reply, unused_url

NOTHING = reply(204)
DOWN = problem(503, "STOPPING")


def at(second: float) -> Instant:
    return Instant(seconds(second))


def failing_client(*urls: str, clock: ManualClock | None = None, attempts: int = 1) -> skep.Client:
    return skep.Client(
        urls, clock=clock or ManualClock(), attempts=attempts, backoff_seconds=0.001, breaker_failures=2,
        breaker_open_seconds=10, failback_seconds=30,
    )  # fmt: skip


@pytest.mark.parametrize("failure", [HANG_UP, DOWN])
def test_a_call_goes_to_the_next_server_without_a_pause(failure: bytes) -> None:
    with (
        ScriptedServer(failure) as first,
        ScriptedServer(NOTHING) as second,
        failing_client(unused_url(), first.url, second.url) as client,
    ):
        assert client.pop("orders") == []

    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_later_calls_stay_with_the_server_that_works() -> None:
    with (
        ScriptedServer(HANG_UP) as first,
        ScriptedServer(NOTHING) as second,
        failing_client(first.url, second.url) as client,
    ):
        for _ in range(5):
            client.pop("orders")

    assert (len(first.requests), len(second.requests)) == (1, 5)


def test_the_first_server_is_tried_again_after_a_while_and_kept_when_it_is_back() -> None:
    clock = ManualClock()
    with (
        ScriptedServer(HANG_UP, HANG_UP, NOTHING) as first,
        ScriptedServer(NOTHING) as second,
        failing_client(first.url, second.url, clock=clock) as client,
    ):
        client.pop("orders")
        clock.advance(30)
        client.pop("orders")
        assert (len(first.requests), len(second.requests)) == (2, 2)
        clock.advance(30)
        client.pop("orders")
        client.pop("orders")

    assert (len(first.requests), len(second.requests)) == (4, 2)


URLS = ("http://a:1", "http://b:1", "http://c:1")
TEXTS = [f"orders {number}" for number in range(300)]


def servers(urls: tuple[str, ...] = URLS) -> Servers:
    return Servers(client_settings(urls, {"breaker_failures": 1_000, "failback_seconds": 30}))


def firsts(among: Servers, clock: ManualClock) -> dict[str, str]:
    return {text: among.urls[next(iter(among.candidates(clock, text)))] for text in TEXTS}


def test_requests_that_are_spread_go_to_all_servers_alike_whatever_their_order() -> None:
    clock = ManualClock()
    found = firsts(servers(), clock)

    assert found == firsts(servers(URLS[::-1]), clock) == firsts(servers(), clock)
    shares = [list(found.values()).count(url) for url in URLS]
    assert all(70 < share < 130 for share in shares), shares
    assert all(sorted(servers().candidates(clock, text)) == [0, 1, 2] for text in TEXTS)


def test_of_requests_that_are_spread_only_those_of_a_lost_server_move_and_they_come_back() -> None:
    clock, among = ManualClock(), servers()
    before = firsts(among, clock)

    among.failed(1, clock.steady())
    during = firsts(among, clock)
    clock.advance(30)
    after = firsts(among, clock)
    among.failed(1, clock.steady())
    among.succeeded(1, TEXTS[0])

    moved = {text for text in TEXTS if during[text] != before[text]}
    assert moved == {text for text in TEXTS if before[text] == URLS[1]}
    assert {during[text] for text in moved} == {URLS[0], URLS[2]}
    assert all(during[text] == URLS[ranked(URLS, text)[1]] for text in moved)
    assert before == after == firsts(among, clock)


def test_what_is_spread_does_not_move_the_others() -> None:
    clock, among = ManualClock(), servers()
    among.failed(2, clock.steady())
    among.succeeded(2, "orders 1")
    assert list(among.candidates(clock)) == [0, 1, 2]


def test_an_error_that_is_not_the_servers_health_moves_nobody() -> None:
    with (
        ScriptedServer(problem(404, "QUEUE_NOT_FOUND")) as first,
        ScriptedServer(NOTHING) as second,
        failing_client(first.url, second.url) as client,
    ):
        for _ in range(3):
            with pytest.raises(skep.SkepError):
                client.pop("orders")

    assert (len(first.requests), second.requests) == (3, [])


def test_an_open_circuit_asks_nobody_and_says_so() -> None:
    clock = ManualClock()
    with ScriptedServer(HANG_UP) as server, failing_client(server.url, clock=clock) as client:
        for _ in range(2):
            with pytest.raises(skep.SkepError):
                client.pop("orders")
        assert client.circuits == {server.url: BreakerState.OPEN}
        clock.advance(4)
        with pytest.raises(CircuitOpenError) as raised:
            client.pop("orders")

    assert len(server.requests) == 2
    assert raised.value.code is Code.SERVER_UNREACHABLE
    assert raised.value.details["retry_after_seconds"] == 6


def test_a_circuit_closes_when_its_probe_is_answered() -> None:
    clock = ManualClock()
    with ScriptedServer(HANG_UP, HANG_UP, NOTHING) as server, failing_client(server.url, clock=clock) as client:
        for _ in range(2):
            with pytest.raises(skep.SkepError):
                client.pop("orders")
        clock.advance(10)
        for _ in range(3):
            assert client.pop("orders") == []

    assert len(server.requests) == 5


def test_the_retries_of_one_call_end_when_the_circuit_opens() -> None:
    with (
        ScriptedServer(HANG_UP) as server,
        failing_client(server.url, attempts=9) as client,
        pytest.raises(skep.SkepError),
    ):
        client.pop("orders")

    assert len(server.requests) == 2


async def test_the_asynchronous_client_goes_to_the_next_server_alike() -> None:
    with ScriptedServer(HANG_UP) as first, ScriptedServer(NOTHING) as second:
        async with skep.AsyncClient([first.url, second.url], attempts=1) as client:
            assert await client.pop("orders") == []

    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_a_breaker_opens_after_so_many_failures_in_a_row() -> None:
    breaker = Breaker(2, seconds(10))
    breaker.failed(at(0))
    breaker.succeeded()
    breaker.failed(at(1))
    assert breaker.admits(at(1))
    breaker.failed(at(2))

    assert not breaker.admits(at(11.9))
    assert breaker.state(at(11.9)) is BreakerState.OPEN
    assert breaker.state(at(12)) is BreakerState.HALF_OPEN


def test_a_half_open_breaker_lets_one_probe_through() -> None:
    breaker = Breaker(1, seconds(10))
    breaker.failed(at(0))

    assert [breaker.admits(at(10)), breaker.admits(at(10)), breaker.admits(at(19))] == [True, False, False]
    breaker.failed(at(19))
    assert not breaker.admits(at(28))
    assert breaker.admits(at(29))
    breaker.succeeded()
    assert breaker.state(at(29)) is BreakerState.CLOSED


def test_a_probe_that_never_reports_does_not_hold_the_circuit_open_for_ever() -> None:
    breaker = Breaker(1, seconds(10))
    breaker.failed(at(0))

    assert breaker.admits(at(10))
    assert not breaker.admits(at(15))
    assert breaker.admits(at(20))


@pytest.mark.parametrize("urls", [[], "localhost:6632", "ftp://host", "http://", "http://host?x=1"])
def test_a_url_that_means_no_server_is_refused(urls: str | list[str]) -> None:
    with pytest.raises(skep.SkepError) as raised:
        skep.Client(urls)

    assert raised.value.code is Code.INVALID_REQUEST
