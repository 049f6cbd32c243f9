"""Celery with its SQS transport, as an app starts it: tasks, retries, ETA, and workers of which one is killed."""

from __future__ import annotations

import os
import queue
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skep.testing.server import RunningServer, running_server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60.0


class Noted(NamedTuple):
    """What a task has told, and the means to let it go on."""

    pid: int
    text: str
    go_on: threading.Event


class Notes(socketserver.ThreadingTCPServer):
    """Takes the notes of tasks. A task that holds is answered when the test lets it go on."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Note)
        self.noted: queue.Queue[Noted] = queue.Queue()

    def next(self) -> Noted:
        return self.noted.get(timeout=WAIT_SECONDS)

    def texts(self, count: int) -> list[str]:
        return sorted(self.next().text for _ in range(count))


class _Note(socketserver.StreamRequestHandler):
    server: Notes

    def handle(self) -> None:
        pid, _, text = self.rfile.readline().decode().strip().partition(" ")
        one = Noted(int(pid), text, threading.Event())
        self.server.noted.put(one)
        if not text.startswith("hold") or one.go_on.wait(WAIT_SECONDS):
            self.wfile.write(b"go on\n")


@contextmanager
def noting() -> Iterator[Notes]:
    with Notes() as notes:
        thread = threading.Thread(target=notes.serve_forever)
        thread.start()
        yield notes
        notes.shutdown()
        thread.join()


@contextmanager
def workers(count: int, environ: dict[str, str], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "--app",
        "tests.sqs.celery_tasks",
        "worker",
        "--pool=solo",
        "--loglevel=INFO",
    ]
    started = []
    for number in range(count):
        log = (folder / f"worker-{number}.log").open("wb")
        started.append(
            subprocess.Popen([*command, f"--hostname=w{number}@test"], cwd=ROOT, env=environ, stdout=log, stderr=log)
        )
        log.close()
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def environment(server: RunningServer, notes: Notes) -> dict[str, str]:
    broker = f"sqs://any:any@127.0.0.1:{server.port}"
    return {**os.environ, "TASKS_BROKER": broker, "TASKS_NOTES": str(notes.server_address[1]), "PYTHONPATH": str(ROOT)}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "skep.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


def test_tasks_retries_eta_and_a_killed_worker(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(store) as server, noting() as notes:
        environ = environment(server, notes)
        for name in ("TASKS_BROKER", "TASKS_NOTES"):
            monkeypatch.setenv(name, environ[name])
        tasks = pytest.importorskip("tests.sqs.celery_tasks")
        with workers(2, environ, tmp_path) as (first, second):
            sent: list[Any] = [tasks.add.delay(n) for n in range(20)]
            assert len(sent) == 20
            assert notes.texts(20) == sorted(f"add {n}" for n in range(20))

            tasks.flaky.delay("a")
            assert [notes.next().text for _ in range(3)] == ["flaky a 0", "flaky a 1", "flaky a 2"]

            tasks.add.apply_async((100,), countdown=2)
            tasks.add.delay(101)
            assert [notes.next().text for _ in range(2)] == ["add 101", "add 100"]

            tasks.hold.delay("once")
            held = notes.next()
            assert held.text == "hold once"
            killed, left = (first, second) if held.pid == first.pid else (second, first)
            killed.send_signal(signal.SIGKILL)
            again = notes.next()  # when the visibility timeout of three seconds is over
            assert (again.text, again.pid) == ("hold once", left.pid)
            again.go_on.set()
            tasks.add.delay(200)
            assert notes.next().text == "add 200"
            tasks.app.close()
