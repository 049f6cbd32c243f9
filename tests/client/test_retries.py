"""What the client does about failures: over real sockets that misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

import skep
from skep.client.failures import AnsweredError
from skep.errors import Code
from tests.client.scripted import HANG_UP, Received, Script, ScriptedServer, problem, reply, stored, unused_url

QUICK = 0.001


@pytest.fixture(autouse=True)
def waits() -> Iterator[list[float]]:
    """The pauses that were made between tries, in seconds."""
    made: list[float] = []

    def note(details: RetryDetails) -> None:
        made.append(details.wait_for)

    set_on_retry_hooks([note])
    yield made
    set_on_retry_hooks(None)


def quick_client(*urls: str) -> skep.Client:
    return skep.Client(urls, backoff_seconds=QUICK, breaker_failures=100)


@pytest.mark.parametrize("failure", [problem(503, "STORE_BUSY"), problem(500, "INTERNAL"), HANG_UP, reply(502)])
def test_a_push_is_tried_again_with_the_same_transaction_ids(failure: bytes) -> None:
    with ScriptedServer(failure, failure, stored) as server, quick_client(server.url) as client:
        pushed = client.push("orders", [1, 2])

    assert len(pushed.stored) == 2
    assert len(server.requests) == 3
    assert len({tuple(request.transaction_ids) for request in server.requests}) == 1


def test_I3_a_push_whose_answer_was_lost_is_stored_once(client: skep.Client) -> None:
    def lose_the_answer(request: Received) -> bytes:
        client.request("POST", "/api/v1/push", body=request.json)
        return HANG_UP

    def pass_on(request: Received) -> bytes:
        return reply(200, client.request("POST", "/api/v1/push", body=request.json))

    with ScriptedServer(lose_the_answer, pass_on) as server, quick_client(server.url) as other:
        pushed = other.push("orders", [1])

    assert len(pushed.duplicates) == 1
    assert [message.json() for message in client.pop("orders", batch=9)] == [1]


def test_tries_end_after_so_many_and_without_a_last_pause(waits: list[float]) -> None:
    with ScriptedServer(problem(503, "STORE_BUSY")) as server:
        client = skep.Client(server.url, attempts=3, backoff_seconds=QUICK, breaker_failures=100)
        with client, pytest.raises(skep.SkepError) as raised:
            client.push("orders", [1])

    assert raised.value.code is Code.STORE_BUSY
    assert len(server.requests) == 3
    assert len(waits) == 2


def test_retry_after_is_obeyed_up_to_the_longest_delay(waits: list[float]) -> None:
    script: list[bytes | Script] = [
        problem(429, "TOO_MANY_REQUESTS", retry_after="0"),
        problem(429, "QUEUE_FULL", retry_after="3600"),
        stored,
    ]
    with ScriptedServer(*script) as server, skep.Client(server.url, max_retry_delay=0.01) as client:
        client.push("orders", [1])

    assert waits == [0.0, 0.01]


@pytest.mark.parametrize(
    ("status", "code"), [(400, "MALFORMED"), (401, "UNAUTHENTICATED"), (404, "QUEUE_NOT_FOUND"), (409, "STALE_LEASE")]
)
def test_another_4xx_is_never_tried_again(status: int, code: str) -> None:
    with (
        ScriptedServer(problem(status, code)) as server,
        quick_client(server.url) as client,
        pytest.raises(AnsweredError) as raised,
    ):
        client.push("orders", [1])

    assert (raised.value.code, raised.value.status) == (code, status)
    assert len(server.requests) == 1


@pytest.mark.parametrize("failure", [HANG_UP, problem(500, "INTERNAL"), problem(503, "STORE_UNAVAILABLE")])
def test_a_push_without_transaction_ids_is_not_repeated_when_it_may_have_been_stored(failure: bytes) -> None:
    with (
        ScriptedServer(failure, stored) as server,
        quick_client(server.url) as client,
        pytest.raises(skep.SkepError),
    ):
        client.push("orders", [1], transaction_id=None)

    assert len(server.requests) == 1


def test_a_push_without_transaction_ids_is_repeated_when_nothing_can_have_happened() -> None:
    busy = problem(503, "STORE_BUSY")
    with (
        ScriptedServer(busy, problem(429, "TOO_MANY_REQUESTS"), stored) as server,
        quick_client(unused_url(), server.url) as client,
    ):
        assert len(client.push("orders", [1], transaction_id=None).stored) == 1

    assert len(server.requests) == 3


def test_a_pop_is_tried_again() -> None:
    with ScriptedServer(HANG_UP, reply(204)) as server, quick_client(server.url) as client:
        assert client.pop("orders") == []

    assert len(server.requests) == 2


def test_nobody_listening_is_a_clear_error() -> None:
    url = unused_url()
    client = skep.Client(url, attempts=1)
    with client, pytest.raises(skep.SkepError) as raised:
        client.push("orders", [1])

    assert raised.value.code is Code.SERVER_UNREACHABLE
    assert raised.value.retryable
    assert url in raised.value.message


def test_an_answer_that_is_cut_short_is_no_answer() -> None:
    half = b"HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n{"

    def cut(request: Received) -> bytes:
        return half

    with ScriptedServer(cut) as server:
        client = skep.Client(server.url, attempts=1, timeout_seconds=0.2)
        with client, pytest.raises(skep.SkepError) as raised:
            client.push("orders", [1])

    assert raised.value.code is Code.SERVER_UNREACHABLE


@pytest.mark.parametrize("answer", [reply(200, {"nonsense": 1}), reply(201, [1]), reply(200)])
def test_an_answer_that_makes_no_sense_is_an_error_of_the_server(answer: bytes) -> None:
    with (
        ScriptedServer(answer) as server,
        quick_client(server.url) as client,
        pytest.raises(skep.SkepError) as raised,
    ):
        client.push("orders", [1])

    assert raised.value.code is Code.INTERNAL
    assert len(server.requests) == 1


def test_a_code_that_is_not_known_yet_is_passed_on() -> None:
    with (
        ScriptedServer(problem(418, "TEAPOT")) as server,
        quick_client(server.url) as client,
        pytest.raises(skep.SkepError) as raised,
    ):
        client.push("orders", [1])

    assert raised.value.details["code"] == "TEAPOT"


def test_something_on_the_way_that_speaks_html_is_told_apart() -> None:
    body = b"<html>forbidden</html>"
    answer = b"HTTP/1.1 403 No\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with (
        ScriptedServer(answer) as server,
        quick_client(server.url) as client,
        pytest.raises(skep.SkepError, match="<html>") as raised,
    ):
        client.push("orders", [1])

    assert raised.value.code is Code.FORBIDDEN


def test_a_redirect_is_not_followed() -> None:
    with (
        ScriptedServer(stored) as other,
        ScriptedServer(reply(307, location=other.url)) as server,
        quick_client(server.url) as client,
        pytest.raises(skep.SkepError) as raised,
    ):
        client.push("orders", [1])

    assert (other.requests, raised.value.code) == ([], Code.ROUTE_NOT_FOUND)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_time_to_wait_that_is_none_is_refused_before_anything_is_sent(seconds: float) -> None:
    with (
        ScriptedServer(reply(204)) as server,
        quick_client(server.url) as client,
        pytest.raises(skep.SkepError, match="INVALID_REQUEST: the time to wait"),
    ):
        client.pop("orders", wait_seconds=seconds)

    assert server.requests == []


def test_tenant_and_token_go_with_every_request() -> None:
    with (
        ScriptedServer(reply(204)) as server,
        skep.Client(server.url, tenant="acme", token="secret") as client,
    ):
        client.pop("orders", batch=3, wait_seconds=2, group="billing")

    [request] = server.requests
    assert (request.headers["skep-tenant"], request.headers["authorization"]) == ("acme", "Bearer secret")
    assert request.target == "/api/v1/pop/queue/orders?batch=3&wait=true&timeout=2.0&consumerGroup=billing"


async def test_the_asynchronous_client_tries_again_alike(waits: list[float]) -> None:
    with ScriptedServer(HANG_UP, problem(503, "STORE_BUSY"), stored) as server:
        async with skep.AsyncClient(server.url, backoff_seconds=QUICK) as client:
            pushed = await client.push("orders", [1])

    assert len(pushed.stored) == 1
    assert len(waits) == 2


def test_retries_obey_staminas_switch() -> None:
    stamina.set_active(False)
    try:
        with (
            ScriptedServer(problem(503, "STORE_BUSY")) as server,
            quick_client(server.url) as client,
            pytest.raises(skep.SkepError),
        ):
            client.push("orders", [1])
    finally:
        stamina.set_active(True)

    assert len(server.requests) == 1


def test_429_is_not_tried_again_by_those_who_do_not_want_it(waits: list[float]) -> None:
    with (
        ScriptedServer(problem(429, "QUEUE_FULL", retry_after="0"), stored) as server,
        skep.Client(server.url, retry_on_429=False) as client,
        pytest.raises(AnsweredError) as raised,
    ):
        client.push("orders", [1])

    assert (raised.value.status, raised.value.retry_after_seconds) == (429, 0.0)
    assert (len(server.requests), waits) == (1, [])


def test_retry_after_does_not_set_the_pause_for_those_who_do_not_want_it(waits: list[float]) -> None:
    script: list[bytes | Script] = [problem(429, "TOO_MANY_REQUESTS", retry_after="3600"), stored]
    with (
        ScriptedServer(*script) as server,
        skep.Client(server.url, honor_retry_after=False, backoff_seconds=QUICK) as client,
    ):
        assert len(client.push("orders", [1]).stored) == 1

    [wait] = waits
    assert 0 < wait < 1  # the client's own pause, with its jitter


def test_a_5xx_is_tried_again_whatever_is_wanted_of_429() -> None:
    with (
        ScriptedServer(problem(503, "STORE_BUSY"), stored) as server,
        skep.Client(server.url, retry_on_429=False, honor_retry_after=False, backoff_seconds=QUICK) as client,
    ):
        assert len(client.push("orders", [1]).stored) == 1


async def test_the_asynchronous_client_and_its_likes_keep_to_it(waits: list[float]) -> None:
    with ScriptedServer(problem(429, "TOO_MANY_REQUESTS"), stored) as server:
        async with skep.AsyncClient(server.url, retry_on_429=False) as client:
            with pytest.raises(AnsweredError):
                await client.for_tenant("acme").push("orders", [1])

    assert waits == []
