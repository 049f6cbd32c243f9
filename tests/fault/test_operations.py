"""Operations under load, after a crash, at their limit, and with few connections: real servers on PostgreSQL."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.serving import ServeProcess, serving
from tests.support.waiting import until, until_asked

PATIENCE_SECONDS = 60.0
LOG_LOCK = 1936418160
BUSY = ("--set", "admission.push_load=0")
"""What makes a server take itself for busy, for ever."""
NEVER_BUSY = ("--set", "admission.enabled=false")
PERFORMS_NOTHING = ("--set", "operations.drain=false")


@pytest.fixture
def dsn(postgres_dsn: str) -> str:
    return postgres_dsn


class Server:
    """A server that someone talks to."""

    def __init__(self, process: ServeProcess) -> None:
        self.process = process
        self.port = process.listening()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, json.loads(text) if text else None, headers
        finally:
            connection.close()

    def push(self, *payloads: object, partition: str = "P") -> tuple[int, Any, dict[str, str]]:
        items = [{"queue": "q", "partition": partition, "payload": payload} for payload in payloads]
        return self.call("POST", "/api/v1/push", {"items": items})

    def log(self) -> list[tuple[str, Any]]:
        """All messages of the queue in the order of its log."""
        _, found, _ = self.call("GET", "/api/v1/messages?queue=q&limit=1000")
        return [(message["partition"], message["payload"]) for message in found["messages"]]

    def operation(self, id_: str) -> Any:
        return self.call("GET", f"/api/v1/operations/{id_}")[1]


@contextmanager
def server(dsn: str, folder: Path, *settings: str) -> Iterator[Server]:
    with serving("--store", dsn, *settings, folder=folder) as process:
        yield Server(process)


@pytest.mark.slow
def test_each_partition_keeps_its_order_under_load(dsn: str, tmp_path: Path) -> None:
    with (
        server(dsn, tmp_path, *NEVER_BUSY, *PERFORMS_NOTHING) as calm,
        server(dsn, tmp_path, *BUSY, *PERFORMS_NOTHING) as busy,
    ):
        first, _, _ = calm.push("1a", "1b")
        second, told, _ = busy.push("2a", "2b")
        third, behind, _ = busy.push("3a", "3b")
        with server(dsn, tmp_path, *NEVER_BUSY) as performs:
            fourth, _, _ = performs.push("4a")
            until(lambda: performs.operation(behind["operationId"])["status"] == "completed")

            assert (first, second, third) == (201, 202, 202)
            assert fourth in (201, 202)
            assert told["reason"] == "system_busy"
            until(lambda: len(performs.log()) == 7)
            assert [payload for _, payload in performs.log()] == ["1a", "1b", "2a", "2b", "3a", "3b", "4a"]
            done = performs.operation(told["operationId"])
            assert [message["seq"] for message in done["result"]["messages"]] == [3, 4]


def test_operations_of_a_killed_server_are_done_by_another(dsn: str, tmp_path: Path) -> None:
    timeout = ("--set", "operations.timeout_seconds=4")
    with server(dsn, tmp_path, *NEVER_BUSY, *PERFORMS_NOTHING) as calm:
        calm.push("0")
        with server(dsn, tmp_path, *BUSY, *timeout) as doomed:
            asyncio.run(_die_while_performing(dsn, doomed))
        # Asked of the one that performs nothing: the heir may have taken it over before it can be asked.
        [operation] = calm.call("GET", "/api/v1/operations")[1]["operations"]
        assert (operation["status"], operation["tries"]) == ("processing", 1)
        with server(dsn, tmp_path, *NEVER_BUSY) as heir:
            done = until(lambda: (one := heir.operation(operation["id"]))["status"] == "completed" and one)

            assert done["tries"] == 2
            assert done["worker"] != operation["worker"]
            assert [payload for _, payload in heir.log()] == ["0", "1"]


async def _die_while_performing(dsn: str, doomed: Server) -> None:
    """Kill a server that has claimed a push and is about to append it, which it cannot while the log's lock is ours."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    try:
        queue = await connection.fetchval("SELECT id FROM queue WHERE name = 'q' AND deleted_at IS NULL")
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1::integer, $2::integer)", LOG_LOCK, queue)
            status, _, _ = await asyncio.to_thread(doomed.push, "1")
            assert status == 202
            # Chores wait for that lock too, perhaps before the push is claimed.
            waiting = (
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid::integer = $1 "
                "AND EXISTS (SELECT 1 FROM operation WHERE status = 'processing')"
            )
            await until_asked(lambda: connection.fetchval(waiting, queue))
            doomed.process.signal(signal.SIGKILL)
            await asyncio.to_thread(doomed.process.ended)
    finally:
        await connection.close()


@pytest.mark.slow
def test_a_full_queue_of_operations_refuses_more(dsn: str, tmp_path: Path) -> None:
    few = ("--set", "admission.push_operations=5", "--set", "operations.look_seconds=0.1")
    with server(dsn, tmp_path, *BUSY, *few, *PERFORMS_NOTHING) as busy:
        answers = [busy.push(n, partition=f"P{n}") for n in range(8)]
        statuses = [status for status, _, _ in answers]
        accepted = [n for n, status in enumerate(statuses) if status in (201, 202)]
        assert statuses[-1] == 429
        assert statuses.count(202) == 5
        assert answers[-1][1]["error"]["code"] == "OVERLOADED"
        assert int(answers[-1][2]["retry-after"]) >= 1

        with server(dsn, tmp_path, *NEVER_BUSY):
            status = until(lambda: (answer := busy.push("again"))[0] != 429 and answer[0])
            assert status in (201, 202)
            until(lambda: len(busy.log()) == len(accepted) + 1)

        assert sorted(str(payload) for _, payload in busy.log()) == sorted([*map(str, accepted), "again"])


def test_a_hundred_pushes_at_once_on_few_connections(dsn: str, tmp_path: Path) -> None:
    pushers, each = 100, 3
    with server(dsn, tmp_path, "--set", "store_connections=4") as one:

        def push(pusher: int) -> list[int]:
            return [one.push(n, partition=f"P{pusher}")[0] for n in range(each)]

        with ThreadPoolExecutor(30) as threads:
            answers = list(threads.map(push, range(pushers)))

        assert {status for statuses in answers for status in statuses} <= {201, 202}
        until(lambda: len(one.log()) == pushers * each)
        log = one.log()
        for pusher in range(pushers):
            assert [payload for partition, payload in log if partition == f"P{pusher}"] == list(range(each))
