"""Many connections, idle or rude: the others are served, and memory and open files do not grow."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.serving import ServeProcess, serving
from tests.support.wire import Wire

PUSH = "/api/v1/push"
FILES_FOR_US = 500
MEBIBYTE = 1024 * 1024
GROWTH_BYTES = 16 * MEBIBYTE


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServeProcess]:
    """A server that soon loses patience with bodies, and never with idle connections."""
    environ = {"SKEP_HTTP_BODY_SECONDS": "0.2", "SKEP_HTTP_HEADERS_SECONDS": "600", "SKEP_HTTP_BODY_BYTES": "100000"}
    with serving("--log-level", "error", "--store", ":memory:", folder=tmp_path, environ=environ) as server:
        yield server


def port_of(server: ServeProcess) -> int:
    """The port of a server that does not say it, since it logs errors only."""
    while True:
        for connection in server.system.net_connections("tcp"):
            if connection.status == "LISTEN":
                return int(connection.laddr.port)


@contextlib.contextmanager
def room_for(files: int) -> Iterator[int]:
    """Raise the limit of open files as far as it goes; how many of the files fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield min(files, hard - FILES_FOR_US)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_idle_connections_do_not_disturb_who_works(server: ServeProcess, count: int) -> None:
    port = port_of(server)
    with room_for(count) as fitting, contextlib.ExitStack() as stack:
        files = server.system.num_fds()
        idle = [stack.enter_context(Wire(port)) for _ in range(fitting)]
        for number, wire in enumerate(idle):
            if number % 2:  # half of them have never said anything, the others have been served before
                assert wire.request("GET", "/health").reply().status == 200
        assert server.system.num_fds() >= files + fitting // 2

        work(port, 50)

        assert idle[1].request("GET", "/health").reply().status == 200, "and they may go on"
    settle(lambda: server.system.num_fds() <= files)


def work(port: int, messages: int) -> None:
    """A client that pushes, pops and acks as ever."""
    with Wire(port) as wire:
        for number in range(messages):
            item = {"queue": "work", "payload": number}
            assert wire.request("POST", PUSH, json.dumps({"items": [item]}).encode()).reply().status == 201
            [message] = wire.request("GET", "/api/v1/pop/queue/work").reply().json["messages"]
            assert message["payload"] == number
            ack = {"leaseId": message["leaseId"], "seq": message["seq"], "status": "completed"}
            assert wire.request("POST", "/api/v1/ack", json.dumps(ack).encode()).reply().status == 200


def settle(condition: Callable[[], bool]) -> None:
    """Ask the system until it is so; the server closes its side when it gets to it."""
    for _ in range(100_000):
        if condition():
            return
    raise AssertionError("it never came to be so")


@pytest.mark.slow
def test_misuse_over_and_over_leaves_nothing_behind(server: ServeProcess) -> None:
    port = port_of(server)
    work(port, 1)
    for _ in range(3):
        misuse(port)
    settle_connections(server)
    memory, files = server.system.memory_info().rss, server.system.num_fds()

    for _ in range(15):
        misuse(port)

    settle_connections(server)
    assert server.system.num_fds() <= files
    assert server.system.memory_info().rss - memory < GROWTH_BYTES
    work(port, 1)


def settle_connections(server: ServeProcess) -> None:
    """Wait until the server has no connection any more."""
    settle(lambda: all(c.status == "LISTEN" for c in server.system.net_connections("tcp")))


def misuse(port: int) -> None:
    """Every kind of rudeness at once, some of it left without waiting for the answer."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        wires = [stack.enter_context(Wire(port)) for _ in range(30)]
        for wire, data in zip(wires, rude() * 5, strict=True):
            wire.send(data)
        for wire in wires[:15]:
            with contextlib.suppress(ConnectionError):
                wire.reply()


def rude() -> list[bytes]:
    return [
        b"NONSENSE\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Huge: " + b"x" * 60_000,
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1",
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + (b"8000\r\n" + b" " * 0x8000 + b"\r\n") * 5,
        b"GET /api/v1/pop/queue/work?wait=true&timeout=0.1 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n[[[[",
    ]
