"""`skep key` without a token: it asks the server that proves that it holds the store, and tells its secret to no other."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.access import presence
from skep.store.sqlite.connection import FileLock
from tests.support.process import SkepProcess, run_skep
from tests.support.serving import serving

GUARDED = ("--set", "access.required=true")
Answering = Callable[[str, bytes], tuple[int, bytes]]


def skep(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return run_skep(*arguments, cwd=folder, env={**clean, **environ}, text=True, timeout=120)


def create(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return skep("key", "create", "-q", "--role", "admin", *arguments, folder=folder, **environ)


def mark(folder: Path) -> Path:
    return folder / "skep-data" / "skep.db.server"


def said(folder: Path) -> presence.Presence:
    return msgspec.json.decode(mark(folder).read_bytes(), type=presence.Presence)


def keys_on(port: int, token: str | None = None) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", "/api/v1/keys", headers=headers)
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    folder.mkdir()
    return folder


class Stranger:
    """Something else that listens, and remembers all that it was sent."""

    def __init__(self, answer: Answering, port: int) -> None:
        self.heard: list[str] = []
        stranger = self

        class Asked(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stranger.heard.append(f"{self.requestline}\n{self.headers}\n{body.decode()}")
                status, answered = answer(self.path, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answered)))
                self.end_headers()
                self.wfile.write(answered)

            do_GET = do_POST = do_DELETE = do_CONNECT = handle_any  # noqa: N815 - as the library calls them

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Asked)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def was_told(self, secret: str) -> bool:
        return any(secret in text for text in self.heard)


@contextmanager
def stranger(answer: Answering, port: int = 0) -> Iterator[Stranger]:
    found = Stranger(answer, port)
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()


def agrees(path: str, body: bytes) -> tuple[int, bytes]:
    """Says yes to everything, as somebody would who wants to be shown a secret."""
    return 200, json.dumps({"proof": "0" * 64, "asksForKeys": True}).encode()


def relaying(port: int) -> Answering:
    """Passes challenges on to the real server, and so gives the right answers."""

    def ask(path: str, body: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answered = response.status, response.read()
        connection.close()
        return answered

    return ask


# the server that holds the store


def test_the_first_key_of_a_running_server_is_made_as_its_own_hint_says(mine: Path) -> None:
    with serving(*GUARDED, folder=mine) as server:
        server.event("there is no key yet, so nobody gets in; make one with: skep key create --role admin")
        port = server.listening()

        made = create(mine)

        assert (made.returncode, made.stderr) == (0, "")
        status, body = keys_on(port, made.stdout.strip())
        assert (status, [key["createdBy"] for key in body["keys"]]) == (200, [f"cli:{account()}"])


def account() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def test_no_key_is_made_on_a_server_that_only_a_variable_names(mine: Path, other: Path) -> None:
    with serving(folder=mine) as holder, serving(folder=other) as foreign:
        port, elsewhere = holder.listening(), foreign.listening()

        made = create(mine, SKEP_URL=f"http://127.0.0.1:{elsewhere}")

        assert made.returncode == 0, made.stderr
        assert [len(keys_on(one)[1]["keys"]) for one in (port, elsewhere)] == [1, 0]
        assert "asks nobody for a key until it starts anew" in made.stderr


def test_a_key_that_is_made_without_a_server_says_in_which_store_it_is(tmp_path: Path) -> None:
    made = create(tmp_path, SKEP_TOKEN="", SKEP_URL="http://127.0.0.1:1")

    assert made.returncode == 0, made.stderr
    assert f"the key is in the store {tmp_path / 'skep-data' / 'skep.db'}" in made.stderr
    assert "SKEP_URL does not count" in made.stderr


def test_keys_are_listed_and_revoked_and_the_audit_log_is_read_through_the_holder(mine: Path) -> None:
    with serving(*GUARDED, folder=mine) as server:
        server.listening()
        key = create(mine).stdout.strip().split("_")[1]

        revoked = json.loads(skep("key", "revoke", key, folder=mine).stdout)
        listed = json.loads(skep("key", "list", folder=mine).stdout)
        audit = json.loads(skep("key", "audit", "--everywhere", folder=mine).stdout)

    assert (revoked["id"], [one["id"] for one in listed]) == (key, [key])
    assert [one["names"] for one in audit] == [[f"key:{key}"]] * 2


def test_the_file_is_private_new_with_each_start_and_gone_after_a_stop(mine: Path) -> None:
    secrets = []
    for _ in range(2):
        with serving(folder=mine) as server:
            port = server.listening()
            assert stat.S_IMODE(mark(mine).stat().st_mode) == 0o600
            assert said(mine).address == f"http://127.0.0.1:{port}"
            assert said(mine).secret not in repr(said(mine))
            secrets.append(said(mine).secret)
            server.signal(signal.SIGTERM)
            assert server.ended() == 0
            assert not any(secrets[-1] in line for line in server.lines)
        assert not list(mark(mine).parent.glob("*.server*"))
    assert secrets[0] != secrets[1]


@pytest.mark.parametrize("arguments", [("--host", "0.0.0.0"), ("--host", "127.1.2.3")])
def test_the_holder_is_found_whatever_address_it_listens_on(mine: Path, arguments: tuple[str, ...]) -> None:
    with serving(*GUARDED, *arguments, folder=mine) as server:
        server.listening()
        assert create(mine).returncode == 0


def test_skep_run_is_found_too(mine: Path) -> None:
    (mine / "a.skep").write_text("app A { queue Q { } }")
    running = SkepProcess(
        "run", "a.skep", "--port", "0", "--log-format", "json", *GUARDED, cwd=mine, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stderr is not None
        assert any('"listening"' in line for line in running.stderr)
        assert create(mine).returncode == 0
    finally:
        running.terminate()
        running.communicate(timeout=60)
    assert not mark(mine).exists()


def test_keys_of_a_store_in_postgresql_need_no_server_and_no_file(mine: Path, postgres_dsn: str) -> None:
    with serving("--store", postgres_dsn, "--workers", "2", *GUARDED, folder=mine) as server:
        port = server.listening()
        made = create(mine, "--store", postgres_dsn, SKEP_URL="http://127.0.0.1:9")
        assert made.returncode == 0, made.stderr
        assert keys_on(port, made.stdout.strip())[0] == 200
        assert not list(mine.rglob("*.server"))
        refused = create(mine, "--store", postgres_dsn, "--url", f"http://127.0.0.1:{port}")
        assert (refused.returncode, refused.stdout) == (3, "")


# others that would like to be asked


def test_a_server_named_without_a_token_is_refused_and_nothing_is_left_behind(mine: Path, other: Path) -> None:
    with serving(folder=other) as foreign:
        port = foreign.listening()
        for token in ({}, {"SKEP_TOKEN": ""}):
            refused = create(mine, "--url", f"http://127.0.0.1:{port}", **token)

            assert (refused.returncode, refused.stdout) == (3, "")
            assert "show one of an admin (--token), or leave out --url" in refused.stderr
        assert keys_on(port)[1]["keys"] == []
    assert list(mine.iterdir()) == []


def test_the_holder_may_be_named_by_any_of_its_names(mine: Path) -> None:
    with serving(*GUARDED, folder=mine) as server:
        made = create(mine, "--url", f"http://localhost:{server.listening()}", SKEP_TOKEN="")
    assert made.returncode == 0, made.stderr


def test_whoever_takes_the_port_of_a_crashed_server_is_shown_no_secret(mine: Path) -> None:
    with serving(folder=mine) as server:
        port = server.listening()
        left = mark(mine).read_bytes()
    assert mark(mine).read_bytes() == left, "it was killed"

    with stranger(agrees, port) as liar:
        made = create(mine)

    assert made.returncode == 0, made.stderr
    assert len(liar.heard) == 1
    assert "challenge" in liar.heard[0]
    assert not liar.was_told(json.loads(left)["secret"])
    assert made.stdout.strip() not in "".join(liar.heard)


def test_a_store_that_somebody_else_holds_is_not_asked_for_at_a_liar(mine: Path) -> None:
    mark(mine).parent.mkdir()
    lock = FileLock(str(mine / "skep-data" / "skep.db"), 0)
    with stranger(agrees) as liar:
        presence.announce(mark(mine), secret := presence.new_presence(liar.url))
        refused = create(mine)
    lock.release()

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no server proves that it is the one" in refused.stderr
    assert not liar.was_told(secret.secret)


def test_a_relay_that_is_named_gives_the_right_answer_and_is_still_not_told(mine: Path) -> None:
    with serving(*GUARDED, folder=mine) as server, stranger(relaying(server.listening())) as relay:
        made = create(mine, "--url", relay.url)
        secret = said(mine).secret

    assert made.returncode == 0, made.stderr
    assert len(relay.heard) == 1, "it saw the challenge, and no more"
    assert not relay.was_told(secret)


def test_whoever_never_comes_to_an_end_is_not_waited_for() -> None:
    """It goes on saying that the answer is about to come."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted: list[socket.socket] = []

        def babble() -> None:
            connection, _ = listening.accept()
            accepted.append(connection)
            with connection, suppress(OSError):
                while True:
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

        babbling = threading.Thread(target=babble)
        babbling.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert presence.proved(presence.new_presence(url), seconds=0.5) is None
        with suppress(OSError):
            accepted[0].shutdown(socket.SHUT_RDWR)  # the system lets it wait for minutes for somebody who has gone
        babbling.join()


def test_a_server_that_proves_itself_and_hangs_up_is_not_the_one_to_ask() -> None:
    """It is about to stop: what follows would need a connection of its own, and anybody may listen there by then."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = presence.new_presence(f"http://127.0.0.1:{listening.getsockname()[1]}")

        def prove() -> None:
            connection, _ = listening.accept()
            with connection:
                said = b""
                while b"}" not in said:
                    said += connection.recv(4_096)
                challenge = json.loads(said.partition(b"\r\n\r\n")[2])["challenge"]
                body = json.dumps({"proof": presence.proof(here.secret, challenge), "asksForKeys": True})
                head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall((head + body).encode())

        proving = threading.Thread(target=prove)
        proving.start()
        assert presence.proved(here) is None
        proving.join()


def test_no_proxy_sees_the_secret(mine: Path) -> None:
    with serving(*GUARDED, folder=mine) as server, stranger(agrees) as proxy:
        server.listening()
        made = create(mine, HTTP_PROXY=proxy.url, http_proxy=proxy.url, ALL_PROXY=proxy.url, all_proxy=proxy.url)

    assert made.returncode == 0, made.stderr
    assert proxy.heard == []


def loosened(path: Path) -> None:
    path.chmod(0o640)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def moved(path: Path) -> None:
    """The same file in another container, where the same address is another server."""
    found = msgspec.json.decode(path.read_bytes(), type=presence.Presence)
    presence.announce(path, presence.Presence(found.address, found.secret, "another machine"))


def spoilt(path: Path) -> None:
    path.write_bytes(b"{")


@pytest.mark.parametrize("spoil", [loosened, linked, moved, spoilt, Path.unlink])
def test_a_file_that_proves_nothing_is_not_used(mine: Path, spoil: Callable[[Path], None]) -> None:
    with serving(*GUARDED, folder=mine) as server:
        port = server.listening()
        secret = said(mine).secret
        spoil(mark(mine))

        refused = create(mine)

        assert (refused.returncode in (2, 3), refused.stdout) == (True, ""), refused.stderr
        if spoil is loosened:
            assert "Other accounts can read" in refused.stderr
        assert keys_on(port, secret)[1]["keys"] == []


def test_a_challenge_tells_nothing_and_the_proof_opens_nothing(mine: Path) -> None:
    with serving(*GUARDED, folder=mine) as server:
        port = server.listening()
        status, body = relaying(port)(presence.PATH, b'{"challenge":"%s"}' % (b"0" * 64))
        proof = json.loads(body)["proof"]
        assert (status, proof) == (200, presence.proof(said(mine).secret, "0" * 64))
        assert keys_on(port, proof)[0] == 401
        assert keys_on(port, said(mine).secret[:-1])[0] == 401
        assert relaying(port)(presence.PATH, b'{"challenge":""}')[0] == 422


def test_doctor_says_who_holds_the_store_and_what_was_left_behind(mine: Path) -> None:
    def server() -> Any:
        [found] = [one for one in json.loads(skep("doctor", folder=mine).stdout) if one["check"] == "server"]
        return found

    with serving(folder=mine) as running:
        address = f"http://127.0.0.1:{running.listening()}"
        assert server() == {"check": "server", "state": "ok", "found": f"{address} holds the store", "hint": ""}
    assert server()["state"] == "info"
    mark(mine).chmod(0o644)
    (mine / "skep-data").chmod(0o755)
    hints = [one["hint"] for one in json.loads(skep("doctor", folder=mine).stdout)]
    assert "chmod 600 skep-data/skep.db.server" in hints


def test_a_server_whose_folder_takes_no_file_serves_all_the_same(mine: Path) -> None:
    mark(mine).mkdir(parents=True)
    with serving(folder=mine) as server:
        server.event("skep key will not find this server")
        assert keys_on(server.listening())[0] == 200
