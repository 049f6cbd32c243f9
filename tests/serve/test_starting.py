"""Starting: what it says, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import skep
from skep.spec import load
from tests.serve.client import get
from tests.support.serving import serving
from tests.support.wire import Wire

OPEN = ["--set", "access.required=false"]


def failure(*arguments: str, folder: Path, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code of a server that does not start, and the one line that says why."""
    with serving(*arguments, folder=folder, environ=environ) as server:
        code = server.ended()
        [line] = server.lines
        return code, line


def test_the_first_line_tells_where_it_listens_and_what_it_is(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server:
        event = server.event("listening")

    assert json.loads(server.lines[0]) == event
    assert event["address"].startswith("http://127.0.0.1:")
    assert (event["store"], event["version"], event["pid"]) == ("sqlite", skep.__version__, server.process.pid)
    assert (tmp_path / "skep-data" / "skep.db").exists()


def test_no_password_is_in_the_log(tmp_path: Path, postgres_dsn: str) -> None:
    url = postgres_dsn + ("&" if "?" in postgres_dsn else "?") + "password=s3cret"
    with serving("--log-level", "debug", folder=tmp_path, environ={"SKEP_STORE": url}) as server:
        assert get(server.listening(), "/ready")[0] == 200
        server.signal()
        server.ended()

    assert not [line for line in server.lines if "s3cret" in line]


def test_connections_to_postgresql_are_bounded(tmp_path: Path, postgres_dsn: str) -> None:
    with serving("--set", "store_connections=2", "--store", postgres_dsn, folder=tmp_path) as server:
        port = server.listening()
        with ThreadPoolExecutor(8) as pool:
            assert {status for status, _ in pool.map(lambda _: get(port, "/ready"), range(40))} == {200}
        database = urlsplit(postgres_dsn).port
        held = [c for c in server.system.net_connections("tcp") if getattr(c.raddr, "port", None) == database]

    # The pool's two, and one that hears of other servers.
    assert 1 <= len(held) <= 3


def test_at_debug_every_request_is_told_without_what_is_in_it(tmp_path: Path) -> None:
    with serving("--log-level", "debug", folder=tmp_path) as server:
        with Wire(server.listening()) as wire:
            wire.request(
                "POST", "/api/v1/push?x=s3cret", b'{"items": "s3cret"}', {"Authorization": "Bearer s3cret"}
            ).reply()
        event = server.event("request")
        server.signal()
        server.ended()

    assert (event["method"], event["path"], event["logger"]) == ("POST", "/api/v1/push", "skep.http.access")
    assert event["status"] >= 400
    assert not [line for line in server.lines if "s3cret" in line]
    assert [line for line in server.lines if not line.startswith("{")] == [], "libraries log in the same way"


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, line = failure("--port", str(taken.getsockname()[1]), folder=tmp_path)

    assert code == 2
    assert line.startswith("skep: ADDRESS_UNAVAILABLE: 127.0.0.1:")
    assert "is in use by another program" in line
    assert not (tmp_path / "skep-data").exists(), "the store is not touched"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    code, line = failure("--data-folder", "file/data", folder=tmp_path)

    assert (code, "Cannot make the data folder file/data" in line) == (2, True)


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"this is something else" * 100)

    code, line = failure("--store", "other.db", folder=tmp_path)

    assert (code, "this is no sound Skep database" in line) == (2, True)


def test_it_does_not_start_without_the_secrets_of_its_apps(tmp_path: Path) -> None:
    app = load('app A { queue Q {}, webhook W { queue: Q, verify_github { secret_env: "W_SECRET" } } }', "a.skep")
    with serving(folder=tmp_path, environ={"W_SECRET": "x" * 16}) as server:
        with skep.Client(f"http://127.0.0.1:{server.listening()}") as client:
            client.apply(app)
        server.signal()
        assert server.ended() == 0

    code, line = failure(folder=tmp_path)
    assert code == 1
    assert line.startswith(
        "skep: INVALID_SPEC: Applied apps name secrets that this server cannot use: the environment has neither W_SECRET nor W_SECRET_FILE;"
    )
    with serving("--set", "require_secrets=false", folder=tmp_path) as server:
        assert server.event("applied apps name secrets that this server cannot use")["variables"] == ["W_SECRET"]
        server.listening()
        server.signal()
        server.ended()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0", *OPEN], "0.0.0.0 can be reached from other machines"),
        (["--host", "::", *OPEN], ":: can be reached from other machines"),
        (["--host", "", *OPEN], "can be reached from other machines"),
        (["--host", "no-such-host.invalid"], "means no address"),
        (["--workers", "2", "--store", ":memory:"], "What is in memory belongs to one process"),
        (["--set", "limits.pages=1"], "the nearest is limits.page"),
        (["--store", "mysql://host/db"], "A store is sqlite:///path"),
        (["--store", "sqlite:orders.db"], "A store is sqlite:///path"),
        (["--store", "postgresql:/host/db"], "A store is sqlite:///path"),
    ],
)
def test_a_wrong_setting_is_exit_code_1(tmp_path: Path, arguments: list[str], said: str) -> None:
    code, line = failure(*arguments, folder=tmp_path)

    assert (code, said in line) == (1, True), line


def test_the_refusal_to_be_reached_says_what_to_do(tmp_path: Path) -> None:
    _, line = failure("--host", "0.0.0.0", *OPEN, folder=tmp_path)

    assert "--insecure" in line
    assert "127.0.0.1" in line


def test_off_loopback_nobody_gets_in_without_a_key(tmp_path: Path) -> None:
    with serving("--host", "0.0.0.0", folder=tmp_path) as server:
        server.event("there is no key yet, so nobody gets in; make one with: skep key create --role admin")
        with Wire(server.listening()) as wire:
            assert wire.request("GET", "/api/v1/resources/queues").reply().status == 401
            assert wire.request("GET", "/health").reply().status == 200


@pytest.mark.parametrize(
    "arguments", [["--host", "0.0.0.0", "--insecure"], ["--host", "localhost"], ["--host", "127.1.2.3"]]
)
def test_it_listens_where_it_may(tmp_path: Path, arguments: list[str]) -> None:
    with serving(*arguments, folder=tmp_path) as server:
        assert server.listening()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_loopback_of_ipv6_is_loopback(tmp_path: Path, host: str) -> None:
    with serving("--host", host, folder=tmp_path) as server:
        assert server.event("listening")["address"].startswith("http://[::1]:")


def test_a_file_in_the_working_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "skep.toml").write_text('store = "orders.db"\n[http]\nurl_bytes = 100\n')
    with serving(folder=tmp_path) as server, Wire(server.listening()) as wire:
        assert wire.request("GET", "/" + "x" * 200).reply().status == 414

    assert (tmp_path / "orders.db").exists()


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """What it costs is counted in modules rather than in seconds, which a busy machine would stretch."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "skep", "--help"], capture_output=True, text=True, cwd=tmp_path, check=True
    )  # fmt: skip

    loaded = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    heavy = {"structlog", "uvicorn", "starlette", "apsw", "asyncpg", "msgspec", "skep.server", "skep.server.process"}
    assert "skep" in loaded
    assert not loaded & heavy
    assert "serve" in run.stdout
