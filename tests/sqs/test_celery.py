"""Celery with its SQS transport, as an app starts it: tasks, retries, ETA, and workers of which one is killed.

Celery delivers at least once: a task that a slow worker has not finished in the visibility timeout runs twice. So a task may be noted again,
and where nothing is to run out the timeout is long.
"""

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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from skep.testing.server import RunningServer, running_server
from tests.sqs.celery_tasks import app_at

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TASKS = "tests.sqs.celery_tasks"
WAIT_SECONDS = 300.0
ENDLESS_SECONDS, SHORT_SECONDS = 3_600, 3


class Noted(NamedTuple):
    """What a task has told, in which process, and when."""

    pid: int
    at: float
    text: str


class Notes(socketserver.ThreadingTCPServer):
    """Takes the notes of tasks. A task that holds is answered when the test lets it go on."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Note)
        self.noted: queue.Queue[Noted] = queue.Queue()
        self.goes_on = threading.Event()
        """Set when tasks that hold need not hold any longer."""

    def until(self, *texts: str) -> list[Noted]:
        """Wait until tasks have told all of these; the first note of each, in the order in which they came."""
        found: dict[str, Noted] = {}
        while not found.keys() >= set(texts):
            one = self.noted.get(timeout=WAIT_SECONDS)
            found.setdefault(one.text, one)
        return [one for one in found.values() if one.text in texts]

    def next_of(self, pid: int) -> Noted:
        """The next note of this process."""
        while (one := self.noted.get(timeout=WAIT_SECONDS)).pid != pid:
            pass
        return one


class _Note(socketserver.StreamRequestHandler):
    server: Notes

    def handle(self) -> None:
        pid, at, text = self.rfile.readline().decode().strip().split(" ", 2)
        self.server.noted.put(Noted(int(pid), float(at), text))
        if not text.startswith("hold") or self.server.goes_on.wait(WAIT_SECONDS):
            self.wfile.write(b"go on\n")


@contextmanager
def noting() -> Iterator[Notes]:
    with Notes() as notes:
        thread = threading.Thread(target=notes.serve_forever)
        thread.start()
        try:
            yield notes
        finally:
            notes.shutdown()
            thread.join()


def broker_of(server: RunningServer) -> str:
    return f"sqs://any:any@127.0.0.1:{server.port}"


@contextmanager
def workers(
    server: RunningServer, notes: Notes, name: str, visibility_timeout: int, folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two workers of the app with this queue."""
    command = [sys.executable, "-m", "celery", "--app", TASKS, "worker", "--pool=solo", "--loglevel=INFO"]
    environ = {
        **os.environ, "TASKS_BROKER": broker_of(server), "TASKS_NOTES": str(notes.server_address[1]), "TASKS_QUEUE": name,
        "TASKS_VISIBILITY": str(visibility_timeout), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    started = []
    for number in range(2):
        with (folder / f"{name}-{number}.log").open("wb") as log:
            process = [*command, f"--hostname={name}{number}@test"]
            started.append(subprocess.Popen(process, cwd=ROOT, env=environ, stdout=log, stderr=log))
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "skep.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


def test_tasks_retries_and_eta(store: str, tmp_path: Path) -> None:
    with running_server(store) as server, noting() as notes:
        app = app_at(broker_of(server), "tasks", ENDLESS_SECONDS)
        with workers(server, notes, "tasks", ENDLESS_SECONDS, tmp_path):
            for n in range(20):
                app.send_task(f"{TASKS}.add", (n,))
            notes.until(*(f"add {n}" for n in range(20)))

            app.send_task(f"{TASKS}.flaky", ("a",))
            tries = [f"flaky a {n}" for n in range(3)]
            assert [one.text for one in notes.until(*tries)] == tries

            eta = datetime.now(UTC) + timedelta(seconds=2)
            app.send_task(f"{TASKS}.add", (100,), eta=eta)
            app.send_task(f"{TASKS}.add", (101,), countdown=0)
            by_text = {one.text: one for one in notes.until("add 100", "add 101")}
            assert by_text["add 100"].at >= eta.timestamp()
        app.close()


def test_a_task_of_a_killed_worker_is_done_by_another(store: str, tmp_path: Path) -> None:
    with running_server(store) as server, noting() as notes:
        app = app_at(broker_of(server), "held", SHORT_SECONDS)
        with workers(server, notes, "held", SHORT_SECONDS, tmp_path) as (first, second):
            app.send_task(f"{TASKS}.hold", ("once",))
            [held] = notes.until("hold once")
            killed, left = (first, second) if held.pid == first.pid else (second, first)
            killed.send_signal(signal.SIGKILL)
            again = notes.next_of(left.pid)  # when the visibility timeout is over
            assert again.text == "hold once"
            notes.goes_on.set()
            app.send_task(f"{TASKS}.add", (200,))
            [done] = notes.until("add 200")
            assert done.pid == left.pid
        app.close()
