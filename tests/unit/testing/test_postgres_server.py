"""The PostgreSQL that tests and benchmarks run on: it starts, survives a crash, and leaves nothing behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from skep.testing.postgres import is_dead, new_data
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.waiting import until


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


async def test_data_committed_before_a_kill_survives_the_restart(own_server: PostgresServer) -> None:
    dsn = own_server.create_database()
    connection = await asyncpg.connect(dsn)
    await connection.execute("create table kept (number int)")
    await connection.execute("insert into kept values (42)")
    await connection.execute("begin; insert into kept values (43)")

    own_server.kill()
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await connection.fetch("select 1")
    connection.terminate()
    assert own_server.pid is None

    own_server.restart()
    connection = await asyncpg.connect(dsn)
    assert await connection.fetchval("select array_agg(number) from kept") == [42]
    await connection.close()
    assert "was not properly shut down" in own_server.log()


def test_kill_ends_every_process_of_the_server(own_server: PostgresServer) -> None:
    assert own_server.pid is not None
    family = psutil.Process(own_server.pid).children(recursive=True)
    assert family

    own_server.kill()

    assert all(is_dead(process) for process in family)
    own_server.start()


def test_a_clean_restart_keeps_the_address_and_the_data(own_server: PostgresServer) -> None:
    dsn = own_server.create_database()
    name = dsn.rsplit("/", 1)[-1]
    own_server.execute("create table kept as select 7 as number", name)

    own_server.restart()

    assert own_server.dsn(name) == dsn
    assert own_server.execute("select number from kept", name) == "7"


async def test_a_database_is_a_copy_of_its_template(own_server: PostgresServer) -> None:
    template = own_server.create_database().rsplit("/", 1)[-1]
    own_server.execute("create table inherited (number int)", template)

    connection = await asyncpg.connect(own_server.create_database(template=template))

    assert await connection.fetchval("select count(*) from inherited") == 0
    await connection.close()


async def test_a_dropped_database_is_gone_even_with_connections_open(own_server: PostgresServer) -> None:
    dsn = own_server.create_database()
    connection = await asyncpg.connect(dsn)

    own_server.drop_database(dsn)

    connection.terminate()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(dsn)


async def test_it_is_reached_over_its_socket_too(own_server: PostgresServer) -> None:
    connection = await asyncpg.connect(own_server.dsn(over_socket=True))
    assert await connection.fetchval("select inet_server_addr()") is None
    await connection.close()


def test_it_is_durable_and_private(own_server: PostgresServer) -> None:
    settings = own_server.execute("select name, setting from pg_settings where name in ('fsync', 'listen_addresses')")
    assert settings.splitlines() == ["fsync|on", "listen_addresses|127.0.0.1"]
    assert own_server.folder.stat().st_mode & 0o077 == 0


def test_closing_leaves_neither_process_nor_folder() -> None:
    with running_postgres(shared_buffers="16MB") as server:
        pid, folder = server.pid, server.folder
        assert server.execute("show shared_buffers") == "16MB"
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_new_data_are_made_once_and_each_server_changes_a_copy(own_server: PostgresServer) -> None:
    own_server.execute("create role of_the_first")
    made = new_data.cache_info().misses
    with running_postgres(shared_buffers="16MB") as other:
        roles = other.execute("select rolname from pg_roles where rolname not like 'pg_%'")
    assert roles == "skep"
    assert new_data.cache_info().misses == made


def test_an_owner_that_is_killed_leaves_neither_process_nor_folder() -> None:
    script = """
import os, signal
from skep.testing.postgres import PostgresServer, new_data
server = PostgresServer(shared_buffers="16MB")
server.start()
print(server.pid, server._guard.pid, server.folder, new_data(server._account, server._programs).parent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    owner = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    server, guard, folder, copied = owner.stdout.split()

    wait_until_gone(int(guard))

    assert not Path(folder).exists()
    wait_until_gone(int(server))
    until(lambda: not Path(copied).exists())


def wait_until_gone(pid: int) -> None:
    until(lambda: not psutil.pid_exists(pid) or is_dead(psutil.Process(pid)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as someone else")
def test_root_runs_it_as_an_unprivileged_user(own_server: PostgresServer) -> None:
    assert own_server.pid is not None
    assert psutil.Process(own_server.pid).uids().effective != 0
