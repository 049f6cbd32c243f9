"""Destroyed keys are in no file any more: not in the database, not in its write-ahead log, not in pages that are free.

Deleted payloads are overwritten where they are. Copies that SQLite left when it moved rows between pages may remain until a VACUUM.

The files are read as somebody with a copy of the disk would, while the store is open and after it was closed. PostgreSQL's own
write-ahead log is not the store's to cut, and is left out; docs/encryption.md says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import apsw
import pytest

from skep.clock import Instant, ManualClock
from skep.crypto.master import MasterKeys, new_master_line
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import DeadLetterFilter, NewMessage, Outcome, PopRequest, QueueKey, QueueSettings, Seq
from skep.model.data_key import WrappedKey
from skep.server.compose import open_engine
from skep.store.sqlite import SqliteStore
from tests.engine.driver import settlement
from tests.support.postgres import PostgresServer
from tests.support.waiting import until_so

PAYMENTS = QueueKey("payments")
OLD, NEW = new_master_line("old"), new_master_line("new")
CARDS = [b"4242424242424242", b"5555555555554444"]
KEYS = 200
"""So many that their table has several pages, and is split and joined on the way."""


class Disk(NamedTuple):
    """A store, and how its files are read."""

    url: str
    files: Callable[[], Iterator[Path]]
    settle: Callable[[], None]
    """Let everything that the store has in memory reach its files."""
    before: frozenset[bytes] = frozenset()
    """What was in files before there was any secret, and need not be searched: a new database has hundreds."""

    def found(self, secrets: Sequence[bytes]) -> list[bytes]:
        """Return those that are in any file."""
        self.settle()
        contents = {file.read_bytes() for file in self.files()} - self.before
        return [secret for secret in secrets if any(secret in content for content in contents)]


@pytest.fixture
def sqlite_disk(tmp_path: Path) -> Disk:
    return Disk(str(tmp_path / "skep.db"), lambda: (f for f in tmp_path.rglob("*") if f.is_file()), lambda: None)


@pytest.fixture
def postgres_disk(postgres_server: PostgresServer, postgres_dsn: str) -> Disk:
    base = postgres_server.folder / "data" / "base"
    database = urlsplit(postgres_dsn).path.removeprefix("/")
    oid = postgres_server.execute(f"SELECT oid FROM pg_database WHERE datname = '{database}'")

    def settle() -> None:
        """Have samples taken for the planner, as autovacuum does when it likes."""
        postgres_server.execute("ANALYZE", database)
        postgres_server.execute("CHECKPOINT")

    def files() -> Iterator[Path]:
        return (f for f in (base / oid).iterdir() if f.is_file())

    return Disk(postgres_dsn, files, settle, frozenset(file.read_bytes() for file in files()))


@pytest.fixture(params=["sqlite", "postgres"])
def disk(request: pytest.FixtureRequest) -> Disk:
    found: Disk = request.getfixturevalue(f"{request.param}_disk")
    return found


async def wrapped(engine: Engine, queue: str | None = None) -> list[bytes]:
    return [key.wrapped for key in await engine.encryption.wrapped_keys() if queue in (None, key.queue.name)]


async def with_keys(engine: Engine, queues: int) -> None:
    """Give queues keys in turn, so that those of one lie between those of others."""
    await asyncio.gather(*(engine.encryption.rotate(QueueKey(f"customer-{n % queues}")) for n in range(KEYS)))


async def test_shredded_keys_are_in_no_file_of_the_store(disk: Disk, clock: ManualClock) -> None:
    async with open_engine(disk.url, clock=clock, masters=MasterKeys(OLD)) as engine:
        await with_keys(engine, queues=4)
        doomed = await wrapped(engine, "customer-1")
        [kept, *_] = await wrapped(engine, "customer-2")
        assert disk.found([*doomed, kept]) == [*doomed, kept]

        assert await engine.encryption.shred(PAYMENTS.tenant, "customer-1") == KEYS // 4

        assert disk.found([*doomed, kept]) == [kept]
        await engine.encryption.shred(PAYMENTS.tenant, None)
        assert disk.found([*doomed, kept]) == []
    assert disk.found([*doomed, kept]) == []


async def test_keys_wrapped_by_an_old_master_key_are_in_no_file_once_they_are_rewrapped(
    disk: Disk, clock: ManualClock
) -> None:
    async with open_engine(disk.url, clock=clock, masters=MasterKeys(OLD)) as engine:
        await with_keys(engine, queues=3)
        before = await wrapped(engine)
        assert disk.found(before) == before
    async with open_engine(disk.url, clock=clock, masters=MasterKeys(f"{NEW}\n{OLD}")) as engine:
        assert await engine.encryption.rewrap() == KEYS

        after = await wrapped(engine)
        assert disk.found([*before, *after]) == after
    async with open_engine(disk.url, clock=clock, masters=MasterKeys(NEW)) as engine:
        assert len(await wrapped(engine)) == KEYS


async def test_payloads_of_a_deleted_queue_are_overwritten_where_they_are_in_sqlite(
    sqlite_disk: Disk, clock: ManualClock
) -> None:
    """Small ones that share a page, and large ones that have pages of their own, among those of a queue that stays."""
    small, large = b'"card 4242424242424242"', b'"' + b"card 5555555555554444 " * 600 + b'"'
    async with open_engine(sqlite_disk.url, clock=clock) as engine:
        for _ in range(20):
            await engine.push([NewMessage(PAYMENTS, one, partition="p") for one in (small, large)])
            await engine.push([NewMessage(QueueKey("orders"), b'"stays 1"')])
        assert sqlite_disk.found(CARDS) == CARDS

        await engine.delete_queue(PAYMENTS)
        await swept(engine)

        assert sqlite_disk.found([*CARDS, b"stays 1"]) == [b"stays 1"]


async def test_purged_dead_letters_are_overwritten_where_they_are_in_sqlite(
    sqlite_disk: Disk, clock: ManualClock
) -> None:
    async with open_engine(sqlite_disk.url, clock=clock) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(retention_seconds=1, retention_ignores_groups=True))
        await engine.push([NewMessage(PAYMENTS, b'"card 4242424242424242"')])
        [popped] = (await engine.pop(PopRequest(PAYMENTS))).deliveries
        await engine.settle([settlement(popped, Outcome.REJECT)])
        assert sqlite_disk.found(CARDS[:1])

        clock.advance(10)
        await engine._store.retain(PAYMENTS, engine.now(), 100)
        assert await engine.dead_letters.purge(DeadLetterFilter(queue=QueueKey("payments.dead"))) == 1
        await swept(engine)

        assert sqlite_disk.found(CARDS[:1]) == []


async def test_shredding_says_so_when_a_reader_keeps_the_keys_in_the_log_and_a_chore_finishes_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Somebody else reads the file, a backup for example: what it may still have to read cannot be cut off."""
    path = tmp_path / "skep.db"
    disk = Disk(str(path), lambda: (f for f in tmp_path.rglob("*") if f.is_file()), lambda: None)
    async with open_engine(disk.url, clock=clock, masters=MasterKeys(OLD)) as engine:
        await engine.encryption.rotate(PAYMENTS)
        [doomed] = await wrapped(engine)
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT count(*) FROM data_key").fetchall()

        with pytest.raises(SkepError) as told:
            await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)

        assert told.value.code is Code.STORE_BUSY
        assert await wrapped(engine) == []
        assert disk.found([doomed])
        reader.close()
        await engine._store.maintain()
        assert disk.found([doomed]) == []


async def sealing(engine: Engine) -> None:
    """Make an encrypted queue with one message."""
    await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
    await engine.push([NewMessage(PAYMENTS, b'"before"')])


async def popped(engine: Engine) -> list[bytes]:
    """Pop until the queue is empty; a message that cannot be opened may take a pop for itself."""
    return [one.payload for _ in range(2) for one in (await engine.pop(PopRequest(PAYMENTS, auto_ack=True))).deliveries]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the log of encryption says from now on."""
    said: list[str] = []
    monkeypatch.setattr("skep.engine.encryption.log.warning", lambda event, **_: said.append(event))
    return said


async def test_I1_keys_that_a_busy_shred_destroyed_are_used_no_more(
    tmp_path: Path, clock: ManualClock, lines: list[str]
) -> None:
    path = str(tmp_path / "skep.db")
    async with open_engine(path, clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT count(*) FROM data_key").fetchall()
        with pytest.raises(SkepError) as told:
            await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)
        reader.close()

        assert told.value.code is Code.STORE_BUSY
        assert lines == ["data keys were destroyed"]
        assert await popped(engine) == []
        await engine.push([NewMessage(PAYMENTS, b'"after"')])
    async with open_engine(path, clock=clock, masters=MasterKeys(OLD)) as engine:
        assert await popped(engine) == [b'"after"']


def is_waiting(engine: Engine) -> bool:
    """Whether a call waits until another one that makes or destroys keys is done."""
    return bool(engine.encryption._making._waiters)


@pytest.mark.parametrize("gives_up", [False, True])
async def test_I1_what_is_pushed_while_keys_are_shredded_is_sealed_by_a_key_that_stays(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    """The keys are destroyed and the log is not cut yet; whoever asked for it may not wait for that."""
    path = str(tmp_path / "skep.db")
    async with open_engine(path, clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        store = engine._store
        shred_data_keys, destroyed, cut = store.shred_data_keys, asyncio.Event(), asyncio.Event()

        async def slow(tenant: str, queue: str | None, now: Instant) -> int:
            gone = await shred_data_keys(tenant, queue, now)
            destroyed.set()
            await cut.wait()
            return gone

        monkeypatch.setattr(store, "shred_data_keys", slow)
        shredding = asyncio.ensure_future(engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name))
        await destroyed.wait()
        if gives_up:
            shredding.cancel()
        pushing = asyncio.ensure_future(engine.push([NewMessage(PAYMENTS, b'"during"')]))
        await until_so(lambda: pushing.done() or is_waiting(engine))
        cut.set()
        await asyncio.wait({shredding, pushing})
        assert not (await pushing).refused
    async with open_engine(path, clock=clock, masters=MasterKeys(OLD)) as engine:
        assert await popped(engine) == [b'"during"']


async def test_I1_keys_that_were_read_before_a_shred_do_not_come_back_after_it(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "skep.db")
    async with open_engine(path, clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        store = engine._store
        data_keys, read, go_on = store.data_keys, asyncio.Event(), asyncio.Event()

        async def slow() -> list[WrappedKey]:
            found = await data_keys()
            if not read.is_set():
                read.set()
                await go_on.wait()
            return found

        monkeypatch.setattr(store, "data_keys", slow)
        loading = asyncio.ensure_future(engine.encryption.load())
        await read.wait()
        shredding = asyncio.ensure_future(engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name))
        await until_so(lambda: shredding.done() or is_waiting(engine))
        go_on.set()
        await asyncio.gather(loading, shredding)
        assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == b""
        await engine.push([NewMessage(PAYMENTS, b'"after"')])
    async with open_engine(path, clock=clock, masters=MasterKeys(OLD)) as engine:
        assert await popped(engine) == [b'"after"']


class SlowShred:
    """Destroys keys only when it may, also when its caller has gone, as work in a thread goes on."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shred = engine._store.shred_data_keys
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(engine._store, "shred_data_keys", self)

    async def __call__(self, *arguments: Any) -> int:
        return await asyncio.shield(asyncio.ensure_future(self._later(*arguments)))

    async def _later(self, *arguments: Any) -> int:
        self.begun.set()
        await self.go_on.wait()
        return await self._shred(*arguments)


async def test_keys_that_a_shred_is_about_to_destroy_are_not_read_again_though_its_caller_has_gone(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_engine(str(tmp_path / "skep.db"), clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        slow = SlowShred(engine, monkeypatch)
        shredding = asyncio.ensure_future(engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name))
        await slow.begun.wait()
        shredding.cancel()
        await asyncio.wait([shredding])
        reading = asyncio.ensure_future(engine.browse.message(PAYMENTS, Seq(1)))
        await until_so(lambda: reading.done() or is_waiting(engine))
        slow.go_on.set()

        assert (await reading).payload == b""


@pytest.mark.parametrize("key", [QueueKey("payments", "rival"), QueueKey("cards")])
async def test_messages_of_others_are_opened_while_keys_are_shredded(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, key: QueueKey
) -> None:
    async with open_engine(str(tmp_path / "skep.db"), clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        await engine.create_queue(key, QueueSettings(encryption_enabled=True))
        await engine.push([NewMessage(key, b'"theirs"')])
        slow = SlowShred(engine, monkeypatch)
        shredding = asyncio.ensure_future(engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name))
        await slow.begun.wait()
        reading = asyncio.ensure_future(engine.browse.message(key, Seq(1)))
        await until_so(lambda: reading.done() or is_waiting(engine))
        is_read_beside = reading.done()
        slow.go_on.set()
        await shredding

        assert is_read_beside
        assert (await reading).payload == b'"theirs"'


@pytest.mark.parametrize("is_down_for_reads", [False, True])
async def test_keys_that_a_failed_shred_left_go_on_opening_what_they_sealed(
    disk: Disk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, lines: list[str], is_down_for_reads: bool
) -> None:
    async def down(*_: object) -> int:
        raise SkepError(Code.STORE_UNAVAILABLE, "the store is away")

    async with open_engine(disk.url, clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        with monkeypatch.context() as patched:
            patched.setattr(engine._store, "shred_data_keys", down)
            if is_down_for_reads:
                patched.setattr(engine._store, "data_keys", down)
            with pytest.raises(SkepError) as told:
                await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)

        assert told.value.code is Code.STORE_UNAVAILABLE
        assert lines == (["data keys cannot be read after a shred"] if is_down_for_reads else [])
        await engine.push([NewMessage(PAYMENTS, b'"after"')])
        assert await popped(engine) == [b'"before"', b'"after"']


async def test_what_a_destroyed_key_sealed_lets_the_keys_be_read_anew_once(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_engine(str(tmp_path / "skep.db"), clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)
        await engine.push([NewMessage(PAYMENTS, b'"after"')])
        store, reads = engine._store, 0
        data_keys = store.data_keys

        async def counted() -> list[WrappedKey]:
            nonlocal reads
            reads += 1
            return await data_keys()

        monkeypatch.setattr(store, "data_keys", counted)
        assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == b""
        assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == b""
        assert await popped(engine) == [b'"after"']
        assert reads == 1

        await engine.encryption.load()
        assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == b""
        assert reads == 3, "keys that were missing may be there again: the caches ask for it"


async def test_nothing_is_remembered_of_a_key_that_another_server_destroyed(tmp_path: Path, clock: ManualClock) -> None:
    async with open_engine(str(tmp_path / "skep.db"), clock=clock, masters=MasterKeys(OLD)) as engine:
        await sealing(engine)
        assert engine.encryption._reserved
        await engine._store.shred_data_keys(PAYMENTS.tenant, PAYMENTS.name, engine.now())
        await engine.encryption.load()
        assert not engine.encryption._reserved


async def test_a_file_that_a_killed_server_left_is_cut_when_it_is_opened(tmp_path: Path, clock: ManualClock) -> None:
    """It had shredded a key, and did not live to cut the log."""
    whole, left = tmp_path / "skep.db", tmp_path / "left" / "skep.db"
    left.parent.mkdir()
    async with open_engine(str(whole), clock=clock, masters=MasterKeys(OLD)) as engine:
        await engine.encryption.rotate(PAYMENTS)
        [doomed] = await wrapped(engine)
        db = apsw.Connection(str(whole))
        db.set_busy_timeout(60_000)  # the engine looks after its store meanwhile
        db.execute("PRAGMA secure_delete = ON; DELETE FROM data_key").fetchall()
        for name in ("skep.db", "skep.db-wal"):
            (left.parent / name).write_bytes((tmp_path / name).read_bytes())
        db.close()
    disk = Disk(str(left), lambda: (f for f in left.parent.iterdir() if f.is_file()), lambda: None)
    assert disk.found([doomed])

    store = SqliteStore(left)
    await store.open()
    try:
        assert disk.found([doomed]) == []
    finally:
        await store.close()


async def swept(engine: Engine) -> None:
    """Let the engine's chores run until there is nothing left of it."""
    while (await engine._store.sweep(engine.now(), 1_000)).more:
        pass
    await engine._store.maintain()
