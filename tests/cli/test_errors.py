"""How commands fail: an exit code that says whose fault it is, and one line on stderr with the code, never a traceback."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import skep
from skep.cli.at_store import StoreChoice, on_store
from skep.cli.exits import exit_code
from skep.engine import Engine
from skep.errors import Code, SkepError
from tests.cli.command import Command, Ended


def complaint(ended: Ended) -> str:
    """The one line on stderr."""
    assert ended.out == ""
    [line] = ended.err.splitlines()
    assert line.startswith("skep: ")
    return line.removeprefix("skep: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nope",),
        ("queue", "nope"),
        ("queue", "show"),
        ("queue", "list", "--nope"),
        ("queue", "list", "-o", "nope"),
        ("pop", "orders", "--batch", "many"),
        ("pop", "orders", "--wait", "-1"),
        ("pop", "orders", "--wait", "nan"),
        ("tail", "orders", "--from", "yesterday"),
        ("push", "orders", "not JSON"),
        ("push", "orders", "1", "--header", "nope"),
        ("push", "orders", "--file", "/nowhere/at/all"),
        ("push", "orders", "--file", "/tmp"),
        ("push", "orders", "1", "--deliver-at", "99999999999999d"),
        ("queue", "update", "orders"),
        ("message", "show", "orders"),
        ("queue", "list", "--url", "nope"),
        ("message", "list", "orders", "--limit", "0"),
        ("dlq", "list", "orders", "--limit", "-1"),
    ],
)
def test_what_cannot_be_meant_is_the_fault_of_whoever_typed_it(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command(*arguments)
    assert ended.code == 1
    assert complaint(ended).startswith("INVALID_")


def test_a_server_that_is_not_there_is_told_apart(command: Command) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ended = command("queue", "list", "--url", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert ended.code == 2
    assert complaint(ended).startswith("SERVER_UNREACHABLE")


def test_what_is_not_there_is_told_apart(command: Command) -> None:
    ended = command("queue", "show", "nope")
    assert ended.code == 4
    assert (
        complaint(ended)
        == "QUEUE_NOT_FOUND: There is no queue 'nope': the first push makes it, or skep queue create nope."
    )


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """A server that answers everything with this, and remembers the credentials it was shown."""
    shown: list[str | None] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", shown
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "cure"),
    [(401, "UNAUTHENTICATED", " Show one with --token or SKEP_TOKEN."), (403, "FORBIDDEN", "")],
)
def test_credentials_that_do_not_do_are_told_apart(command: Command, status: int, code: str, cure: str) -> None:
    body = json.dumps({"error": {"code": code, "message": "not you", "details": {}}}).encode()
    with answering(status, body) as (url, shown):
        ended = command("queue", "list", "--url", url, SKEP_TOKEN="secret-1")
    assert ended.code == 3
    assert complaint(ended) == f"{code}: Not you.{cure}"
    assert shown == ["Bearer secret-1"]


def test_an_error_cannot_steer_the_terminal(command: Command) -> None:
    body = json.dumps({"error": {"code": "FORBIDDEN", "message": "a\x1b[31m\nb", "details": {}}}).encode()
    with answering(403, body) as (url, _):
        ended = command("queue", "list", "--url", url)
    assert complaint(ended) == "FORBIDDEN: a\N{REPLACEMENT CHARACTER}[31m b"


@pytest.mark.parametrize("code", Code)
def test_every_code_has_an_exit_code(code: Code) -> None:
    wanted = 1
    if code in (Code.UNAUTHENTICATED, Code.FORBIDDEN):
        wanted = 3
    elif code.endswith("_NOT_FOUND") and code is not Code.ROUTE_NOT_FOUND:
        wanted = 4
    elif code.startswith(("STORE_", "SERVER_")) or code in (
        Code.STOPPING, Code.INTERNAL, Code.REQUEST_TIMEOUT, Code.TOO_MANY_REQUESTS, Code.ROUTE_NOT_FOUND,
        Code.METHOD_NOT_ALLOWED, Code.LAKE_UNREACHABLE,
    ):  # fmt: skip
        wanted = 2
    assert exit_code(code) == wanted


@pytest.mark.parametrize(
    ("arguments", "code"), [(("pop", "orders", "--wait", "300"), 130), (("tail", "orders"), 0)], ids=["pop", "tail"]
)
def test_ctrl_c_ends_a_command_that_waits_for_an_answer(
    command: Command, arguments: tuple[str, ...], code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = command.started(*arguments, "--url", f"http://127.0.0.1:{mute.getsockname()[1]}")
        connection, _ = mute.accept()
        assert connection.recv(1) in (b"G", b"P")
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)
        connection.close()
    assert (process.returncode, *printed) == (code, "", "")


def test_a_reader_that_goes_away_is_no_error(command: Command) -> None:
    lines = "".join(f'"{"x" * 1_000}-{number}"\n' for number in range(1_000))
    assert command("push", "orders", stdin=lines).code == 0
    process = command.started("message", "list", "orders", "--limit", "1000", "-o", "ndjson")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("{")
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 0


def test_a_line_that_is_no_utf8_is_named(command: Command) -> None:
    ended = command("push", "orders", stdin=b'1\n"\xff"\n')

    assert ended.code == 1
    assert ended.err.startswith("skep: INVALID_PAYLOAD: Line 2 is not JSON")


@pytest.mark.parametrize("arguments", ["push orders", "queue delete orders"])
def test_a_command_without_any_stdin_says_what_it_needs(command: Command, client: skep.Client, arguments: str) -> None:
    client.push("orders", 1)
    line = f"exec {sys.executable} -m skep {arguments} <&-"
    ended = subprocess.run(["/bin/sh", "-c", line], env=command.environ, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert ended.stderr.startswith("skep: INVALID_REQUEST: ")


@pytest.mark.parametrize("arguments", [("--url", "http://127.0.0.1:99999"), ("--wait", "1e20")])
def test_what_cannot_be_sent_is_the_mistake_of_whoever_typed_it(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command("pop", "orders", *arguments)

    assert ended.code == 1
    assert ended.err.startswith("skep: INVALID_REQUEST: The request cannot be sent so")


def test_an_error_at_the_store_keeps_its_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It sets up the logging of the whole process, and later tests would find none of their records.
    monkeypatch.setattr("skep.runtime.logs.configure_logs", lambda *_: None)

    async def work(_engine: Engine) -> None:
        raise SkepError(Code.STORE_BUSY, "not now", retry_after_seconds=7)

    with pytest.raises(SkepError) as failed:
        on_store(StoreChoice(store=str(tmp_path / "skep.db")), work)
    assert failed.value.details == {"retry_after_seconds": 7}
