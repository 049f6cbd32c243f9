"""A proxy that serves Skep under a path: queue URLs lead through it, and signatures fit though it has changed the path."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSRequest

from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.testing.server import RunningServer, running_server
from tests.sqs.driver import client, signing_credentials
from tests.sqs.test_access import Closed, presigned, signed
from tests.support.serving import serving

PREFIX = "/ops/skep"


class Proxy(ThreadingHTTPServer):
    """Passes on what comes for paths that begin with the prefix, without the prefix."""

    daemon_threads = True

    def __init__(self, target: int, *, says_prefix: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.says_prefix = says_prefix
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{PREFIX}/"


class _Passing(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        if not self.path.startswith(PREFIX):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        given = dict(self.headers.items())
        if self.server.says_prefix:
            given["X-Forwarded-Prefix"] = PREFIX
        onward = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=30)
        onward.request(self.command, self.path.removeprefix(PREFIX) or "/", body, given)
        answer = onward.getresponse()
        told = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(told)
        onward.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base has it
        """Say nothing."""


@contextmanager
def proxied(target: int, *, says_prefix: bool) -> Iterator[Proxy]:
    with Proxy(target, says_prefix=says_prefix) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


def test_a_proxy_that_says_its_path() -> None:
    with running_server() as server, proxied(server.port, says_prefix=True) as proxy:
        use(proxy)


@pytest.mark.slow
def test_a_server_that_is_told_its_path(tmp_path: Path) -> None:
    given = ("--store", ":memory:", "--set", f"path_prefix={PREFIX}")
    with serving(*given, folder=tmp_path) as server, proxied(server.listening(), says_prefix=False) as proxy:
        use(proxy)


def use(proxy: Proxy) -> None:
    sqs = client(proxy.url)
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    assert url == f"{proxy.url}sqs/000000000000/q"
    assert sqs.list_queues()["QueueUrls"] == [url] == [sqs.get_queue_url(QueueName="q")["QueueUrl"]]
    # SDKs that take the queue's URL as their endpoint, as those for JavaScript do.
    at_queue = client(url)
    at_queue.send_message(QueueUrl=url, MessageBody="1")
    assert proxy.paths[-1] == f"{PREFIX}/sqs/000000000000/q"
    assert at_queue.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "1"


@pytest.fixture
def guarded() -> Iterator[RunningServer]:
    masters = MasterKeys(new_master_line("first"))
    with running_server(access=AccessSettings(required=True), masters=masters) as server:
        yield server


def test_a_signature_is_of_the_path_that_the_program_asked_for(guarded: RunningServer) -> None:
    name, secret = signing_credentials(guarded)
    with proxied(guarded.port, says_prefix=True) as proxy:
        sqs, bare = client(proxy.url, None, name, secret), client(proxy.url.removesuffix("/"), None, name, secret)
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        client(url, None, name, secret).send_message(QueueUrl=url, MessageBody="1")
        bare.send_message(QueueUrl=url, MessageBody="2")
        assert proxy.paths[-2:] == [f"{PREFIX}/sqs/000000000000/q", PREFIX]
        assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]) == 2


@pytest.mark.parametrize("prefix", ["/sqs", "/sqs/000000000000", "/a", "//", "/a\\b", "/%2e%2e", "a", "/a/" * 9])
def test_who_says_a_path_of_its_own_makes_nothing_else_of_what_was_signed(guarded: RunningServer, prefix: str) -> None:
    """The header is believed: yet no request can be passed off as another one by it."""
    closed = Closed(guarded, "default")
    key = closed.key()
    sqs = closed.client(key)
    sqs.create_queue(QueueName="q")
    other = presigned(closed, key, "q", "PurgeQueue")
    other.url = other.url.replace("/default/q", "/default/other")
    other.headers["X-Forwarded-Prefix"] = prefix
    assert closed.send(other).status == 403
    moved: AWSRequest = signed(closed, key)
    moved.url = f"{guarded.url}{prefix if prefix.startswith('/') else '/a'}"
    moved.headers["X-Forwarded-Prefix"] = prefix
    assert closed.send(moved).status in (403, 404, 405)
    told = sqs.list_queues()["QueueUrls"]
    assert told == [f"{guarded.url}/sqs/000000000000/q"]
