"""Fixtures for all kinds of tests, the rules that slow and random ones run only with --all, and which of them share a worker."""

import asyncio
import gc
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from skep.store import pieces
from skep.store.postgres import database
from tests.support.endless import Longest
from tests.support.known_types import ask_for_types_once
from tests.support.new_stores import copy_new_stores
from tests.support.postgres import PostgresServer, make_tables, running_postgres
from tests.support.with_all import held_by_others
from tests.support.workers import Workers

ROOT = Path(__file__).resolve().parents[1]
TOGETHER = (
    ("tests/spark/",), ("tests/browser/",), ("tests/unit/store/postgres/test_plans.py",), ("tests/serve/test_workers.py",),
)  # fmt: skip
"""Folders and files whose tests share what takes long to start, and so a worker: a Spark, a browser, a full database."""
APART = ("tests/contract/test_state_machine.py", "tests/contract/test_operations_machine.py")
"""Files whose tests take long, each of them, and share nothing."""

LENGTHY = (
    "tests/spark/", "tests/browser/", "tests/fault/", "tests/bench/", "tests/torture/", "tests/serve/", "tests/cli/",
    "tests/contract/test_concurrency.py", *APART,
)  # fmt: skip
"""Folders and files whose tests load a store, or start a Spark, a browser or servers of their own: `--fast` leaves them out."""

ABOVE_STORES = (
    "tests/http/", "tests/sqs/", "tests/queen/", "tests/webhooks/", "tests/worker/", "tests/access/", "tests/apps/", "tests/dashboard/", "tests/serve/",
    "tests/engine/test_encryption.py", "tests/engine/test_sealed_errors.py",
)  # fmt: skip
"""Folders and files of what stands on the engine, or in it, and knows no store. That both stores do the same is held by `tests/contract`."""
MOST_VARIANTS, MOST_OF_A_PROMISE = 3, 6
PROMISE = re.compile(r"_I\d+_")

# Truncated only where there was much: of tables with few rows, that takes longer than deleting them. Most have not even a page.
EMPTY = """
DO $$ DECLARE name regclass; BEGIN
    SET LOCAL session_replication_role = replica;  -- no triggers
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'skep'::regnamespace AND relkind = 'r'
        AND relname NOT IN ('migration', 'app_revision', 'clock') AND pg_relation_size(oid) > 0
    LOOP EXECUTE CASE WHEN pg_relation_size(name) > 64 * 1024 THEN 'TRUNCATE ' ELSE 'DELETE FROM ' END || name; END LOOP;
    UPDATE skep.app_revision SET revision = 0;
    UPDATE skep.clock SET latest_at = 0, put_back_at = NULL;
    PERFORM setval(oid, 1, false) FROM pg_class WHERE relnamespace = 'skep'::regnamespace AND relkind = 'S';
END $$
"""


def together(nodeid: str) -> str:
    """What a worker gets at once with this test: the others of its file, so that what a file's tests share is made once."""
    if nodeid.startswith(APART):
        return nodeid
    return next((places[0] for places in TOGETHER if nodeid.startswith(places)), nodeid.partition("::")[0])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked slow, too")
    parser.addoption("--fast", action="store_true", help="leave out what takes long to start: PostgreSQL, Spark …")
    parser.addoption("--longest", type=float, default=600.0, metavar="SECONDS", help="a test that takes longer fails")
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    """Let generated examples be the same in every run, so that a failure is the commit's; with --all they are new each time. No example has a deadline.

    And let a piece of a chore touch as many messages as it is asked to: how many these are else goes by the time that pieces take.
    Without --all, servers in this process have few sessions with PostgreSQL, as each plans anew all that it runs.
    """
    if count := config.getoption("--workers"):
        config.pluginmanager.register(Workers(count, together), "workers")
    config.pluginmanager.register(Longest(config.getoption("--longest")), "longest")
    pieces.LEAST = 1_000_000
    copy_new_stores()
    ask_for_types_once()
    hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
    hypothesis.settings.register_profile("new", derandomize=False, deadline=None)
    hypothesis.settings.load_profile("new" if config.getoption("--all") else "same")
    if not config.getoption("--all"):
        database.MAX_CONNECTIONS = 2
        none = Constants()  # of the modules that are imported: which these are depends on the tests that are asked for
        providers._get_local_constants = lambda: none


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast, do not even import what takes long, and what has no test with the one word that is asked for by -k."""
    if not config.getoption("--fast"):
        return None
    path, word = collection_path.relative_to(ROOT).as_posix(), config.getoption("-k")
    if path.startswith(LENGTHY) or f"{path}/".startswith(LENGTHY) or "postgres" in path:
        return True
    if not path.endswith(".py") or not word.isidentifier() or word.lower() in path.lower():
        return None
    named = re.compile(rf"^\s*(?:async )?(?:def|class) \w*{word}", re.IGNORECASE | re.MULTILINE)
    return True if named.search(collection_path.read_text(encoding="utf-8")) is None else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, and begin with what takes long, so that no worker is left with it when the others have ended."""
    long = (*TOGETHER, *((file,) for file in APART))
    items.sort(
        key=lambda item: next((place for place, start in enumerate(long) if item.nodeid.startswith(start)), len(long))
    )
    if config.getoption("--all"):
        return
    slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
    if config.getoption("--fast"):
        slow |= {item.nodeid for item in items if "postgres" in item.nodeid}
    left = [item.nodeid for item in items if item.nodeid not in slow]
    slow |= second_runs(left) | many_variants(left) | held_by_others(left)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in slow])
    items[:] = [item for item in items if item.nodeid not in slow]


def second_runs(nodeids: list[str]) -> set[str]:
    """The runs on PostgreSQL of tests that know no store and run on SQLite, but for one of each file, and for promises."""
    known = set(nodeids)
    files: set[str] = set()
    found = set()
    for nodeid in nodeids:
        name, _, variant = nodeid.partition("[")
        first_run = f"{name}[{variant.replace('postgres', 'sqlite')}"
        if nodeid.startswith(ABOVE_STORES) and first_run != nodeid and first_run in known and not PROMISE.search(name):
            file = nodeid.partition("::")[0]
            found |= {nodeid} if file in files else set()
            files.add(file)
    return found


def many_variants(nodeids: list[str]) -> set[str]:
    """Of contract tests with very many variants, those that PostgreSQL runs with --all only: SQLite runs them all."""
    by_test: dict[str, list[str]] = {}
    for nodeid in nodeids:
        if nodeid.startswith("tests/contract/") and "[postgres-" in nodeid:
            by_test.setdefault(nodeid.partition("[")[0], []).append(nodeid)
    found: set[str] = set()
    for test, variants in by_test.items():
        most = MOST_OF_A_PROMISE if PROMISE.search(test) else MOST_VARIANTS
        kept = {place * len(variants) // most for place in range(most)}
        if len(variants) > most:
            found |= {nodeid for place, nodeid in enumerate(variants) if place not in kept}
    return found


def pytest_collection_finish() -> None:
    """Let the collector of cycles leave alone what lasts as long as the tests: ten thousand of them, and all that they import."""
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # some libraries count what is left of theirs at the end


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that lasts the session; each worker has its own, so that none waits for or breaks another.

    Tests that stop or kill a server start one of their own. So nothing is ever read back from this one's disk, and it waits for
    none.
    """
    with running_postgres(fsync="off") as server:
        yield server


@pytest.fixture
def blank_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a database without tables, for tests of making them."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def tables_to_copy(postgres_server: PostgresServer) -> str:
    """The name of a database with empty tables, to which nobody is connected."""
    dsn = postgres_server.create_database()
    with ThreadPoolExecutor(1) as thread:  # an asynchronous fixture may be the first to ask for it
        thread.submit(lambda: asyncio.run(make_tables(dsn))).result()
    return urlsplit(dsn).path.removeprefix("/")


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[str]:
    """The address of a fresh database with empty tables: a copy, which is had in a third of the time that making tables takes."""
    dsn = postgres_server.create_database(template=tables_to_copy)
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def database_with_tables(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[str]:
    dsn = postgres_server.create_database(template=tables_to_copy)
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def empty_tables_dsn(postgres_server: PostgresServer, database_with_tables: str) -> str:
    """The address of a database whose tables are there and empty: in a tenth of the time that making and dropping one takes.

    For tests that leave nobody behind who would still write to it.
    """
    postgres_server.execute(EMPTY, urlsplit(database_with_tables).path.removeprefix("/"))
    return database_with_tables
