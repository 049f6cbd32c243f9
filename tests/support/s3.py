"""An S3 on this machine (moto, as a server), that can lose, delay, refuse and double requests.

Run as a program it serves on a socket that it inherits: `python -m tests.support.s3 FD`. Its faults are set over HTTP.
"""

from __future__ import annotations

import io
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

from msgspec import Struct

ROOT = Path(__file__).parents[2]
CONTROL = "/-/faults"
BUCKET = "lake"
CATALOG = "tests"
"""A catalog of AWS Glue, which that S3 has, too."""
REST = "rest"
"""A REST catalog, which is a program of its own: `tests.support.rest_catalog`."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Store(Struct, frozen=True):
    """A running S3."""

    url: str

    def set_faults(
        self, share: float, kinds: Iterable[str] = ("lost", "busy", "doubled", "slow"), seed: int = 1
    ) -> None:
        """Let so large a share of all requests go wrong, in these ways."""
        query = f"share={share}&kinds={','.join(kinds)}&seed={seed}"
        urlopen(Request(f"{self.url}{CONTROL}?{query}", method="POST"), timeout=10).close()

    def faults(self) -> int:
        """How many requests went wrong so far."""
        with urlopen(f"{self.url}{CONTROL}", timeout=10) as answer:
            return int(answer.read())


def reserved() -> socket.socket:
    """A socket with an address that an S3 may have later."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


def environment(bound: socket.socket, rest: socket.socket) -> dict[str, str]:
    """The variables by which tools find that S3, and pyiceberg its catalogs. It reads them when it is imported."""
    of_catalog = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
    glue = {"TYPE": "glue", "GLUE__ENDPOINT": address(bound), "GLUE__REGION": CREDENTIALS["AWS_REGION"]}
    named = {f"{of_catalog}{name}": value for name, value in glue.items()}
    named |= {f"PYICEBERG_CATALOG__{REST.upper()}__URI": address(rest)}
    return CREDENTIALS | named | {"AWS_ENDPOINT_URL": address(bound)}


def address(bound: socket.socket) -> str:
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def serving(bound: socket.socket) -> Iterator[Store]:
    """An S3 with an empty bucket at an address that was reserved."""
    with running(bound, "tests.support.s3") as store:
        # The socket listens already, so this waits for the server.
        urlopen(Request(f"{store.url}/{BUCKET}", method="PUT"), timeout=60).close()
        yield store


@contextmanager
def running(bound: socket.socket, module: str, *arguments: str) -> Iterator[Store]:
    """A program of the tests that serves at an address that was reserved."""
    bound.listen(128)
    bound.set_inheritable(True)
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(bound.fileno()), *arguments], pass_fds=[bound.fileno()], cwd=ROOT,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **CREDENTIALS},
    )  # fmt: skip
    try:
        yield Store(address(bound))
    finally:
        process.kill()
        process.wait()


class Faulty:
    """The application with faults: an answer is lost after the work was done, or the request is refused, delayed, or done twice."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._chance = random.Random(0)
        self._share = 0.0
        self._kinds: list[str] = []
        self._done = 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == CONTROL:
            return self._control(environ, start)
        with self._lock:
            kind = self._chance.choice(self._kinds) if self._chance.random() < self._share else ""
            self._done += bool(kind)
        if kind == "busy":
            start("503 Slow Down", [("Content-Type", "application/xml")])
            return [BUSY]
        if kind == "slow":
            threading.Event().wait(0.3)
        if kind in ("lost", "doubled"):
            source = environ["wsgi.input"]
            chunked = environ.get("wsgi.input_terminated", False)
            body = source.read() if chunked else source.read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            list(self._app({**environ, "wsgi.input": io.BytesIO(body)}, lambda *_: None))
            if kind == "lost":
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise ConnectionAbortedError
        return self._app(environ, start)

    def _control(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            if environ["REQUEST_METHOD"] == "POST":
                asked = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
                self._share, self._kinds = float(asked["share"]), asked["kinds"].split(",")
                self._chance = random.Random(int(asked["seed"]))
            start("200 OK", [("Content-Type", "text/plain")])
            return [str(self._done).encode()]


def main(descriptor: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = Faulty(DomainDispatcherApplication(create_backend_app))
    make_server("127.0.0.1", 0, app, threaded=True, fd=descriptor).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
