"""The copies of PostgreSQL that faults make keep what they say they keep."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest

from tests.support.postgres import PostgresServer, running_postgres
from torture import standby
from torture.faults.restore import SLOT, restore

pytestmark = pytest.mark.slow
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def suspended(server: PostgresServer) -> Iterator[None]:
    """A server whose processes all stand still."""
    assert server.pid is not None
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in family:
            process.resume()


def test_a_commit_waits_for_the_synchronous_standby_which_has_it_when_it_is_promoted() -> None:
    with running_postgres() as primary, running_postgres() as spare, ThreadPoolExecutor(1) as aside:
        spare.stop()
        primary.execute("CREATE TABLE kept (n int)")
        standby.follow(primary, spare)
        standby.make_synchronous(primary)
        with suspended(spare):
            commit = aside.submit(primary.execute, "INSERT INTO kept VALUES (1)")
            standby.until(primary, WAITING, "1")
            assert not commit.done()
        commit.result()
        primary.kill()
        spare.execute("SELECT pg_promote()")

        assert spare.execute("SELECT n FROM kept") == "1"
        assert spare.execute("INSERT INTO kept VALUES (2) RETURNING n") == "2"


def test_a_restored_postgres_has_what_was_committed_after_its_backup() -> None:
    with running_postgres() as postgres:
        postgres.execute("CREATE TABLE kept (n int)")
        for number in range(2):  # a restored one can be restored again
            standby.back_up(postgres, postgres.folder / "backup", "--create-slot", f"--slot={SLOT}")
            postgres.execute(f"INSERT INTO kept VALUES ({number})")
            restore(postgres)

        assert postgres.execute("SELECT n FROM kept ORDER BY n").split() == ["0", "1"]
        assert postgres.execute("SELECT timeline_id FROM pg_control_checkpoint()") == "3"
