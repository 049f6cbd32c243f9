"""Payloads in answers are held within one bound for the process: nothing is lost for want of room, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from skep.config import AdmissionSettings, EngineSettings, HttpLimits, Limits
from skep.engine.answers import Answers
from skep.errors import Code, SkepError
from skep.http.request.bodies import Bodies
from skep.http.request.call import Answer, Call, ClientGone, Event
from skep.http.request.endpoint import Endpoint
from skep.http.request.peers import Peers
from skep.observe.metrics import Meter
from skep.testing.server import RunningServer, running_server
from tests.support.serving import serving
from tests.support.waiting import until_so
from tests.support.wire import RawReply, Wire

PUSH = "/api/v1/push"
POP = "/api/v1/pop/queue/"
ROOM = 8_000_000
LARGE = 6_000_000
"""More than the kernel takes off our hands for a client that does not read."""
LIMITS = HttpLimits(answers_bytes=ROOM)
LOOKS = 1_000


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(limits=LIMITS) as running:
        yield running


@pytest.fixture
def impatient() -> Iterator[RunningServer]:
    """A server on which answers wait for room for a moment only."""
    with running_server(
        limits=LIMITS, settings=EngineSettings(admission=AdmissionSettings(backlog_seconds=0.05))
    ) as running:
        yield running


def push(port: int, queue: str, *sizes: int, partitions: bool = False) -> None:
    with Wire(port) as wire:
        for number, size in enumerate(sizes):
            item = {"queue": queue, "payload": "x" * (size - 2)} | ({"partition": f"p{number}"} if partitions else {})
            assert wire.request("POST", PUSH, json.dumps({"items": [item]}).encode()).reply().status == 201


def pop(port: int, query: str) -> RawReply:
    with Wire(port) as wire:
        return wire.request("POST", POP + query).reply()


def attempts(reply: RawReply) -> list[int]:
    assert reply.status == 200, reply.body
    return [message["attempt"] for message in reply.json["messages"]]


def makes_small_known(port: int, queue: str) -> None:
    """The next pop of the queue takes little room."""
    push(port, queue, 10)
    assert attempts(pop(port, f"{queue}?autoAck=true")) == [1]


@contextlib.contextmanager
def lazy(server: RunningServer, queue: str = "held") -> Iterator[Wire]:
    """A client that pops a large message, and does not read it."""
    push(server.port, queue, LARGE)
    with Wire(server.port, receive_buffer=4_096) as wire:
        wire.request("POST", f"{POP}{queue}").socket.recv(1, socket.MSG_PEEK)
        assert server.app.answers.held_bytes == LARGE
        yield wire


def wait_until(server: RunningServer, condition: Callable[[], bool]) -> None:
    server.run(until_so(condition))


def metric(port: int, name: str) -> int:
    with Wire(port) as wire:
        text = wire.request("GET", "/metrics").reply().body.decode()
    return int(float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} "))))


@pytest.mark.parametrize(
    ("accept", "known"),
    [("application/json", False), ("application/vnd.apache.arrow.stream", True)],
    ids=["JSON, unknown sizes", "Arrow, thought to be small"],
)
def test_many_poppers_of_large_messages_stay_within_the_bound(tmp_path: Path, accept: str, known: bool) -> None:
    environ = {"SKEP_HTTP_ANSWERS_BYTES": str(ROOM)}
    messages, poppers = 24, 12
    with serving("--store", ":memory:", folder=tmp_path, environ=environ) as process:
        port = process.listening()
        if known:
            makes_small_known(port, "q")
        push(port, "q", *[1_000_000] * messages, partitions=True)
        served = Counter[str]()
        lock = threading.Lock()

        def work() -> None:
            with Wire(port, receive_buffer=65_536) as wire:
                while sum(served.values()) < messages:
                    reply = wire.request(
                        "POST", f"{POP}q?batch=3&wait=true&timeout=1", headers={"Accept": accept}
                    ).reply()
                    assert reply.status in (200, 204, 429, 503), reply.body
                    if reply.status == 200:
                        with lock:
                            served.update(told(reply))

        threads = [threading.Thread(target=work) for _ in range(poppers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert served == {f"p{number} attempt 1": 1 for number in range(messages)}
        assert metric(port, "skep_answers_peak_bytes") <= ROOM
        assert metric(port, "skep_answers_waited_total") > 0
        # The server may have yet to hear that the last ones have taken theirs.
        assert any(metric(port, "skep_answers_bytes") == 0 for _ in range(LOOKS))
        assert metric(port, "skep_answers_limit_bytes") == ROOM


def told(reply: RawReply) -> list[str]:
    if reply.headers["content-type"] == "application/json":
        rows = [(message["partition"], message["attempt"]) for message in reply.json["messages"]]
    else:
        import pyarrow as pa

        table = pa.ipc.open_stream(reply.body).read_all()
        rows = list(zip(table["partition"].to_pylist(), table["attempt"].to_pylist(), strict=True))
    return [f"{partition} attempt {attempt}" for partition, attempt in rows]


def test_without_room_in_time_a_pop_is_refused_and_leases_nothing(impatient: RunningServer) -> None:
    push(impatient.port, "q", LARGE)
    with lazy(impatient), capture_logs() as logged:
        reply = pop(impatient.port, "q")
        read = Wire(impatient.port).request("GET", "/api/v1/log/q")
        refused = read.reply()
        read.close()

        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "SERVER_BUSY", "1")
        assert "http.answers_bytes" in reply.json["error"]["message"]
        assert (refused.status, refused.code) == (503, "SERVER_BUSY")
        assert metric(impatient.port, "skep_answers_refused_total") == 2
    assert "answers wait for room" in [entry["event"] for entry in logged]

    wait_until(impatient, lambda: impatient.app.answers.held_bytes == 0)
    assert attempts(pop(impatient.port, "q")) == [1]


def test_a_pop_that_waits_waits_for_room_too_and_gets_it_when_a_client_has_gone(impatient: RunningServer) -> None:
    push(impatient.port, "q", LARGE)
    with Wire(impatient.port) as waiting:
        with lazy(impatient):
            waiting.request("POST", f"{POP}q?wait=true&timeout=60")
            wait_until(impatient, lambda: len(impatient.app.answers.line) == 1)

        assert attempts(waiting.reply()) == [1]
    assert impatient.app.answers.refused == 0
    assert impatient.app.answers.peak_bytes <= ROOM


def test_room_is_given_back_when_the_client_has_taken_its_answer(server: RunningServer) -> None:
    push(server.port, "q", LARGE)
    with lazy(server) as slow, Wire(server.port) as waiting:
        waiting.request("POST", f"{POP}q?wait=true&timeout=60")
        wait_until(server, lambda: len(server.app.answers.line) == 1)

        assert attempts(slow.reply()) == [1]
        assert attempts(waiting.reply()) == [1]
    assert server.app.answers.peak_bytes <= ROOM


def test_who_waits_for_room_and_goes_leaves_its_place_and_the_message(server: RunningServer) -> None:
    push(server.port, "q", LARGE)
    with lazy(server):
        with Wire(server.port) as waiting:
            waiting.request("POST", f"{POP}q?wait=true&timeout=60")
            wait_until(server, lambda: len(server.app.answers.line) == 1)
        wait_until(server, lambda: server.engine.parked_polls == 0 and server.connections == 1)
    wait_until(server, lambda: server.app.answers.held_bytes == 0)

    assert attempts(pop(server.port, "q")) == [1]


def test_a_server_that_stops_answers_those_who_wait_for_room(server: RunningServer) -> None:
    push(server.port, "q", LARGE)

    async def end_polls() -> None:
        server.engine.end_polls()

    with lazy(server), Wire(server.port) as waiting:
        waiting.request("POST", f"{POP}q?wait=true&timeout=60")
        wait_until(server, lambda: len(server.app.answers.line) == 1)
        server.run(end_polls())

        assert waiting.reply().code == "SERVER_BUSY"
        assert len(server.app.answers.line) == 0


def test_a_client_that_takes_too_long_is_cut_off_while_others_wait(server: RunningServer) -> None:
    push(server.port, "q", LARGE)
    server.app.answers.late_seconds = 0
    with lazy(server) as slow:
        assert attempts(pop(server.port, "q")) == [1]
        with pytest.raises(ConnectionError):
            slow.reply()
    assert metric(server.port, "skep_answers_cut_off_total") == 1


@pytest.mark.parametrize("known", [False, True], ids=["unknown sizes", "thought to be small"])
@pytest.mark.parametrize("how", ["", "&autoAck=true"], ids=["leased", "auto-acked"])
def test_a_message_larger_than_all_room_goes_through(how: str, known: bool) -> None:
    with running_server(limits=HttpLimits(answers_bytes=1_000_000)) as server:
        if known:
            makes_small_known(server.port, "q")
        push(server.port, "q", 3_000_000, 3_000_000)

        assert attempts(pop(server.port, f"q?batch=2{how}")) == [1]
        wait_until(server, lambda: server.app.answers.held_bytes == 0)


def test_what_would_be_settled_at_once_is_not_popped_without_room_for_the_largest(impatient: RunningServer) -> None:
    makes_small_known(impatient.port, "q")
    push(impatient.port, "q", LARGE)
    with lazy(impatient):
        assert pop(impatient.port, "q?autoAck=true").code == "SERVER_BUSY"
    wait_until(impatient, lambda: impatient.app.answers.held_bytes == 0)

    assert attempts(pop(impatient.port, "q?autoAck=true")) == [1]


def test_small_answers_do_not_stand_behind_large_ones(server: RunningServer) -> None:
    makes_small_known(server.port, "small")
    push(server.port, "small", 10)
    push(server.port, "q", LARGE)
    with lazy(server), Wire(server.port) as waiting:
        waiting.request("POST", f"{POP}q?wait=true&timeout=60")
        wait_until(server, lambda: len(server.app.answers.line) == 1)

        assert attempts(pop(server.port, "small?batch=10")) == [1]
        assert len(server.app.answers.line) == 1


@pytest.mark.parametrize("known", [False, True], ids=["unknown sizes", "thought to be small"])
def test_what_is_pushed_for_one_who_waits_waits_with_it_for_room(server: RunningServer, known: bool) -> None:
    if known:
        makes_small_known(server.port, "q")
    else:
        push(server.port, "q", 10)
    with Wire(server.port) as waiting:
        waiting.request("POST", f"{POP}q?wait=true&timeout=60&consumerGroup=new&subscriptionMode=new")
        wait_until(server, lambda: server.engine.parked_polls == 1)
        with lazy(server):
            push(server.port, "q", LARGE)
            wait_until(server, lambda: len(server.app.answers.line) == 1)
            assert server.app.answers.held_bytes == LARGE

        assert attempts(waiting.reply()) == [1]
    assert server.app.answers.peak_bytes <= ROOM


@pytest.mark.parametrize("path", ["/api/v1/dlq?queue=q&preview=10", "/admin/queues/q/dlq?limit=100"])
def test_pages_of_dead_letters_are_bounded_in_bytes_and_name_all(path: str) -> None:
    settings = EngineSettings(limits=Limits(page_bytes=250_000, payload_bytes=1_000_000))
    with running_server(limits=LIMITS, settings=settings) as server, Wire(server.port) as wire:
        push(server.port, "q", *[100_000] * 7, partitions=True)
        for message in pop(server.port, "q?batch=10").json["messages"]:
            body = {"leaseId": message["leaseId"], "seq": message["seq"], "status": "dlq"}
            wire.request("POST", "/api/v1/ack", json.dumps(body).encode()).reply()
        pages = []
        after: int | None = 0
        while after is not None:
            reply = wire.request("GET", f"{path}&after={after}").reply().json
            pages.append(len(next(value for value in reply.values() if isinstance(value, list))))
            after = reply.get("after")

        assert pages == [3, 3, 1]
        assert 0 < server.app.answers.peak_bytes <= ROOM


@pytest.mark.parametrize(
    "trouble",
    [ClientGone(), SkepError(Code.QUEUE_FULL, "full"), RuntimeError("a bug"), asyncio.CancelledError()],
    ids=repr,
)
async def test_an_answer_that_does_not_come_gives_its_room_back(trouble: BaseException) -> None:
    answers = Answers(ROOM)

    async def handler(call: Call) -> Answer:
        await call.hold(answers, LARGE)
        raise trouble

    async def receive() -> Event:
        return {"type": "http.disconnect"}

    async def send(event: Event) -> None:
        assert answers.held_bytes == 0, f"given back before {event['type']}"

    endpoint = Endpoint(handler, HttpLimits(), Bodies(1, Peers("")), None, Meter().route("GET", "/", ""))
    scope = {"type": "http", "method": "GET", "raw_path": b"/", "query_string": b"", "headers": []}
    with contextlib.suppress(asyncio.CancelledError):
        await endpoint(scope, receive, send)

    assert (answers.held_bytes, answers.peak_bytes) == (0, LARGE)
