"""PostgreSQL loses its data, and is restored from a backup."""

from __future__ import annotations

import asyncio
import os
import random
import shutil

from skep.testing.postgres import PostgresServer
from torture import standby
from torture.site import Site, StoreName

SLOT = "torture"


class Restore:
    """Takes a base backup under the load; later kills PostgreSQL, and restores from the backup and the write-ahead log since then."""

    name = "restore"
    description = (
        "a base backup under the load, kill -9 of PostgreSQL, and a restore of the backup with the log since then"
    )
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = True
    takes_pushes = True
    layers = ()

    async def prepare(self, site: Site) -> None:
        """Take the backup. A replication slot keeps the log from then on."""
        assert site.postgres is not None
        postgres = site.postgres
        options = ("--create-slot", f"--slot={SLOT}")
        await asyncio.to_thread(standby.back_up, postgres, postgres.folder / "backup", *options)

    async def inject(self, site: Site, chance: random.Random) -> str:  # noqa: ARG002 - the moment is the plan's
        assert site.postgres is not None
        await asyncio.to_thread(restore, site.postgres)
        return "killed PostgreSQL and restored it from a backup and its log"


def restore(postgres: PostgresServer) -> None:
    """Kill a server, and let it begin with the backup: it reads the log of before to its end."""
    data, backup, lost = (postgres.folder / name for name in ("data", "backup", "lost"))
    postgres.kill()
    data.rename(lost)
    backup.rename(data)
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write(f'restore_command = \'cp "{lost}/pg_wal/%f" "%p"\'\n')
    signal = data / "recovery.signal"
    signal.touch(mode=0o600)
    owner = data.stat()
    os.chown(signal, owner.st_uid, owner.st_gid)
    standby.start(postgres)
    standby.until(postgres, "SELECT pg_is_in_recovery()", "f")
    postgres.execute("ALTER SYSTEM RESET restore_command")
    shutil.rmtree(lost)
