"""A client that goes away before it has the answer to its pop: what was leased for it is given back, attempt and all (I10)."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from skep.http.request import endpoint
from skep.model import PopResult
from tests.engine.driver import until
from tests.http.driver import Api

WAIT = "&wait=true&timeout=10"
NO_LINGER = struct.pack("ii", 1, 0)


class Gate:
    """Holds each pop of the server back once the store has answered."""

    def __init__(self) -> None:
        self.taken = threading.Semaphore(0)
        self.gone = threading.Event()

    async def pass_(self) -> None:
        self.taken.release()
        await asyncio.to_thread(self.gone.wait)


@pytest.fixture
def free_gate() -> Iterator[Gate]:
    """A gate that holds nothing by itself."""
    gate = Gate()
    yield gate
    gate.gone.set()


@pytest.fixture
def gate(api: Api, free_gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The client goes away at the gate."""
    gate, engine = free_gate, api.server.engine
    for name in ("pop", "pop_matching"):
        taking = getattr(engine, name)

        async def held(*args: Any, taking: Any = taking, **fields: Any) -> PopResult:
            result: PopResult = await taking(*args, **fields)
            if not gate.gone.is_set():
                await gate.pass_()
            return result

        monkeypatch.setattr(engine, name, held)
    return gate


def go_away(api: Api, gate: Gate, path: str, *, reset: bool, body: object = None) -> None:
    """Ask, and be gone before the answer."""
    before = api.server.connections
    client = socket.create_connection(("127.0.0.1", api.server.port))
    head = f"{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
    text = json.dumps(body)
    client.sendall(
        (f"GET {head}\r\n" if body is None else f"POST {head}Content-Length: {len(text)}\r\n\r\n{text}").encode()
    )
    assert gate.taken.acquire(timeout=30)
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    client.close()
    while api.server.connections > before:
        pass
    gate.gone.set()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
@pytest.mark.parametrize(
    "path",
    ["/api/v1/pop/queue/q?batch=5", "/api/v1/pop/queue/q/partition/a?batch=5", "/api/v1/pop?namespace=shop&batch=5"],
)
def test_I10_a_pop_without_wait_gives_its_messages_back(
    api: Api, gate: Gate, path: str, ordering: str, reset: bool
) -> None:
    settings = {"namespace": "shop", "max_attempts": 1, "ordering": ordering}
    assert api.post("/api/v1/configure", {"queue": "q", "settings": settings}).status in (200, 201)
    api.push("q", 1, partition="a")
    go_away(api, gate, path, reset=reset)

    [message] = api.pop("q", query=WAIT)

    assert (message["payload"], message["attempt"]) == (1, 1)


def test_I10_a_pop_whose_connection_is_refused_meanwhile_gives_its_messages_back(api: Api, gate: Gate) -> None:
    api.push("q", 1)
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        head = f"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
        client.sendall(f"{head}Content-Length: 3\r\n\r\n".encode())
        assert gate.taken.acquire(timeout=30)
        client.sendall(b"abc" + b"no HTTP\r\n\r\n")
        assert client.recv(1) == b"", "the end of a connection that was refused"
        gate.gone.set()

        [message] = api.pop("q", query=WAIT)

    assert (message["payload"], message["attempt"]) == (1, 1)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_I10_a_pop_that_waits_ends_with_its_client_though_more_was_sent_ahead(
    api: Api, later: bool, reset: bool
) -> None:
    api.push("q", 1)
    [message] = api.pop("q")
    assert api.ack(message).status == 200
    request = (
        f"GET /api/v1/pop/queue/q?wait=true&timeout=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n\r\n"
    )
    engine = api.server.engine
    client = socket.create_connection(("127.0.0.1", api.server.port))
    client.sendall(request.encode() * (1 if later else 2))
    api.server.run(until(lambda: engine.parked_polls == 1))
    if later:
        client.sendall(request.encode())
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    client.close()

    api.server.run(until(lambda: engine.parked_polls == 0))


@pytest.mark.parametrize("when", ["as the messages come", "as the answer is written"])
def test_I10_a_pop_with_acks_gives_its_messages_back_and_the_acks_are_made(
    api: Api, free_gate: Gate, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    engine, settle_and_pop, send_answer = api.server.engine, api.server.engine.settle_and_pop, endpoint.send_answer

    async def popped(*args: Any, **fields: Any) -> Any:
        found = await settle_and_pop(*args, **fields)
        with suppress(asyncio.CancelledError):  # which comes when nothing is left that it could end
            await free_gate.pass_()
        return found

    async def sent(*args: Any) -> None:
        if not free_gate.gone.is_set():  # as for a client that does not read what it asked for before
            await free_gate.pass_()
        await send_answer(*args)

    api.push("q", 1, partition="a")
    [done] = api.pop("q")
    api.push("q", 2, partition="b")
    if when == "as the messages come":
        monkeypatch.setattr(engine, "settle_and_pop", popped)
    else:
        monkeypatch.setattr(endpoint, "send_answer", sent)
    go_away(api, free_gate, "/api/v1/pop/queue/q", reset=True, body={"acknowledgments": [{"leaseId": done["leaseId"]}]})

    [message] = api.pop("q", query=WAIT)

    assert (message["payload"], message["attempt"]) == (2, 1)
    assert api.ack(done).json["repeated"] is True


def test_I10_a_pop_with_a_chunked_body_pops_nothing(api: Api) -> None:
    api.push("q", 1)
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        head = f"GET /api/v1/pop/queue/q?autoAck=true HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\nZZ\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")

        [message] = api.pop("q", query=WAIT)

    assert (message["payload"], message["attempt"]) == (1, 1)


def test_a_client_that_still_sends_keeps_its_lease(api: Api) -> None:
    api.push("q", 1)
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        head = f"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
        client.sendall(f"{head}Content-Length: 3\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")

        assert api.pop("q") == []


def test_auto_acked_messages_go_with_their_client_and_that_is_said(
    api: Api, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.push("q", 1, 2)
    answered, send_answer = threading.Semaphore(0), endpoint.send_answer

    async def observed(*args: Any) -> None:
        await send_answer(*args)
        asyncio.get_running_loop().call_soon(answered.release)

    monkeypatch.setattr(endpoint, "send_answer", observed)
    with capture_logs() as logs:
        go_away(api, gate, "/api/v1/pop/queue/q?batch=5&autoAck=true", reset=True)
        answered.acquire(timeout=30)

    [told] = [entry for entry in logs if entry["event"] == "auto-acked messages were lost with their caller"]
    assert (told["queue"], told["messages"], told["log_level"]) == ("q", 2, "warning")
    assert api.pop("q") == []


def test_a_client_that_stays_keeps_its_lease(api: Api) -> None:
    api.push("q", 1)
    [message] = api.pop("q")

    assert api.pop("q") == []
    assert api.ack(message).status == 200


def test_a_client_that_wants_the_connection_closed_keeps_its_lease(api: Api) -> None:
    api.push("q", 1)
    reply = api.request("GET", "/api/v1/pop/queue/q", headers={"Connection": "close"})

    assert reply.status == 200
    assert api.pop("q") == []
    assert api.ack(reply.json["messages"][0]).status == 200
