"""Several processes on one port: all serve, the dead are replaced, and a signal to the first stops all."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.serve.client import Producer, get, stored
from tests.support.serving import WAIT_SECONDS, ServeProcess, serving
from tests.support.wire import Wire


@pytest.fixture
def server(tmp_path: Path, postgres_dsn: str) -> Iterator[ServeProcess]:
    """Two workers, and one process above them."""
    with serving("--store", postgres_dsn, "--workers", "2", folder=tmp_path) as server:
        yield server


def workers_of(server: ServeProcess) -> list[psutil.Process]:
    return [child for child in server.system.children() if "skep.serving" in " ".join(child.cmdline())]


def test_all_workers_serve_one_port(server: ServeProcess) -> None:
    port = server.listening()
    workers = workers_of(server)
    assert len(workers) == 2

    with contextlib.ExitStack() as stack:
        taken: set[int] = set()
        # Who takes a connection is the system's choice, so there are as many as it takes.
        while taken != {worker.pid for worker in workers}:
            wire = stack.enter_context(Wire(port))
            assert wire.request("GET", "/health").reply().status == 200
            taken = {worker.pid for worker in workers if established(worker, port)}


def established(worker: psutil.Process, port: int) -> bool:
    return any(c.status == psutil.CONN_ESTABLISHED and c.laddr.port == port for c in worker.net_connections("tcp"))


def test_a_worker_that_dies_is_replaced(server: ServeProcess) -> None:
    port = server.listening()
    before = workers_of(server)

    before[0].kill()

    assert server.event("a worker ended and is replaced")["pid"] == before[0].pid
    replacement = server.event("worker listening")["pid"]
    assert replacement not in {worker.pid for worker in before}
    assert {worker.pid for worker in workers_of(server)} == {before[1].pid, replacement}
    assert get(port, "/ready")[0] == 200


def test_I1_a_stop_reaches_all_workers_and_loses_nothing(
    server: ServeProcess, tmp_path: Path, postgres_dsn: str
) -> None:
    port = server.listening()
    workers = workers_of(server)
    producers = [Producer(port, f"p{number}") for number in range(6)]
    for producer in producers:
        producer.start()
    for producer in producers:
        assert producer.under_way.wait(WAIT_SECONDS)

    server.signal(signal.SIGTERM)

    assert server.ended() == 0
    assert not any(worker.is_running() for worker in workers)
    for producer in producers:
        producer.join(WAIT_SECONDS)
    answered = {text for producer in producers for text in producer.answered}
    with serving("--store", postgres_dsn, folder=tmp_path) as again:
        assert answered <= set(stored(again.listening()))


@pytest.mark.slow
def test_workers_whose_supervisor_was_killed_stop_in_order(server: ServeProcess) -> None:
    server.listening()
    workers = workers_of(server)

    server.signal(signal.SIGKILL)

    gone, left = psutil.wait_procs(workers, timeout=WAIT_SECONDS)
    assert (len(gone), left) == (2, [])


def test_a_store_that_cannot_be_opened_is_told_once(tmp_path: Path) -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/none"
    with serving("--store", url, "--workers", "2", folder=tmp_path) as server:
        assert server.ended() == 2
        [line] = server.lines

    assert line.startswith("skep: STORE_UNAVAILABLE: PostgreSQL cannot be used")
    assert "127.0.0.1:1/none" in line
    assert "s3cret" not in line


@pytest.mark.slow
def test_a_scrape_tells_of_all_workers_and_of_those_that_ended(server: ServeProcess) -> None:
    port = server.listening()
    with contextlib.ExitStack() as stack:
        # Connections go to either worker, and stay there.
        for wire in [stack.enter_context(Wire(port)) for _ in range(20)]:
            body = b'{"items": [{"queue": "q", "payload": 1}]}'
            assert wire.request("POST", "/api/v1/push", body).reply().status == 201
        scrapes_say(port, 20)
        workers_of(server)[0].terminate()
        server.event("worker listening")
        scrapes_say(port, 20)


def scrapes_say(port: int, pushed: int) -> None:
    """Scrape until whichever worker answers knows of all; they tell each other about once a second."""
    agreeing = 0
    while agreeing < 8:
        _, told = get(port, "/metrics", {"Accept": "application/json"})
        assert told["push"]["total"] <= pushed
        agreeing = agreeing + 1 if told["push"]["total"] == pushed else 0
