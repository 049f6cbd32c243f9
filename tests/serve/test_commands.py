"""`skep config show` and `skep doctor`, as they are called."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from skep import Client as SkepClient
from skep.clock import Instant, ManualClock, SystemClock
from skep.config.load import all_settings
from skep.model import Seq
from skep.server.doctor.machine import is_skep
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver
from tests.support.process import SkepProcess, run_skep
from tests.support.serving import serving

UNREACHABLE = "postgresql://me:s3cret@127.0.0.1:1/none"


def skep(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_skep(*arguments, cwd=folder, env={**os.environ, **environ}, text=True, timeout=60)


def on_a_terminal(*arguments: str, folder: Path) -> str:
    """What the command prints when its output is a terminal."""
    ours, theirs = pty.openpty()
    process = SkepProcess(*arguments, cwd=folder, stdout=theirs, env={**os.environ, "COLUMNS": "200"})
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 1 << 16):
            said += piece
    except OSError:  # how Linux tells that the other end was closed
        pass
    os.close(ours)
    process.wait(60)
    return said.decode()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


# config show


def test_every_setting_is_shown_with_value_origin_and_meaning(tmp_path: Path) -> None:
    (tmp_path / "skep.toml").write_text("[limits]\npage = 7\n")

    run = skep("config", "show", "--port", "7000", folder=tmp_path, SKEP_HOST="::1", SKEP_STORE=UNREACHABLE)

    shown = {row["setting"]: row for row in json.loads(run.stdout)}
    assert list(shown) == [setting.key for setting in all_settings()]
    assert (shown["port"]["value"], shown["port"]["origin"]) == (7000, "--port")
    assert (shown["host"]["value"], shown["host"]["origin"]) == ("::1", "SKEP_HOST")
    assert (shown["limits.page"]["value"], shown["limits.page"]["origin"]) == (7, "skep.toml")
    assert (shown["workers"]["value"], shown["workers"]["origin"]) == (1, "default")
    assert shown["limits.page"]["variable"] == "SKEP_LIMITS_PAGE"
    assert all(row["meaning"] for row in shown.values())
    assert "s3cret" not in run.stdout


def test_on_a_terminal_it_is_a_table(tmp_path: Path) -> None:
    said = on_a_terminal("config", "show", "--store", UNREACHABLE, folder=tmp_path)

    assert "setting" in said
    assert "limits.parked_polls" in said
    assert "postgresql://me:***@127.0.0.1:1/none" in said
    assert json.loads(on_a_terminal("config", "show", "-o", "json", folder=tmp_path))


def test_a_setting_nobody_knows_is_exit_code_1(tmp_path: Path) -> None:
    run = skep("config", "show", folder=tmp_path, SKEP_LIMITS_PAGES="1")

    assert run.returncode == 1
    assert (
        run.stderr
        == "skep: INVALID_SETTING: The environment: there is no setting SKEP_LIMITS_PAGES; the nearest is SKEP_LIMITS_PAGE.\n"
    )


# doctor


def findings(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in json.loads(run.stdout)}


def test_a_fit_machine_is_told_so_and_left_as_it_was(tmp_path: Path) -> None:
    run = skep("doctor", "--port", free_port(), folder=tmp_path)

    found = findings(run)
    assert run.returncode == 0, run.stdout
    for check in ("python", "sqlite", "sqlite wal", "data folder", "store", "address", "extra postgres"):
        assert found[check]["state"] == "ok", found[check]
    assert {"disk", "fsync", "extra arrow", "java"} <= found.keys()
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_the_doctor_draws_a_table(tmp_path: Path) -> None:
    said = on_a_terminal("doctor", "--port", free_port(), folder=tmp_path)

    assert "sqlite wal" in said
    assert "hint" in said


def test_a_skep_that_runs_already_is_recognized(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server:
        run = skep("doctor", "--port", str(server.listening()), folder=tmp_path)

    found = findings(run)
    assert (run.returncode, found["address"]["state"]) == (0, "info")
    assert "has a Skep that answers" in found["address"]["found"]
    assert "is current" in found["store"]["found"], "it is read although the server has it open"


def test_the_port_for_clients_of_queen_is_looked_at_where_one_is_set(tmp_path: Path) -> None:
    with serving("--queen-port", "0", folder=tmp_path) as server:
        port = str(server.event("listening")["queen"]).rpartition(":")[2]
        run = skep("doctor", "--port", free_port(), "--queen-port", port, folder=tmp_path)
    found = findings(run)
    assert (run.returncode, found["address"]["state"], found["address for Queen"]["state"]) == (0, "ok", "info")
    run = skep("doctor", "--port", free_port(), folder=tmp_path)
    assert "address for Queen" not in findings(run)


def test_a_port_of_something_else_is_a_failure(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        run = skep("doctor", "--port", str(taken.getsockname()[1]), folder=tmp_path)

    assert (run.returncode, findings(run)["address"]["state"]) == (2, "fail")


@pytest.mark.parametrize(
    "arguments", [["--host", "0.0.0.0", "--set", "access.required=false"], ["--host", "no-such-host.invalid"]]
)
def test_an_address_it_may_not_listen_on_is_a_failure(tmp_path: Path, arguments: list[str]) -> None:
    run = skep("doctor", *arguments, folder=tmp_path)

    assert (run.returncode, findings(run)["address"]["state"]) == (2, "fail")


def test_a_file_that_is_no_database_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"this is something else" * 100)

    run = skep("doctor", "--store", "other.db", "--port", free_port(), folder=tmp_path)

    assert (run.returncode, findings(run)["store"]["state"]) == (2, "fail")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("UPDATE migration SET checksum = 'another' WHERE number = 1", "is not the one this Skep has"),
        ("INSERT INTO migration VALUES (9999, 'later', '')", "upgrade Skep"),
    ],
)
def test_a_store_of_another_skep_is_a_failure(tmp_path: Path, change: str, hint: str) -> None:
    with serving("--store", "skep.db", folder=tmp_path) as server:
        server.listening()
        server.signal()
        server.ended()
    db = apsw.Connection(str(tmp_path / "skep.db"))
    db.execute(change)
    db.close()

    run = skep("doctor", "--store", "skep.db", "--port", free_port(), folder=tmp_path)

    store = findings(run)["store"]
    assert (run.returncode, store["state"], hint in store["hint"]) == (2, "fail", True)


UNUSED = "UPDATE {schema}consumer_group SET active_at = 1"


async def hold_back(store: Store) -> None:
    """A queue with retention, and a group in it that has read one of three messages."""
    await store.open()
    driver = Driver(store, ManualClock(), "default")
    await driver.create("orders", retention_seconds=60)
    await driver.push("a", "b", "c", queue="orders")
    await driver.ack(*await driver.pop("orders", group="mistyped", batch=1))
    await store.close()


def told_of_unused_groups(store: str, folder: Path) -> tuple[str, str, str]:
    groups = findings(skep("doctor", "--store", store, "--port", free_port(), folder=folder))["groups"]
    return groups["state"], groups["found"], groups["hint"]


async def test_a_group_of_a_file_that_nobody_uses_and_that_holds_back_its_queue_is_told(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    await hold_back(SqliteStore(path))
    db = apsw.Connection(str(path))
    db.execute(UNUSED.format(schema=""))

    state, found, hint = await asyncio.to_thread(told_of_unused_groups, "skep.db", tmp_path)
    assert (state, "'mistyped' of 'orders' (2 messages)" in found) == ("warn", True)
    assert "group_idle_seconds" in hint
    db.execute("UPDATE consumer_group SET idle = 1")
    db.close()
    assert (await asyncio.to_thread(told_of_unused_groups, "skep.db", tmp_path))[0] == "ok"


async def test_a_group_in_postgresql_that_nobody_uses_and_that_holds_back_its_queue_is_told(
    tmp_path: Path, postgres_dsn: str
) -> None:
    await hold_back(PostgresStore(postgres_dsn))
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(UNUSED.format(schema="skep."))

    state, found, _ = await asyncio.to_thread(told_of_unused_groups, postgres_dsn, tmp_path)
    assert (state, "'mistyped' of 'orders' (2 messages)" in found) == ("warn", True)
    await connection.execute("UPDATE skep.consumer_group SET idle = true")
    await connection.close()
    assert (await asyncio.to_thread(told_of_unused_groups, postgres_dsn, tmp_path))[0] == "ok"


async def wait_for_archive(store: Store, driver_of: Callable[[Store], Driver]) -> None:
    """Queues whose retention waits for an archive: one that reported long ago, and none that ever did."""
    await store.open()
    driver = driver_of(store)
    for queue in ("orders", "payments"):
        await driver.create(queue, retention_seconds=3600, retention_requires_archive=True)
        await driver.push("a", "b", queue=queue)
    await store.report_progress(driver.key("orders"), "lake", Seq(1), driver.now, archived=True)
    await store.close()


def told_of_archives(store: str, folder: Path) -> tuple[str, str]:
    found = findings(skep("doctor", "--store", store, "--port", free_port(), folder=folder))["archive"]
    return found["state"], found["found"]


@pytest.mark.parametrize("place", ["skep.db", "postgres"])
async def test_retention_that_waits_for_an_archive_is_told(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    url = place if place == "skep.db" else request.getfixturevalue("postgres_dsn")
    store = SqliteStore(tmp_path / place) if place == "skep.db" else PostgresStore(url)
    now = SystemClock().now()

    def driver_of(days: int) -> Callable[[Store], Driver]:
        return lambda store: Driver(store, ManualClock(Instant(now - days * 86_400_000_000)), "default")

    await wait_for_archive(store, driver_of(5))
    state, found = await asyncio.to_thread(told_of_archives, url, tmp_path)
    assert state == "warn"
    assert "'orders' (5 days)" in found
    assert "'payments' (5 days, no archive has reported yet)" in found

    await store.open()
    driver = driver_of(0)(store)
    for queue in ("orders", "payments"):
        await store.report_progress(driver.key(queue), "lake", Seq(2), driver.now, archived=True)
    await store.close()
    assert (await asyncio.to_thread(told_of_archives, url, tmp_path))[0] == "ok"


def test_postgresql_is_looked_at(tmp_path: Path, blank_dsn: str) -> None:
    run = skep("doctor", "--store", blank_dsn, "--port", free_port(), folder=tmp_path)

    found = findings(run)
    assert run.returncode == 0, run.stdout
    assert (found["postgresql"]["state"], found["clock"]["state"]) == ("ok", "ok")
    assert "no Skep schema yet" in found["store"]["found"]

    with serving("--store", blank_dsn, folder=tmp_path) as server:
        server.listening()
    again = findings(skep("doctor", "--store", blank_dsn, "--port", free_port(), folder=tmp_path))
    assert "is current" in again["store"]["found"]


def test_a_postgresql_that_is_away_is_a_failure_told_without_its_password(tmp_path: Path) -> None:
    run = skep("doctor", "--store", UNREACHABLE, "--port", free_port(), folder=tmp_path)

    assert (run.returncode, findings(run)["postgresql"]["state"]) == (2, "fail")
    assert "s3cret" not in run.stdout


def test_the_disk_of_the_spool_is_looked_at(tmp_path: Path) -> None:
    found = findings(skep("doctor", "--store", UNREACHABLE, "--port", free_port(), folder=tmp_path))
    assert {"data folder", "disk"} <= found.keys()

    without = ("--set", "spool.enabled=false")
    found = findings(skep("doctor", "--store", UNREACHABLE, "--port", free_port(), *without, folder=tmp_path))
    assert not {"data folder", "disk"} & found.keys()


def test_a_store_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "skep.db").mkdir()

    store = findings(skep("doctor", "--store", "skep.db", "--port", free_port(), folder=tmp_path))["store"]

    assert (store["state"], "restore" in store["hint"], "read-only" in store["hint"]) == ("fail", False, True)


def test_encrypted_queues_without_master_keys_are_a_failure(tmp_path: Path) -> None:
    keys = tmp_path / "master.keys"
    keys.touch(0o600)
    keys.write_text(skep("encryption", "master", "2026-01", folder=tmp_path).stdout)
    given = ("--store", "skep.db", "--set", f"encryption.master_keys=file:{keys}")
    with serving(*given, folder=tmp_path) as server, SkepClient(f"http://127.0.0.1:{server.listening()}") as client:
        client.configure("payments", encryption_enabled=True)
        client.push("payments", 1)

    run = skep("doctor", "--store", "skep.db", "--port", free_port(), folder=tmp_path)

    assert (run.returncode, findings(run)["master keys"]["state"]) == (2, "fail")
    assert "encryption.master_keys" in findings(run)["master keys"]["hint"]
    assert findings(skep("doctor", *given, "--port", free_port(), folder=tmp_path))["master keys"]["state"] == "ok"


async def test_a_skep_is_recognized_also_when_its_answer_comes_in_pieces() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n")
        await writer.drain()
        looked.set()
        await second.wait()
        writer.write(b'{"status":"ok"}')
        writer.close()

    looked, second = asyncio.Event(), asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        asking = asyncio.create_task(is_skep("127.0.0.1", server.sockets[0].getsockname()[1]))
        await looked.wait()
        done, _ = await asyncio.wait([asking], timeout=0.1)
        second.set()

        assert not done, "the head alone does not tell"
        assert await asking
