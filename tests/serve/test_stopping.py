"""A server that is stopped answers who waits and keeps what it answered; one that is killed keeps it too."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serve.client import Producer, stored
from tests.support.serving import serving
from tests.support.wire import Wire

PRODUCERS = 6


@contextlib.contextmanager
def producing(port: int) -> Iterator[list[Producer]]:
    """Producers that are all under way; they end when the server does."""
    producers = [Producer(port, f"p{number}") for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    try:
        for producer in producers:
            assert producer.under_way.wait(60)
        yield producers
    finally:
        for producer in producers:
            producer.join(60)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> list[str]:
    """The arguments that name the store."""
    return [] if request.param == "sqlite" else ["--store", request.getfixturevalue("postgres_dsn")]


def waiting_pop(port: int) -> Wire:
    """A pop that waits for what never comes."""
    return Wire(port).request("GET", "/api/v1/pop/queue/q/partition/nobody?wait=true&timeout=60")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_I1_every_push_answered_during_a_stop_is_there_after_it(tmp_path: Path, store: list[str], number: int) -> None:
    with serving(*store, folder=tmp_path) as server:
        port = server.listening()
        make_queue(port)
        # The poll first: once the producers are under way, the server has surely read it.
        with waiting_pop(port) as poll, producing(port) as producers:
            server.signal(number)
            reply = poll.reply()
        assert server.ended() == 0
        assert server.lines[-1].find('"stopped"') > 0

    assert (reply.status, reply.ends_connection) == (204, True)
    assert [producer.refused for producer in producers] == [[]] * PRODUCERS, "what was begun is finished, not refused"
    answered = {text for producer in producers for text in producer.answered}
    with serving(*store, folder=tmp_path) as server:
        found = stored(server.listening())
    assert answered <= set(found)
    assert len(found) == len(set(found))


def test_I1_every_push_answered_before_a_kill_is_there_after_it(tmp_path: Path, store: list[str]) -> None:
    with serving(*store, folder=tmp_path) as server:
        with producing(server.listening()) as producers:
            server.signal(signal.SIGKILL)
        assert server.ended() == -signal.SIGKILL

    answered = {text for producer in producers for text in producer.answered}
    assert len(answered) >= 20 * PRODUCERS
    with serving(*store, folder=tmp_path) as server:
        assert answered <= set(stored(server.listening()))


def test_a_stop_closes_the_listener_before_what_is_under_way_ends(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server:
        port = server.listening()
        with Wire(port) as slow:
            slow.send(
                b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\nExpect: 100-continue\r\n\r\n"
            )
            assert slow.reply().status == 100, "the request is under way"
            server.signal()
            wait_until_refused(port)
            slow.send(b'{"items": [{"queue": "q", "payload": "late"}]}'[:45])
            reply = slow.reply()
        assert (reply.status, reply.ends_connection) == (400, True), "its body lacks a brace, and it is told so"
        assert server.ended() == 0


def wait_until_refused(port: int) -> None:
    """Return once nobody listens."""
    while True:
        try:
            Wire(port).close()
        except ConnectionRefusedError:
            return
        except ConnectionError:
            pass  # it was closed with this connection still in its queue


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server:
        port = server.listening()
        with Wire(port) as slow:
            slow.send(
                b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n"
            )
            assert slow.reply().status == 100
            server.signal()
            wait_until_refused(port)
            server.signal()
            assert server.ended() == 128 + signal.SIGTERM
            assert slow.is_ended()


def test_what_is_still_under_way_when_the_time_is_over_is_cut_off(tmp_path: Path) -> None:
    with serving("--drain-seconds", "0.2", folder=tmp_path) as server:
        with Wire(server.listening()) as slow:
            slow.send(
                b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n"
            )
            assert slow.reply().status == 100
            server.signal()
            assert slow.is_ended()
        assert server.ended() == 0
        assert server.event("requests were still under way when the time for a stop was over")["connections"] == 1


def test_many_polls_are_all_answered(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server, contextlib.ExitStack() as stack:
        port = server.listening()
        make_queue(port)
        polls = [stack.enter_context(waiting_pop(port)) for _ in range(200)]
        server.signal()
        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(status_or_closed, polls))
        assert server.ended() == 0

    # One whose request the server had not read yet when it stopped is closed without an answer.
    assert set(statuses) <= {204, None}
    assert 204 in statuses


def make_queue(port: int) -> None:
    with Wire(port) as wire:
        body = b'{"items": [{"queue": "q", "payload": "first"}]}'
        assert wire.request("POST", "/api/v1/push", body).reply().status == 201


def status_or_closed(wire: Wire) -> int | None:
    try:
        return wire.reply().status
    except ConnectionError:
        return None
