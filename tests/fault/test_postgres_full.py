"""A full disk under PostgreSQL: what does not fit is refused whole, what is there stays, and with room it goes on.

The disk is a small tmpfs, which takes root to mount.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import PushBatch
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, payloads
from tests.support.postgres import running_postgres

SMALL_MB, ROOMY_MB = 20, 80
CHANCE = random.Random(1)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of that size, for the user that PostgreSQL runs as when we are root."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk to fill")
    nobody = pwd.getpwnam("nobody")
    folder.mkdir()
    options = f"size={megabytes}m,uid={nobody.pw_uid},gid={nobody.pw_gid},mode=700"
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounting.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounting.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def enlarge(folder: Path, megabytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={megabytes}m", folder], check=True)


async def push_until_refused(driver: Driver) -> tuple[list[str], Code, PushBatch]:
    """Push until there is no room; what was stored, what the rest was answered with, and the batch that did not fit."""
    stored: list[str] = []
    for number in range(2_000):
        names = [f"{number:04}-{n}" for n in range(5)]
        noise = [CHANCE.randbytes(20_000).hex() for _ in names]
        batch = driver.batch(
            *(
                driver.message(f"{name} {text}", partition=name, transaction_id=name)
                for name, text in zip(names, noise, strict=True)
            )
        )
        try:
            await driver.store.push([batch], driver.now)
        except SkepError as error:
            return stored, error.code, batch
        stored += names
    raise AssertionError("the disk never filled up")


async def drain(driver: Driver) -> list[str]:
    """Everything there is, in the order of the log."""
    found = []
    while held := await driver.pop(batch=20):
        found += [payload.split()[0] for payload in payloads(held)]
        await driver.ack(*held)
    return found


async def test_I1_I15_tables_that_do_not_fit_are_store_full_and_nothing_is_half_done() -> None:
    with running_postgres(shared_buffers="16MB") as server, small_disk(server.folder / "small", SMALL_MB) as disk:
        server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        server.execute("CREATE DATABASE full_soon TABLESPACE small")
        # Until then the copy of the template is full of holes, and reading may have to write them.
        server.execute("CHECKPOINT")
        store = PostgresStore(server.dsn("full_soon"))
        await store.open()
        driver = Driver(store, ManualClock(), "tenant")
        await driver.create()

        stored, code, refused = await push_until_refused(driver)

        assert code is Code.STORE_FULL
        assert stored
        assert (await driver.queue_stats()).last_seq == len(stored)
        await driver.check_accounts()
        enlarge(disk, ROOMY_MB)
        (again,) = await store.push([refused], driver.now)
        assert [result.status.value for result in again.results] == ["stored"] * 5
        assert await drain(driver) == stored + [m.partition for m in refused.messages]
        await driver.check_accounts()
        await store.close()
        await asyncio.to_thread(server.stop)


@pytest.mark.slow
async def test_I1_I15_a_full_disk_under_the_write_ahead_log_ends_postgres_and_loses_nothing() -> None:
    settings = {"shared_buffers": "16MB", "min_wal_size": "32MB", "max_wal_size": "64MB"}
    with running_postgres(**settings) as server:
        await asyncio.to_thread(server.stop)
        wal = server.folder / "data" / "pg_wal"
        wal.rename(server.folder / "first_wal")
        with small_disk(wal, 40) as disk:
            shutil.copytree(server.folder / "first_wal", disk, dirs_exist_ok=True)
            for path in disk.rglob("*"):
                shutil.chown(path, "nobody")
            await asyncio.to_thread(server.start)
            # A standby that never comes keeps the log from being reused.
            server.execute("SELECT pg_create_physical_replication_slot('absent', true)")
            store = PostgresStore(server.create_database())
            await store.open()
            driver = Driver(store, ManualClock(), "tenant")
            await driver.create()

            stored, code, refused = await push_until_refused(driver)

            assert code in (Code.STORE_FULL, Code.STORE_UNAVAILABLE)
            enlarge(disk, 400)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await store.push([refused], driver.now)
            assert await drain(driver) == stored + [m.partition for m in refused.messages]
            await driver.check_accounts()
            await store.close()
            await asyncio.to_thread(server.stop)
