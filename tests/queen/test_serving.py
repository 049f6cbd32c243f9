"""Queen's clients and `skep serve`: the port, its processes, restarts, and a consumer that is killed."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import textwrap
from pathlib import Path
from typing import Any

import httpx
import pytest
import queen

from skep.testing.server import running_server
from tests.support.serving import ServeProcess, serving
from tests.support.waiting import until_asked


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return "skep.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


def url_of(server: ServeProcess) -> str:
    """Where the server says that it listens for clients of Queen."""
    return str(server.event("listening")["queen"])


async def test_leases_outlive_a_restart(tmp_path: Path, store: str, signals: None) -> None:
    given = ("--store", store, "--queen-port", "0")
    with serving(*given, folder=tmp_path) as server:
        async with queen.Queen(url_of(server)) as client:
            await client.queue("q").config({"lease_time": 600}).create()
            await client.queue("q").push([{"data": n} for n in range(3)])
            held: list[Any] = await client.queue("q").batch(2).wait(False).pop()
        server.signal(signal.SIGKILL)
        server.ended()
    with serving(*given, folder=tmp_path) as server:
        async with queen.Queen(url_of(server)) as client:
            assert await client.queue("q").wait(False).pop() == []
            kept = await client.renew(held[0])
            assert kept["success"] is True  # type: ignore[call-overload] # the client says dict or list
            told = await client.ack(held)
            assert [one["success"] for one in told["results"]] == [True, True]
            assert [one["data"] for one in await client.queue("q").wait(False).pop()] == [2]


@pytest.mark.slow
async def test_any_process_of_the_port_acks_what_another_has_leased(tmp_path: Path, store: str, signals: None) -> None:
    with serving("--store", store, "--queen-port", "0", "--workers", "2", folder=tmp_path) as server:
        url = url_of(server)
        async with queen.Queen(url) as client:
            await client.queue("q").create()
            await client.queue("q").push([{"data": n, "transactionId": str(n)} for n in range(30)])
        for _ in range(30):
            # A client for each call has a connection for each, and the system chooses the process.
            async with httpx.AsyncClient(base_url=url) as one:
                message = (await one.get("/api/v1/pop/queue/q")).json()["messages"][0]
            async with httpx.AsyncClient(base_url=url) as another:
                ack = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
                told = (await another.post("/api/v1/ack", json=ack)).json()
                assert told[0]["success"] is True
        server.signal()
        assert server.ended() == 0


CONSUMER = """
    import asyncio, sys
    import queen

    async def main():
        async with queen.Queen(sys.argv[1]) as client:
            async def handle(message):
                print("got", message["data"], flush=True)
                await asyncio.Event().wait()
            await client.queue("q").consume(handle)

    asyncio.run(main())
"""


@pytest.mark.slow
async def test_the_messages_of_a_killed_consumer_come_again(tmp_path: Path, store: str, signals: None) -> None:
    with serving("--store", store, "--queen-port", "0", folder=tmp_path) as server:
        url = url_of(server)
        async with queen.Queen(url) as client:
            await client.queue("q").config({"lease_time": 1}).create()
            await client.queue("q").push([{"data": 1}, {"data": 2}])
            consumer = await asyncio.create_subprocess_exec(
                sys.executable, "-c", textwrap.dedent(CONSUMER), url, stdout=asyncio.subprocess.PIPE
            )
            assert consumer.stdout is not None
            assert await consumer.stdout.readline() == b"got 1\n"
            consumer.kill()
            await consumer.wait()
            seen: list[tuple[int, int]] = []

            async def handle(message: Any) -> None:
                seen.append((message["data"], message["retryCount"]))

            await client.queue("q").limit(2).consume(handle)
            assert seen == [(1, 1), (2, 0)]


def test_the_port_is_closed_unless_it_is_asked_for_and_told_when_it_is_taken(tmp_path: Path) -> None:
    with serving("--store", ":memory:", folder=tmp_path) as server:
        assert "queen" not in server.event("listening")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serving("--store", ":memory:", "--queen-port", port, folder=tmp_path) as server:
            assert server.ended() == 2
            assert any("--queen-port" in line for line in server.lines)
        with serving("--store", ":memory:", "--port", "0", "--queen-port", "0", folder=tmp_path) as server:
            at = server.event("listening")
            assert at["address"] != at["queen"]


def test_the_port_is_not_that_of_the_other_interface(tmp_path: Path) -> None:
    with socket.socket() as kept:  # bound and not listening, so that only those who reuse addresses get the port
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = str(kept.getsockname()[1])
        with serving("--store", ":memory:", "--port", port, "--queen-port", port, folder=tmp_path) as server:
            assert server.ended() == 1
            assert any("INVALID_SETTING" in line and "--queen-port" in line for line in server.lines)


async def test_a_stop_answers_the_pops_that_wait(tmp_path: Path, signals: None) -> None:
    given = ("--store", ":memory:", "--queen-port", "0", "--set", "http.metrics_seconds=0")
    with serving(*given, folder=tmp_path) as server:
        at = server.event("listening")
        async with httpx.AsyncClient(base_url=at["queen"], timeout=60) as client:
            await client.post("/api/v1/configure", json={"queue": "q"})
            pops = (client.get(f"/api/v1/pop/queue/{name}?wait=true&timeout=60000") for name in ("q", "not-there"))
            waiting = [asyncio.create_task(pop) for pop in pops]
            async with httpx.AsyncClient(base_url=at["address"], headers={"accept": "text/plain"}) as looking:

                async def parked() -> bool:
                    return "skep_parked_polls 1" in (await looking.get("/metrics")).text

                await until_asked(parked)
            server.signal()
            assert [(await one).status_code for one in waiting] == [204, 204]
        assert server.ended() == 0


async def test_another_server_acks_what_one_has_leased(postgres_dsn: str, signals: None) -> None:
    with running_server(postgres_dsn, queen=True) as one, running_server(postgres_dsn, queen=True) as another:
        async with queen.Queen(one.queen_url) as here, queen.Queen(another.queen_url) as there:
            await here.queue("q").push([{"data": n} for n in range(3)])
            held: list[Any] = await here.queue("q").batch(3).wait(False).pop()
            assert (await there.renew(held[0]))["success"] is True  # type: ignore[call-overload] # as above
            moved = there.transaction().ack(held[0]).queue("out").push([{"data": "moved"}])
            assert (await moved.commit())["success"] is True
            told = await there.ack(held[1:])
            assert [row["success"] for row in told["results"]] == [True, True]
            assert await here.queue("q").wait(False).pop() == []
            assert [found["data"] for found in await here.queue("out").wait(False).pop()] == ["moved"]
