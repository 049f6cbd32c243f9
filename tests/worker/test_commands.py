"""`skep run` and `skep work` as processes: what they start, what they refuse, and how they stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import skep
from tests.support.process import SkepProcess, run_skep
from tests.worker.test_entities import ACCOUNTS

WAIT_SECONDS = 60


class Running:
    """`skep run` as a process; what it logs is read line by line."""

    def __init__(self, folder: Path, *arguments: str, environ: dict[str, str] | None = None) -> None:
        self.process = SkepProcess(
            "run", *arguments, "--port", "0", "--log-format", "json",
            cwd=folder, env={**os.environ, **(environ or {})}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("{") and (event := json.loads(line))["event"] == name:
                found: dict[str, Any] = event
                return found
        raise AssertionError(f"it ended before {name!r}: {seen}")

    def url(self) -> str:
        return str(self.event("listening")["address"])


@contextmanager
def running(folder: Path, *arguments: str, environ: dict[str, str] | None = None) -> Iterator[Running]:
    started = Running(folder, *arguments, environ=environ)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def work(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_skep("work", *arguments, cwd=folder, text=True, timeout=WAIT_SECONDS)


def until_done(client: skep.Client, queue: str) -> None:
    """Wait until a queue is empty, by what it tells and not by time."""
    while client.stats(queue).stats.depth:
        client.pop("nothing-ever", wait_seconds=0.05)


def test_run_serves_applies_and_works_and_replaces_a_worker_that_dies(tmp_path: Path) -> None:
    (tmp_path / "accounts.skep").write_text(ACCOUNTS)
    with running(tmp_path, "accounts.skep", "--store", "accounts.db") as one:
        url = one.url()
        worker = psutil.Process(one.event("worker started")["pid"])
        with skep.Client(url) as client:
            client.configure("nothing-ever")
            assert [app.app for app in client.apps()] == ["Accounts"]
            with pytest.raises(skep.SkepError, match="MESSAGE_INVALID"):
                client.push("Deposits", {"account": 7})
            client.push("Deposits", {"account": "a-1", "cents": 5})
            until_done(client, "Deposits")
            worker.kill()
            successor = psutil.Process(one.event("worker started")["pid"])
            assert successor.pid != worker.pid
            client.push("Deposits", {"account": "a-1", "cents": 6})
            until_done(client, "Deposits")
            assert client.entity("Account", "a-1").version == 3
        one.process.send_signal(signal.SIGTERM)
        one.event("stopped")
        assert one.process.wait(WAIT_SECONDS) == 0
        assert not successor.is_running()


def test_run_takes_functions_from_a_module_and_gives_up_its_workers_when_it_is_killed(tmp_path: Path) -> None:
    bell = "webhook Bell { command: Bank.Open { door: payload.door }\n verify: none }"
    (tmp_path / "accounts.skep").write_text(ACCOUNTS.rstrip().removesuffix("}") + bell + "}")
    (tmp_path / "bank.py").write_text(
        "import skep\n"
        "app = skep.App.load('accounts.skep')\n"
        "@app.command('Account.Deposit')\n"
        "def deposit(given: dict) -> dict:\n"
        "    return {'version': given['cents'] * 2}\n"
        "@app.command('Bank.Open')\n"
        "def open_(given: dict) -> dict:\n"
        "    return {'open': given['door']}\n"
    )
    with running(tmp_path, "bank:app", "--store", ":memory:") as one:
        url = one.url()
        workers = [psutil.Process(one.event("worker started")["pid"])]
        with skep.Client(url) as client:
            client.configure("nothing-ever")
            client.push("Deposits", {"account": "a-1", "cents": 500})
            until_done(client, "Deposits")
            [followed] = client.pop("Receipts")
            assert followed.json() == {"account": "a-1", "version": 1000}
        with urllib.request.urlopen(f"{url}/hook/Bell", b'{"door": "front"}') as answer:
            assert (answer.status, json.loads(answer.read())) == (200, {"open": "front"})
        one.process.kill()
        gone, alive = psutil.wait_procs(workers, WAIT_SECONDS)
        assert (len(gone), alive) == (1, [])


def test_work_works_for_a_server_that_runs(tmp_path: Path) -> None:
    (tmp_path / "accounts.skep").write_text(ACCOUNTS)
    with running(tmp_path, "accounts.skep", "--store", ":memory:", "--worker-processes", "0") as one:
        url = one.url()
        with skep.Client(url) as client:
            client.push("Deposits", [{"account": "a-1", "cents": 5}, {"account": "a-2", "cents": -5}])
            done = work(tmp_path, "accounts.skep", "--url", url, "--until-empty", "--log-level", "warning")
            assert (done.returncode, done.stdout) == (0, "")
            [line] = map(json.loads, done.stderr.splitlines())
            assert (line["level"], line["logger"]) == ("error", "skep.worker")
            assert "is a dead letter now: GUARD_REJECTED" in line["event"]
            assert client.stats("Deposits").stats.depth == 0
            assert client.entity("Account", "a-1").version == 2
            assert len(list(client.dead_letters("Deposits"))) == 1


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            "app A { queue Q { map_to: command Order.Place {} } }",
            "COMMAND_UNAVAILABLE: Nothing carries out Order.Place",
        ),
        (
            'app A { queue Q { deliver: "https://a.example/" { secret_env: "A_SECRET" } } }',
            "A cannot start: the environment has neither A_SECRET nor A_SECRET_FILE",
        ),
        (
            "app A { webhook H { command: Order.Place { n: payload.n }\n verify: none } }",
            "COMMAND_UNAVAILABLE: Nothing carries out Order.Place, which the webhook H runs",
        ),
        ("app A { queue Q { map_too: 1 } }", "there is no 'map_too' in a queue"),
    ],
)
def test_run_refuses_to_start_and_says_why(tmp_path: Path, spec: str, told: str) -> None:
    (tmp_path / "a.skep").write_text(spec)
    done = run_skep(
        "run", "a.skep", "--store", ":memory:", "--port", "0", cwd=tmp_path, text=True, timeout=WAIT_SECONDS
    )
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nothing.skep", "nothing.skep cannot be read"),
        ("nothing:app", "'nothing' cannot be imported"),
        ("nothing.py:app", "There is no file nothing.py"),
        ("json:app", "json:app: json has nothing of that name"),
        ("json:dumps", "json:dumps: json has function, not a skep.App"),
    ],
)
def test_work_says_what_is_wrong_with_its_target(tmp_path: Path, target: str, told: str) -> None:
    done = work(tmp_path, target)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_run_works_for_itself_where_others_need_a_key(tmp_path: Path) -> None:
    (tmp_path / "accounts.skep").write_text(ACCOUNTS)
    making = run_skep("key", "create", "-q", "--role", "admin", cwd=tmp_path, text=True, timeout=WAIT_SECONDS)
    making.check_returncode()
    key: str = making.stdout
    with running(tmp_path, "accounts.skep") as app:
        url = app.url()
        with skep.Client(url, attempts=1) as stranger, pytest.raises(skep.SkepError, match="UNAUTHENTICATED"):
            stranger.apps()
        with skep.Client(url, token=key.strip()) as client:
            assert [one.usable for one in client.apps()] == [True]
        app.event("worker started")
