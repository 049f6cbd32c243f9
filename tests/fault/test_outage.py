"""PostgreSQL dies, hangs or is cut off under a load of pushes, and so does the server: nothing answered is lost, nothing is
stored twice, and every partition is in order (I1, I13).
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from tests.serve.client import get
from tests.support.postgres import PostgresServer, make_tables, running_postgres
from tests.support.serving import serving
from tests.support.steady import Steady
from tests.support.waiting import until_asked, until_so

LOG = "SELECT convert_from(m.payload, 'UTF8') AS text FROM skep.message m ORDER BY m.queue_id, m.seq"


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    with running_postgres(shared_buffers="32MB") as server:
        yield server


@pytest.fixture(scope="module")
def tables(mortal: PostgresServer) -> str:
    """The name of a database with empty tables, to copy."""
    dsn = mortal.create_database()
    asyncio.run(make_tables(dsn))
    return dsn.rpartition("/")[2]


@pytest.fixture
def dsn(mortal: PostgresServer, tables: str) -> str:
    return mortal.create_database(template=tables)


async def stored(dsn: str) -> list[str]:
    session = await asyncpg.connect(dsn)
    try:
        return [row["text"] for row in await session.fetch(LOG)]
    finally:
        await session.close()


async def more_stored(dsn: str, count: int, total: int) -> None:
    """Wait until so many more are stored, or all of them."""
    goal = min(len(await stored(dsn)) + count, total)

    async def are_there() -> bool:
        return len(await stored(dsn)) >= goal

    await until_asked(are_there)


def spool_files(folder: Path) -> list[Path]:
    return list(folder.rglob("pushes.db*"))


async def drained(port: int) -> dict[str, object]:
    """Wait until the spool of a server is empty; what it says of its buffers."""

    async def figures() -> dict[str, object] | None:
        status, body = await asyncio.to_thread(get, port, "/api/v1/status/buffers")
        assert status == 200
        return dict(body["spool"]) if body["spool"]["state"] == "up" else None

    found = await until_asked(figures)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def loaded(load: Steady) -> AsyncIterator[Steady]:
    running = asyncio.ensure_future(load.run())
    try:
        yield load
    finally:
        load.end()
        await running


@pytest.mark.parametrize(
    ("per_second", "away_seconds"),
    [(300, 1), pytest.param(2000, 10, marks=pytest.mark.slow)],
)
async def test_I1_I13_postgres_killed_under_load_and_started_again(
    mortal: PostgresServer, dsn: str, tmp_path: Path, per_second: int, away_seconds: int
) -> None:
    with serving("--store", dsn, folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        async with loaded(Steady(lambda: port, producers=32, per_second=per_second)) as load:
            await load.reached(per_second)
            await asyncio.to_thread(mortal.kill)
            await load.seen("buffered")
            await load.reached(per_second * away_seconds // 2)
            status, _ = await asyncio.to_thread(get, port, "/api/v1/pop/queue/q")
            assert status == 503
            await load.reached(per_second * away_seconds // 2)
            await asyncio.to_thread(mortal.start)
            await drained(port)
            await load.reached(per_second // 2)
        figures = await drained(port)
        server.signal()
        assert await asyncio.to_thread(server.ended) == 0
    load.check(await stored(dsn))
    assert load.kinds["buffered"] > 0
    assert set(load.kinds) <= {"stored", "buffered", "503"}, load.kinds
    assert figures["failed"] == 0
    assert not spool_files(tmp_path)


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
async def test_I13_the_server_killed_while_it_drains(
    mortal: PostgresServer, dsn: str, tmp_path: Path, kills: int
) -> None:
    """Killed at moments of the drain, again and again; the one that comes after it goes on."""
    ports: list[int] = []
    settings = ("--store", dsn, "--set", "limits.merged_messages=20")
    with serving(*settings, folder=tmp_path) as server:
        ports.append(await asyncio.to_thread(server.listening))
        async with loaded(Steady(lambda: ports[-1], producers=16, per_second=400)) as load:
            await load.reached(100)
            await asyncio.to_thread(mortal.kill)
            await load.seen("buffered")
            await load.reached(400)
        await asyncio.to_thread(mortal.start)
        await asyncio.to_thread(server.event, "the store is back")
        server.process.kill()
    for number in range(kills):
        with serving(*settings, folder=tmp_path) as server:
            await asyncio.to_thread(server.listening)
            await more_stored(dsn, 20 * number, load.total)
            server.process.kill()
    with serving(*settings, folder=tmp_path) as server:
        await drained(await asyncio.to_thread(server.listening))
    load.check(await stored(dsn))


@pytest.mark.slow
async def test_I13_SIGTERM_while_the_store_is_away_keeps_what_is_spooled(
    mortal: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    with serving("--store", dsn, folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        async with loaded(Steady(lambda: port, producers=8, per_second=200)) as load:
            await load.reached(50)
            await asyncio.to_thread(mortal.kill)
            await load.seen("buffered")
            await load.reached(100)
            server.signal()
            assert await asyncio.to_thread(server.ended) == 0
    with serving("--store", dsn, folder=tmp_path) as server:  # it does not start without its store, and loses nothing
        assert await asyncio.to_thread(server.ended) != 0
    await asyncio.to_thread(mortal.start)
    with serving("--store", dsn, folder=tmp_path) as server:
        await drained(await asyncio.to_thread(server.listening))
    load.check(await stored(dsn))


def family(server: PostgresServer) -> list[psutil.Process]:
    assert server.pid is not None
    parent = psutil.Process(server.pid)
    return [*parent.children(recursive=True), parent]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3, 15])
async def test_I13_postgres_stopped_and_continued_under_load(
    mortal: PostgresServer, dsn: str, tmp_path: Path, seconds: int
) -> None:
    """What it had got before it stopped it does when it goes on, unless it is kept from it."""
    with serving("--store", dsn, "--set", "spool.store_seconds=1", folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        async with loaded(Steady(lambda: port, producers=32, per_second=400)) as load:
            await load.reached(200)
            for process in family(mortal):
                with contextlib.suppress(psutil.NoSuchProcess):
                    os.kill(process.pid, signal.SIGSTOP)
            try:
                await load.seen("buffered")
                await load.reached(400 * seconds)
            finally:
                for process in family(mortal):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        os.kill(process.pid, signal.SIGCONT)
            await drained(port)
            await load.reached(200)
        await drained(port)
    load.check(await stored(dsn))


@pytest.mark.slow
@pytest.mark.parametrize("noticed", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_SIGTERM_ends_a_server_whose_postgres_hangs(
    mortal: PostgresServer, dsn: str, tmp_path: Path, noticed: bool
) -> None:
    """Connections that lead nowhere are given up after a while: nobody waits for an answer that never comes."""
    with serving("--store", dsn, "--set", "spool.store_seconds=1", folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        push = {"items": [{"queue": "q", "payload": 1}]}
        await told(port, "POST", "/api/v1/push", push)
        for process in family(mortal):
            with contextlib.suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGSTOP)
        try:
            if noticed:
                assert (await told(port, "POST", "/api/v1/push", push))[2]["dbHealthy"] is False
            server.signal()
            assert await asyncio.to_thread(server.ended) == 0
        finally:
            for process in family(mortal):
                with contextlib.suppress(psutil.NoSuchProcess):
                    os.kill(process.pid, signal.SIGCONT)


@pytest.mark.slow
async def test_I13_two_workers_have_a_spool_each_and_one_takes_over_from_a_dead_one(
    mortal: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    with serving("--store", dsn, "--workers", "2", folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        async with loaded(Steady(lambda: port, producers=16, per_second=300)) as load:
            await load.reached(50)
            await asyncio.to_thread(mortal.kill)
            await load.seen("buffered")
            await load.reached(100)
        for worker in server.system.children():
            worker.kill()
            break
        await asyncio.to_thread(mortal.start)
        await until_so(lambda: not spool_files(tmp_path))
        server.signal()
        assert await asyncio.to_thread(server.ended) == 0
    load.check(await stored(dsn))


@pytest.mark.slow
async def test_what_is_buffered_is_stored_on_SIGTERM_and_goes_through_an_outage(
    mortal: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    with serving("--store", dsn, folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        load = Steady(lambda: port, producers=8, per_second=200, more={"bufferMs": 200, "bufferMax": 50})
        async with loaded(load):
            await load.reached(200)
            await asyncio.to_thread(mortal.kill)
            await load.reached(200)
            await asyncio.to_thread(mortal.start)
            await drained(port)
            await load.reached(100)
        server.signal()
        assert await asyncio.to_thread(server.ended) == 0
    load.check(await stored(dsn))


async def test_pushes_are_taken_with_real_ids_and_all_else_is_told_to_come_again(
    mortal: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    """What callers see while the database is away, and once it is back."""
    with serving("--store", dsn, folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        push = {"items": [{"queue": "q", "payload": n} for n in range(2)]}
        assert (await told(port, "POST", "/api/v1/push", push))[0] == 201
        await asyncio.to_thread(mortal.kill)

        status, _, answer = await told(port, "POST", "/api/v1/push", push)
        popped = await told(port, "GET", "/api/v1/pop/queue/q?wait=true&timeout=30")
        listed = await told(port, "GET", "/api/v1/resources/queues")
        ready, healthy = await told(port, "GET", "/ready"), await told(port, "GET", "/health")
        _, _, buffers = await told(port, "GET", "/api/v1/status/buffers")
        _, _, metrics = await told(port, "GET", "/metrics")

        assert (status, answer["pushed"], answer["dbHealthy"]) == (201, True, False)
        assert [(one["status"], one["seq"]) for one in answer["messages"]] == [("buffered", None)] * 2
        for refused, headers, body in (popped, listed):
            assert (refused, body["error"]["code"]) == (503, "STORE_UNAVAILABLE")
            assert int(headers["retry-after"]) >= 1
        assert (ready[0], healthy[0]) == (503, 200)
        assert (buffers["spool"]["state"], buffers["spool"]["pending"]) == ("away", 2)
        assert metrics["database"]["healthy"] is False
        assert metrics["file_buffer"] == {"pending": 2, "flushed": 0, "failed": 0}

        await asyncio.to_thread(mortal.start)
        assert (await drained(port))["flushed"] == 2
        _, _, found = await told(port, "GET", "/api/v1/pop/queue/q?batch=10")
        assert [one["payload"] for one in found["messages"]] == [0, 1, 0, 1]
        assert [one["id"] for one in found["messages"][2:]] == [one["message_id"] for one in answer["messages"]]
        _, _, after = await told(port, "POST", "/api/v1/push", push)
        assert (after["dbHealthy"], after["messages"][0]["seq"]) == (True, 5)


async def test_the_log_of_an_outage_tells_each_thing_once_and_not_every_second(
    mortal: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    with serving("--store", dsn, folder=tmp_path) as server:
        port = await asyncio.to_thread(server.listening)
        await asyncio.to_thread(mortal.kill)
        # Who pushes learns that the database is away, and since then the seconds are counted.
        await told(port, "POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})

        async def is_away_for_long() -> bool:
            _, _, buffers = await told(port, "GET", "/api/v1/status/buffers")
            return bool(buffers["spool"]["awaySeconds"] >= 4)  # both look every second

        await until_asked(is_away_for_long)
        server.signal()
        assert await asyncio.to_thread(server.ended) == 0

    for event in ("operations cannot be looked at", "the applied apps could not be read; those known go on"):
        assert sum(event in line for line in server.lines) <= 1, server.lines


async def told(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body of an answer."""

    def call() -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Accept": "application/json"})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, json.loads(response.read())
        finally:
            connection.close()

    return await asyncio.to_thread(call)
