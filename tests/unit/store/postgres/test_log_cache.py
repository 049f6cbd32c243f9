"""What is kept of a log in memory is served only while the log still has it, and within its bounds.

A change behind the store's back, which no log ever has, tells what came from memory from what came from PostgreSQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import asyncpg
import pyarrow as pa
import pytest
import pytest_asyncio

from skep.arrow.log import LogPiece, LogRange, NewRows
from skep.config import ServerSettings
from skep.model import LOG_CHUNK, ClearScope, Seq, Start, StartMode
from skep.store.postgres import PostgresStore, log
from skep.store.postgres.log_cache import IDLE_SECONDS, ChunkMark, LogCache
from skep.store.postgres.store import LOG_CACHE_BYTES
from tests.contract.driver import Driver

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MANY = 10_000_000
OLD, NEW = b"old", b"new"


async def fill(driver: Driver, count: int = LOG_CHUNK, payload: bytes = OLD, queue: str = "q") -> None:
    partition = pa.array([b"p"] * count, pa.large_binary())
    payloads = pa.array([payload] * count, pa.large_binary())
    rows = NewRows(partition, payloads, driver.mint.mint_range(count))
    await driver.store.push_rows(driver.key(queue), rows, driver.now)


async def piece(
    driver: Driver, first: int = 1, last: int = MANY, queue: str = "q", max_bytes: int = MANY, **wanted: Any
) -> LogPiece:
    wanted = {"max_rows": LOG_CHUNK} | wanted
    within = LogRange(first=Seq(first), last=Seq(last), max_bytes=max_bytes, **wanted)
    found = await driver.store.read_log(driver.key(queue), within)
    found.batch.validate(full=True)
    assert found.batch.schema == within.schema
    return found


async def payload(driver: Driver, *args: Any, **wanted: Any) -> bytes:
    """Of the first message of a piece."""
    first: bytes = (await piece(driver, *args, **wanted)).batch.column("payload")[0].as_py()
    return first


async def tamper(other: Session, changes: str = "") -> None:
    """Change payloads, as nothing of ours does; but not those that a chunk is known by."""
    await other.execute(f"UPDATE message SET payload = 'new'{changes} WHERE seq % {LOG_CHUNK} <> 0")


@pytest_asyncio.fixture(loop_scope="module")
async def there(driver: Driver, dsn: str) -> AsyncIterator[Driver]:
    """Another server."""
    store = PostgresStore(dsn)
    await store.open()
    yield Driver(store, driver.clock, driver.tenant)
    await store.close()


async def test_a_chunk_is_read_from_postgresql_once(driver: Driver, there: Driver, other: Session) -> None:
    await fill(driver, 2 * LOG_CHUNK)
    before = await piece(driver)
    await tamper(other)

    again = await piece(driver)

    assert again.batch.equals(before.batch)
    assert again.through == before.through == LOG_CHUNK
    assert await payload(there) == NEW, "what another server has read is not known there"
    assert await payload(driver, LOG_CHUNK + 1) == NEW, "what nobody has read yet"


async def test_a_part_of_a_chunk_is_read_from_memory_too(driver: Driver, other: Session) -> None:
    await fill(driver)
    whole = (await piece(driver)).batch
    await tamper(other)

    part = await piece(driver, 11, 30)
    rest = await piece(driver, 4_001)

    assert (part.batch.equals(whole.slice(10, 20)), part.through) == (True, 30)
    assert (rest.batch.equals(whole.slice(4_000)), rest.through) == (True, LOG_CHUNK)


async def test_who_begins_within_a_chunk_comes_to_the_next_one_whole(driver: Driver, other: Session) -> None:
    await fill(driver, 2 * LOG_CHUNK)

    first = await piece(driver, 4_321)
    second = await piece(driver, first.through + 1)
    await tamper(other)

    assert first.batch.column("seq").to_pylist() == list(range(4_321, LOG_CHUNK + 1))
    assert second.batch.num_rows == LOG_CHUNK
    assert await payload(driver, LOG_CHUNK + 1) == OLD


async def test_bounds_of_rows_and_bytes_and_partitions_hold(driver: Driver) -> None:
    await fill(driver)
    await piece(driver)

    assert (await piece(driver, max_rows=7)).batch.column("seq").to_pylist() == list(range(1, 8))
    assert (await piece(driver, 5, 4)).batch.num_rows == 0
    assert (await piece(driver, 0, max_rows=3)).batch.column("seq").to_pylist() == [1, 2, 3]
    assert (await piece(driver, max_bytes=10)).batch.column("seq").to_pylist() == [1, 2, 3, 4]
    assert (await piece(driver, partitions=("none",))).batch.num_rows == 0
    assert (await piece(driver, partitions=("p",))).batch.num_rows == LOG_CHUNK


async def test_a_few_rows_of_a_chunk_are_read_from_memory(driver: Driver, other: Session) -> None:
    await fill(driver)
    await piece(driver)
    await tamper(other)

    assert await payload(driver, 100, max_rows=7) == OLD


async def test_tenants_have_their_own(driver: Driver, other: Session) -> None:
    neighbour = Driver(driver.store, driver.clock, "neighbour")
    await fill(driver)
    await fill(neighbour, payload=NEW)

    assert [await payload(one) for one in (driver, neighbour, driver, neighbour)] == [OLD, NEW, OLD, NEW]


async def test_a_chunk_with_a_long_payload_among_short_ones_is_kept(driver: Driver, other: Session) -> None:
    await fill(driver, 1_000)
    await fill(driver, 1, OLD * 1_000)
    await fill(driver, LOG_CHUNK - 1_001)
    before = await piece(driver, max_bytes=1_000_000)
    await tamper(other)

    assert before.batch.num_rows == LOG_CHUNK
    assert (await piece(driver, max_bytes=1_000_000)).batch.equals(before.batch)


async def test_columns_are_those_that_were_asked_for(driver: Driver, other: Session) -> None:
    await fill(driver)
    await piece(driver, columns=("payload", "seq"))
    await tamper(other)

    assert await payload(driver, columns=("payload", "seq")) == OLD
    assert await payload(driver, columns=("seq", "payload")) == NEW
    assert await payload(driver) == NEW


async def test_a_chunk_that_is_not_full_yet_is_not_kept(driver: Driver) -> None:
    await fill(driver, LOG_CHUNK - 1)
    assert (await piece(driver)).batch.num_rows == LOG_CHUNK - 1

    await fill(driver, 1)

    assert (await piece(driver)).batch.num_rows == LOG_CHUNK


async def test_what_retention_took_is_gone(driver: Driver) -> None:
    await driver.create(retention_seconds=10, retention_ignores_groups=True)
    await fill(driver)
    await piece(driver)
    driver.clock.advance(11)
    while (await driver.retain()).more:
        pass

    assert (await piece(driver)).batch.num_rows == 0


async def test_what_was_cleared_is_gone(driver: Driver) -> None:
    await fill(driver)
    await piece(driver)
    await driver.clear(ClearScope.ALL)

    assert (await piece(driver)).batch.num_rows == 0


async def test_what_was_forgotten_is_gone_from_memory_too(driver: Driver) -> None:
    await fill(driver)
    assert isinstance(driver.store, PostgresStore)
    before = driver.store._log_cache.bytes  # of the tests before, which have the same store
    await piece(driver)
    assert driver.store._log_cache.bytes > before

    await driver.forget(5)

    assert driver.store._log_cache.bytes == before
    assert 5 not in (await piece(driver)).batch.column("seq").to_pylist()
    assert driver.store._log_cache.bytes == before, "a chunk with a gap is not kept"


async def test_a_queue_that_was_made_anew_has_its_own_messages(driver: Driver) -> None:
    await fill(driver)
    await piece(driver)
    await driver.delete()
    await fill(driver, payload=NEW)

    assert await payload(driver) == NEW


@pytest.mark.parametrize("changes", ["", ", id = gen_random_uuid()", ", created_at = created_at + 1"])
async def test_a_database_whose_seqs_are_of_other_messages_is_read_again(
    driver: Driver, other: Session, changes: str
) -> None:
    """A replica that took over without the last messages, or a backup that was put back, gives their seqs out once more. What was
    scheduled, queued or spooled comes back under the id it had.
    """
    await fill(driver)
    await piece(driver)
    await other.execute(f"UPDATE message SET payload = 'new'{changes}")

    assert await payload(driver) == NEW


async def test_a_log_that_lost_its_end_is_read_again(driver: Driver, other: Session) -> None:
    await fill(driver)
    await piece(driver)
    await other.execute("DELETE FROM message WHERE seq > 4_000")

    assert (await piece(driver)).batch.num_rows == 4_000


async def test_dead_letters_go_from_the_middle_so_they_are_not_kept(driver: Driver) -> None:
    await fill(driver)
    while found := await driver.pop(batch=1_000):
        await driver.reject(*found)
    await piece(driver, queue="q.dead")
    await driver.purge(seqs=[Seq(7), Seq(8)])

    left = (await piece(driver, queue="q.dead")).batch.column("seq").to_pylist()

    assert left == [*range(1, 7), *range(9, LOG_CHUNK + 1)]


async def test_what_lies_before_the_log_is_passed_over_at_once(driver: Driver, other: Session) -> None:
    await fill(driver, 10)
    await other.execute("UPDATE message SET seq = seq + 1_000_000")
    await other.execute("UPDATE queue SET first_seq = 1_000_001, floor_seq = 1_000_000")

    assert (await piece(driver)).batch.num_rows == 10


async def test_nothing_is_kept_when_there_is_no_room_for_it(driver: Driver, other: Session, dsn: str) -> None:
    store = PostgresStore(dsn, log_cache_bytes=0)
    await store.open()
    reader = Driver(store, driver.clock, driver.tenant)
    await fill(driver)
    await piece(reader)
    await tamper(other)

    assert await payload(reader) == NEW
    await store.close()


def test_the_default_is_that_of_the_settings() -> None:
    assert ServerSettings().log_cache_bytes == LOG_CACHE_BYTES


# the bounds of the memory, without a database


class Kept:
    """A cache of chunks that are as large as one another, on a clock that is moved by hand."""

    def __init__(self, chunks: int) -> None:
        self.batch = pa.record_batch({"payload": pa.array([b"x"] * LOG_CHUNK)})
        self.now = 0.0
        self.cache = LogCache(chunks * self.batch.nbytes, lambda: self.now)

    def keep(self, chunk: int, driver: Driver) -> None:
        first = Seq(chunk * LOG_CHUNK + 1)
        wanted = LogRange(first=first, last=first, max_rows=LOG_CHUNK, max_bytes=MANY)
        self.cache.keep(driver.key(), wanted, ChunkMark(1, b"", 0, ""), LogPiece(self.batch, first))

    def chunks(self) -> int:
        return self.cache.bytes // int(self.batch.nbytes)


async def test_so_many_bytes_are_kept_and_no_more(driver: Driver) -> None:
    kept = Kept(3)
    for chunk in (1, 2, 3, 3, 4, 5):
        kept.keep(chunk, driver)

    assert kept.chunks() == 3
    kept.keep(5, driver)
    assert kept.chunks() == 3


async def test_what_nobody_reads_any_more_is_given_back(driver: Driver) -> None:
    kept = Kept(3)
    kept.keep(1, driver)
    kept.now = IDLE_SECONDS - 1
    kept.keep(2, driver)
    kept.now = IDLE_SECONDS + 1
    kept.cache.drop_idle()
    assert kept.chunks() == 1

    kept.now = 3 * IDLE_SECONDS
    kept.cache.drop_idle()
    assert kept.chunks() == 0


async def test_what_was_read_last_stays_longest(driver: Driver, other: Session, dsn: str) -> None:
    await fill(driver, 3 * LOG_CHUNK)
    size = (await piece(driver)).batch.nbytes
    store = PostgresStore(dsn, log_cache_bytes=2 * size + size // 2)
    await store.open()
    reader = Driver(store, driver.clock, driver.tenant)
    firsts = [1, LOG_CHUNK + 1, 2 * LOG_CHUNK + 1]
    for first in (firsts[0], firsts[1], firsts[0], firsts[2]):  # so the second is the one that makes room
        await piece(reader, first)
    await tamper(other)

    assert [await payload(reader, first) for first in (firsts[0], firsts[2], firsts[1])] == [OLD, OLD, NEW]
    await store.close()


async def test_a_deleted_message_is_served_from_no_servers_memory(driver: Driver, there: Driver) -> None:
    await fill(driver, 2 * LOG_CHUNK)
    for server in (driver, there):
        await piece(server)
        await piece(server, LOG_CHUNK + 1)

    await there.delete_message(7)

    for server in (driver, there):
        for _ in range(2):
            found = (await piece(server)).batch.column("seq").to_pylist()
            assert 7 not in found
            assert found[:7] == [1, 2, 3, 4, 5, 6, 8]


async def test_beside_a_deleted_message_the_other_chunks_stay_in_memory(driver: Driver, other: Session) -> None:
    await fill(driver, 2 * LOG_CHUNK)
    await piece(driver, LOG_CHUNK + 1)
    await driver.delete_message(7)
    await tamper(other)

    assert await payload(driver, LOG_CHUNK + 1) == OLD


async def test_a_message_deleted_after_retention_took_an_earlier_gap_is_not_served(driver: Driver) -> None:
    """The number of gaps is the same as when the chunk was read, and says nothing."""
    await driver.create(retention_seconds=1)
    await fill(driver, 2 * LOG_CHUNK)
    await driver.delete_message(7)
    await driver.seek(Start(StartMode.SEQ, LOG_CHUNK + 1))
    await piece(driver, LOG_CHUNK + 1)
    driver.clock.advance(10)
    while (await driver.retain(limit=LOG_CHUNK)).more:
        pass
    await driver.delete_message(LOG_CHUNK + 2)

    assert (await driver.queue_stats()).gaps == 1
    found = (await piece(driver, LOG_CHUNK + 1)).batch.column("seq").to_pylist()
    assert found[:2] == [LOG_CHUNK + 1, LOG_CHUNK + 3]


async def test_a_message_that_is_deleted_while_its_chunk_is_read_is_not_kept(
    driver: Driver, there: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(driver)
    read = log.read

    async def slow_read(*arguments: Any) -> Any:
        found = await read(*arguments)
        await there.delete_message(7)
        return found

    monkeypatch.setattr(log, "read", slow_read)
    assert 7 in (await piece(driver)).batch.column("seq").to_pylist(), "it was there when it was read"
    monkeypatch.undo()

    assert 7 not in (await piece(driver)).batch.column("seq").to_pylist()
