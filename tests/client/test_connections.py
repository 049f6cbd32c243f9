"""Plain connections: used again only after a whole answer, and never for somebody else's."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Self

import pytest

import skep
from skep.client.exchange import ApiResponse
from skep.client.http1 import HEAD_BYTES, AnswerReader, BrokenAnswerError, header_lines, request_line
from skep.client.plain import plain_servers
from skep.client.settings import client_settings
from tests.client.scripted import HANG_UP, Received, ScriptedServer, reply, stored

HELLO = b'{"hello":1}'


def counted(request: Received) -> bytes:
    """An answer that says which request it is for."""
    return reply(200, request.target)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n" + HELLO,
        b"HTTP/1.1 200 OK\r\nConTent-LenGth:11\r\n\r\n" + HELLO,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n"
        + HELLO,
        b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\n{"hel\r\n6\r\nlo":1}\r\n0\r\n\r\n',
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\nb\r\n" + HELLO + b"\r\n0\r\nexpires: never\r\n\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_an_answer_is_read_however_the_network_cuts_it(answer: bytes, size: int) -> None:
    reader = AnswerReader("POST")

    *before, last = [reader.feed(answer[at : at + size]) for at in range(0, len(answer), size)]

    assert before == [None] * len(before)
    assert last == ApiResponse(200, HELLO)
    assert reader.reusable


@pytest.mark.parametrize(
    ("method", "head", "status"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n", 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 11\r\n\r\n", 304),
        ("GET", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    ],
)
def test_an_answer_without_a_body_ends_with_its_head(method: str, head: bytes, status: int) -> None:
    assert AnswerReader(method).feed(head) == ApiResponse(status, b"")


def test_an_answer_may_end_with_its_connection_which_is_not_used_again() -> None:
    reader = AnswerReader("GET")

    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\n" + HELLO) is None
    assert reader.ended() == ApiResponse(200, HELLO)
    assert not reader.reusable


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0", b"HTTP/1.0 200 OK\r\ncontent-length: 0"]
)
def test_a_server_that_closes_is_not_asked_again_over_that_connection(head: bytes) -> None:
    reader = AnswerReader("GET")

    assert reader.feed(head + b"\r\n\r\n") == ApiResponse(200, b"")
    assert not reader.reusable


def test_when_to_try_again_is_read() -> None:
    answer = AnswerReader("GET").feed(b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n")

    assert answer == ApiResponse(429, b"", "7")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 two\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1_0\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * HEAD_BYTES,
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        AnswerReader("GET").feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_half_an_answer_is_none(data: bytes) -> None:
    reader = AnswerReader("GET")
    reader.feed(data)

    with pytest.raises(BrokenAnswerError, match="closed before the answer was whole"):
        reader.ended()


def test_nothing_that_is_sent_can_break_its_request() -> None:
    sent = request_line("GET", "/a b\r\nx: y#z/ü?q=%20")
    assert sent == "GET /a%20b%0D%0Ax:%20y%23z/%C3%BC?q=%20 HTTP/1.1\r\n"
    with pytest.raises(ValueError, match="no method"):
        request_line("GET /\r\n", "/")
    with pytest.raises(ValueError, match="no method"):
        request_line("GET", "x")
    with pytest.raises(ValueError, match="no header"):
        header_lines({"Authorization": "Bearer x\r\nSkep-Tenant: other"})
    with pytest.raises(ValueError, match="no header"):
        header_lines({"A b": "x"})


def test_a_client_keeps_its_connection() -> None:
    with ScriptedServer(counted) as server, skep.Client(server.url) as client:
        assert [client.request("GET", f"/{n}") for n in range(3)] == ["/0", "/1", "/2"]
        assert server.connections == 1


async def test_an_asynchronous_client_keeps_its_connections() -> None:
    with ScriptedServer(counted) as server:
        async with skep.AsyncClient(server.url) as client:
            for _ in range(3):
                answers = await asyncio.gather(*(client.request("GET", f"/{n}") for n in range(4)))
                assert answers == ["/0", "/1", "/2", "/3"]
            assert server.connections == 4


def test_a_client_that_nobody_closes_takes_its_connections_with_it() -> None:
    with ScriptedServer(counted) as server:
        client = skep.Client(server.url)
        client.request("GET", "/")
        del client
        gc.collect()  # a socket that is still open would complain

        assert server.connections == 1


def test_a_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    closes = [reply(200, 1), HANG_UP]
    with ScriptedServer(*closes) as server, skep.Client(server.url, attempts=1) as client:
        client.request("GET", "/", repeatable=False)
        server.hang_up()
        server.tell(reply(200, 2))

        assert client.request("GET", "/", repeatable=False) == 2
        assert server.connections == 2


class Late:
    """Answers the first request only when it is told to, and the others with what they ask for."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.go_on = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.go_on.set()

    def __call__(self, request: Received) -> bytes:
        if request.target == "/late":
            self.came.set()
            self.go_on.wait()
        return reply(200, request.target)


def test_an_answer_that_comes_too_late_is_nobody_elses() -> None:
    late = Late()
    with ScriptedServer(late) as server, late, skep.Client(server.url, attempts=1, timeout_seconds=1) as client:
        with pytest.raises(skep.SkepError, match="timed out"):
            client.request("GET", "/late")

        assert client.request("GET", "/before") == "/before"
        late.go_on.set()
        assert client.request("GET", "/after") == "/after"


async def test_the_answer_to_a_cancelled_call_is_nobody_elses() -> None:
    late = Late()
    with ScriptedServer(late) as server, late:
        async with skep.AsyncClient(server.url, attempts=1) as client:
            call = asyncio.create_task(client.request("GET", "/late"))
            await asyncio.to_thread(late.came.wait)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

            another = asyncio.create_task(client.request("GET", "/other"))
            await asyncio.sleep(0)  # it is sent where a connection is open
            late.go_on.set()
            assert await another == "/other"


@pytest.mark.parametrize("threads", [True, False])
async def test_closing_a_client_ends_what_is_under_way(threads: bool) -> None:
    late = Late()
    with ScriptedServer(late) as server, late:
        if threads:
            client = skep.Client(server.url)
            call = asyncio.create_task(asyncio.to_thread(client.request, "GET", "/late"))
            await asyncio.to_thread(late.came.wait)
            client.close()
        else:
            asynchronous = skep.AsyncClient(server.url)
            call = asyncio.create_task(asynchronous.request("GET", "/late"))
            await asyncio.to_thread(late.came.wait)
            await asynchronous.close()
        with pytest.raises(skep.SkepError, match="client is closed"):
            await call


def test_one_asynchronous_client_serves_several_loops() -> None:
    with ScriptedServer(counted) as server:
        client = skep.AsyncClient(server.url)

        async def twice() -> list[object]:
            return [await client.request("GET", "/a"), await client.request("GET", "/b")]

        async def twice_and_close() -> list[object]:
            answers = await twice()
            await client.close()
            return answers

        assert asyncio.run(twice()) == ["/a", "/b"]
        assert asyncio.run(twice_and_close()) == ["/a", "/b"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_connections_of_its_own() -> None:
    with ScriptedServer(counted) as server, skep.Client(server.url) as client:
        assert client.request("GET", "/parent") == "/parent"
        child = os.fork()
        if not child:
            os._exit(0 if client.request("GET", "/child") == "/child" else 1)

        assert os.waitpid(child, 0)[1] == 0
        assert client.request("GET", "/again") == "/again"
        assert server.connections == 2


def test_a_proxy_is_used_where_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(stored) as proxy, ScriptedServer(stored) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with skep.Client("http://skep.invalid:6632") as client:
            client.push("orders", 1)
        with skep.Client(server.url) as client:
            client.push("orders", 2)

    assert [request.json["items"][0]["payload"] for request in proxy.requests] == [1]
    assert [request.json["items"][0]["payload"] for request in server.requests] == [2]


@pytest.mark.parametrize("make", [skep.Client, skep.AsyncClient])
def test_a_token_that_would_break_requests_is_refused(make: Callable[..., object]) -> None:
    with pytest.raises(skep.SkepError, match="INVALID_REQUEST"):
        make("http://127.0.0.1:1", token="a\r\nSkep-Tenant: other")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["timeout_seconds", "connect_timeout_seconds"])
def test_a_timeout_that_is_none_is_a_mistake(name: str, seconds: float) -> None:
    with pytest.raises(skep.SkepError, match="INVALID_REQUEST: a timeout is a number of seconds above 0"):
        skep.Client("http://127.0.0.1:1", **{name: seconds})  # type: ignore[arg-type] # mypy cannot tell the names apart


async def test_a_client_of_a_plain_server_never_makes_what_needs_more() -> None:
    with ScriptedServer(stored) as server:
        with skep.Client(server.url) as client:
            client.for_tenant("acme").push("orders", 1)
        async with skep.AsyncClient(server.url) as asynchronous:
            await asynchronous.for_tenant("acme").push("orders", 1)

    assert "pyreqwest" not in {**vars(client._transport), **vars(asynchronous._transport)}
    assert [request.headers["skep-tenant"] for request in server.requests] == ["acme", "acme"]


def test_a_server_may_be_below_a_path_or_have_a_number_for_a_name() -> None:
    with ScriptedServer(counted) as server, skep.Client(f"{server.url}/queues/") as client:
        assert client.request("GET", "/api/v1/status", query={"a": "b c"}) == "/queues/api/v1/status?a=b+c"
        assert client.request("DELETE", "/x") == "/queues/x"
    assert [request.headers.get("content-length") for request in server.requests] == [None, "0"]
    assert server.requests[0].headers["host"] == server.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:6632", ("localhost", 6632)),
        ("http://queue.internal", ("queue.internal", 80)),
        ("http://[::1]:6632/base", ("::1", 6632)),
        ("https://localhost:6632", None),
        ("http://me:secret@localhost", None),
        ("http://bücher.example", None),
        ("http://localhost:99999", None),
    ],
)
def test_only_what_needs_nothing_but_a_socket_is_plain(url: str, address: tuple[str, int] | None) -> None:
    found = plain_servers(client_settings(url, {}), lambda host, port, _: (host, port))

    assert found == ({} if address is None else {url: address})
