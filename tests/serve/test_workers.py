"""Several processes on one port: all serve, the dead are replaced, and a signal to the first stops all."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.serve.client import Producer, get, stored
from tests.support.process import run_skep
from tests.support.serving import WAIT_SECONDS, ServeProcess, serving
from tests.support.wire import Wire

PUSH = b'{"items": [{"queue": "q", "payload": 1}]}'
ON_SQLITE = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("store", ["postgres"], indirect=True)


@pytest.fixture(params=["postgres", "sqlite"])
def store(request: pytest.FixtureRequest) -> str:
    """What they share."""
    return "skep.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
def server(tmp_path: Path, store: str) -> Iterator[ServeProcess]:
    """Two workers, and one process above them."""
    with serving("--store", store, "--workers", "2", folder=tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def shared(shared_folder: Path) -> Iterator[tuple[ServeProcess, int]]:
    """Two workers on an SQLite file, and their port, for tests that leave two behind: they take long to start."""
    with serving("--store", "skep.db", "--workers", "2", folder=shared_folder) as server:
        yield server, server.listening()


def workers_of(server: ServeProcess) -> list[psutil.Process]:
    return children(server, "skep.server.process")


def owner_of(server: ServeProcess) -> psutil.Process:
    [owner] = children(server, "skep.server.owner")
    return owner


def children(server: ServeProcess, module: str) -> list[psutil.Process]:
    return [child for child in server.system.children() if module in " ".join(child.cmdline())]


def test_all_workers_serve_one_port(shared: tuple[ServeProcess, int]) -> None:
    all_serve(*shared)


@ON_POSTGRES
def test_all_workers_on_postgresql_serve_one_port(server: ServeProcess) -> None:
    all_serve(server, server.listening())


def all_serve(server: ServeProcess, port: int) -> None:
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


@ON_POSTGRES
def test_a_worker_on_postgresql_that_dies_is_replaced(server: ServeProcess) -> None:
    port = server.listening()
    before = workers_of(server)

    before[0].kill()

    is_replaced(server, port, before)


def is_replaced(server: ServeProcess, port: int, before: list[psutil.Process]) -> None:
    """The first of the workers has died, and another is there for it."""
    assert server.event("a worker ended and is replaced")["pid"] == before[0].pid
    replacement = server.event("worker listening")["pid"]
    assert replacement not in {worker.pid for worker in before}
    assert {worker.pid for worker in workers_of(server)} == {before[1].pid, replacement}
    assert get(port, "/ready")[0] == 200


def test_I1_a_stop_reaches_all_workers_and_loses_nothing(server: ServeProcess, tmp_path: Path, store: str) -> None:
    port = server.listening()
    workers = server.system.children()
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
    with serving("--store", store, folder=tmp_path) as again:
        assert answered <= set(stored(again.listening()))


def test_a_signal_while_the_first_child_starts_stops_it_in_order(server: ServeProcess) -> None:
    """As when a deployment changes its mind."""
    while not server.system.children():
        pass

    server.signal(signal.SIGTERM)

    assert (server.ended(), [line for line in server.lines if not line.startswith("{")]) == (0, [])


def test_a_signal_to_all_processes_at_once_stops_them_in_order(server: ServeProcess) -> None:
    """As systemd stops a service, unless it is told otherwise."""
    server.listening()
    workers = workers_of(server)

    for process in (*server.system.children(), server.system):
        process.send_signal(signal.SIGTERM)

    assert server.ended() == 0
    ended = {event["pid"] for line in server.lines if (event := json.loads(line))["event"] == "stopped"}
    assert ended >= {worker.pid for worker in workers}


@ON_SQLITE
def test_I1_an_owner_that_is_killed_loses_nothing_and_is_replaced(server: ServeProcess) -> None:
    port = server.listening()
    before = owner_of(server)
    producers = [Producer(port, f"p{number}") for number in range(4)]
    for producer in producers:
        producer.start()
    for producer in producers:
        assert producer.under_way.wait(WAIT_SECONDS)

    before.kill()

    assert server.event("the owner of the store ended and is replaced")["pid"] == before.pid
    assert server.event("owner of the store listening")["pid"] != before.pid
    with Wire(port) as wire:
        # 202 while the worker is still careful: it has just seen its store fail.
        assert wire.request("POST", "/api/v1/push", PUSH).reply().status in (201, 202)
    for producer in producers:
        producer.enough.set()
    for producer in producers:
        producer.join(WAIT_SECONDS)
    assert {text for producer in producers for text in producer.answered} <= set(stored(port))


def test_what_is_pushed_through_one_worker_wakes_who_waits_at_the_other(shared: tuple[ServeProcess, int]) -> None:
    server, port = shared
    with contextlib.ExitStack() as stack:
        waiting, pushing = wires_to_both(server, port, stack)
        made = b'{"queue": "q", "settings": {}}'
        assert pushing.request("POST", "/api/v1/configure", made).reply().status == 200
        waiting.request("GET", "/api/v1/pop/queue/q?wait=true&timeout=60")
        while not somebody_waits(port):
            pass
        assert pushing.request("POST", "/api/v1/push", PUSH).reply().status == 201

        assert waiting.reply().status == 200


def test_I9_what_a_killed_worker_held_comes_again_from_the_other_and_it_is_replaced(
    shared: tuple[ServeProcess, int],
) -> None:
    server, port = shared
    with contextlib.ExitStack() as stack:
        doomed, other = wires_to_both(server, port, stack)
        assert doomed.request("POST", "/api/v1/push", PUSH.replace(b'"q"', b'"held"')).reply().status == 201
        pop = "/api/v1/pop/queue/held?leaseSeconds=1&wait=true&timeout=60"
        assert doomed.request("GET", pop).reply().status == 200
        workers = sorted(workers_of(server), key=lambda worker: worker != holder_of(server, doomed, port))
        workers[0].kill()

        assert other.request("GET", pop).reply().status == 200
    is_replaced(server, port, workers)


@pytest.mark.usefixtures("shared")
def test_skep_key_finds_the_server_of_several_workers(shared_folder: Path) -> None:
    for _ in range(4):  # whichever worker answers
        listed = run_skep("key", "list", "--store", "skep.db", cwd=shared_folder, timeout=WAIT_SECONDS)
        assert listed.returncode == 0, listed.stderr


@pytest.mark.usefixtures("shared")
def test_a_second_server_is_kept_out_by_the_owner(shared_folder: Path) -> None:
    with serving("--store", "skep.db", "--workers", "2", folder=shared_folder) as second:
        assert second.ended() == 2
        [line] = second.lines

    assert "skep.db is in use by another server" in line


def test_nobody_else_can_reach_the_owner(shared: tuple[ServeProcess, int]) -> None:
    server, _ = shared
    sockets = [c.laddr for c in owner_of(server).net_connections("unix") if "skep-owner-" in str(c.laddr)]
    [path] = {Path(str(name)) for name in sockets}

    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def wires_to_both(server: ServeProcess, port: int, stack: contextlib.ExitStack) -> list[Wire]:
    """A connection to each of the two workers."""
    found: dict[int, Wire] = {}
    while len(found) < 2:
        wire = stack.enter_context(Wire(port))
        assert wire.request("GET", "/health").reply().status == 200
        found[holder_of(server, wire, port).pid] = wire
    return list(found.values())


def holder_of(server: ServeProcess, wire: Wire, port: int) -> psutil.Process:
    """The worker that took a connection."""
    mine = wire.socket.getsockname()[1]
    [holder] = [
        worker
        for worker in workers_of(server)
        if any((c.laddr.port, *c.raddr[1:]) == (port, mine) for c in worker.net_connections("tcp"))
    ]
    return holder


def somebody_waits(port: int) -> bool:
    """Whether the worker that answers has a pop that waits."""
    with Wire(port) as wire:
        return b"skep_parked_polls 1.0" in wire.request("GET", "/metrics").reply().body


@pytest.mark.slow
def test_workers_whose_supervisor_was_killed_stop_in_order(server: ServeProcess) -> None:
    server.listening()
    workers = server.system.children()

    server.signal(signal.SIGKILL)

    _, left = psutil.wait_procs(workers, timeout=WAIT_SECONDS)
    assert left == []


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
            assert wire.request("POST", "/api/v1/push", PUSH).reply().status == 201
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
