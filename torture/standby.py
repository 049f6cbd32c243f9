"""Copies of a running PostgreSQL: base backups, and a standby that streams from it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from skep.testing.binaries import programs_for, unprivileged_account
from skep.testing.postgres import USER, PortTakenError, PostgresServer, run_program

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.05


def back_up(server: PostgresServer, folder: Path, *options: str) -> None:
    """Make a base backup of a running server in a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    account = unprivileged_account()
    address: list[str | Path] = ["-h", server.folder, "-p", str(server.port), "-U", USER, "-D", folder]
    # Not synced: what a copy lost in a power cut is no question here.
    programs = programs_for(account)
    run_program(account, [programs / "pg_basebackup", *address, "--checkpoint=fast", "--no-sync", *options])


def follow(primary: PostgresServer, spare: PostgresServer) -> None:
    """Make a server that was stopped or killed the standby of a running one, and return once it streams."""
    back_up(primary, spare.folder / "data", "--write-recovery-conf")
    start(spare)
    until(primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1")


def make_synchronous(primary: PostgresServer) -> None:
    """From now on a commit is answered when the standby has it, and all commits of before are there."""
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    until(primary, "SHOW synchronous_standby_names", "*")
    primary.execute("CHECKPOINT")  # its process is the one that makes commits wait, and has read the settings now
    until(primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1")
    primary.execute("SELECT pg_logical_emit_message(true, 'torture', 'a commit that waits for the standby')")


def start(server: PostgresServer) -> None:
    """Start a server on its port, once nobody else uses that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            server.start()
        except PortTakenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            return


def until(server: PostgresServer, question: str, answer: str) -> None:
    """Ask until the answer is as it should be."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := server.execute(question)) != answer:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{question}: {found}, and not {answer}")
        time.sleep(LOOK_SECONDS)
