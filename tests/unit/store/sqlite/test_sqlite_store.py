"""What only the SQLite store has: group commit, savepoints, the file's lock, broken and full files, plans."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import closing, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

from skep.arrow.log import LOG_SCHEMA
from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    NewMessage,
    PopRequest,
    PushBatch,
    PushStatus,
    QueueKey,
    QueueSettings,
    Seq,
    Settlement,
    SettleStatus,
    Token,
)
from skep.model.forgetting import SeqRange
from skep.model.operation import ClaimLimits, NewOperations, OperationKind
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.connection import Knobs, migrate, open_writer
from skep.store.sqlite.queues import make_queue
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

KEY = QueueKey("orders")
CLOCK = ManualClock()
MINT = IdMint(CLOCK)
NOW = CLOCK.now()


def batch(*payloads: bytes, queue: QueueKey = KEY) -> PushBatch:
    return PushBatch([NewMessage(queue, payload) for payload in payloads], MINT.mint_many(len(payloads)))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    yield store
    await store.close()


def test_it_is_a_store() -> None:
    store: Store = SqliteStore(":memory:")
    assert isinstance(store, SqliteStore)


# one commit for many calls


async def test_calls_that_wait_are_committed_together(store: SqliteStore) -> None:
    await store.create_queue(KEY, QueueSettings(), NOW)
    before = store.commits

    outcomes = await asyncio.gather(*(store.push([batch(b"x")], NOW) for _ in range(200)))

    assert store.commits - before < 20
    assert sorted(outcome[0].results[0].seq or 0 for outcome in outcomes) == list(range(1, 201))


async def test_so_many_calls_share_a_commit_and_no_more(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db", max_calls_per_commit=2)
    await store.open()
    await store.create_queue(KEY, QueueSettings(), NOW)
    before = store.commits

    await asyncio.gather(*(store.push([batch(b"a")], NOW) for _ in range(6)))

    assert store.commits - before == 3
    await store.close()


async def test_I15_a_failing_call_does_not_hurt_its_neighbours(store: SqliteStore) -> None:
    await store.create_queue(KEY, QueueSettings(), NOW)
    before = store.commits
    unknown = PopRequest(queue=QueueKey("nowhere"), token=Token(b"t" * 16))

    first, failed, second = await asyncio.gather(
        store.push([batch(b"a")], NOW),
        store.pop([unknown], NOW),
        store.push([batch(b"b")], NOW),
        return_exceptions=True,
    )

    assert isinstance(failed, SkepError)
    assert failed.code is Code.QUEUE_NOT_FOUND
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert [first[0].results[0].seq, second[0].results[0].seq] == [1, 2]
    assert store.commits - before < 3
    assert (await store.queue_stats(KEY, NOW)).last_seq == 2


async def in_one_commit(store: SqliteStore, *calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """What becomes of calls that wait while the writer is busy, and so share a transaction."""
    writer = store._writer
    assert writer is not None
    begun, go = threading.Event(), threading.Event()

    def wait(session: Session) -> None:
        begun.set()
        go.wait()

    busy = writer.call(wait)
    await asyncio.to_thread(begun.wait)
    waiting = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    assert len(writer._short) == len(calls)
    before = store.commits
    go.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    await busy
    assert store.commits - before == 2, "that of the busy call, and theirs"
    return found


@pytest.mark.parametrize("is_alone", [True, False])
async def test_I15_what_a_failing_call_did_is_undone(store: SqliteStore, is_alone: bool) -> None:
    await store.push([batch(b"a")], NOW)
    known = PopRequest(queue=KEY, token=Token(b"t" * 16), group="g")
    unknown = PopRequest(queue=QueueKey("nowhere"), token=Token(b"t" * 16))

    if is_alone:
        with pytest.raises(SkepError):
            await store.pop([known, unknown], NOW)
    else:
        first, failed, last = await in_one_commit(
            store, store.push([batch(b"b")], NOW), store.pop([known, unknown], NOW), store.push([batch(b"c")], NOW)
        )
        assert isinstance(failed, SkepError)
        assert [one[0].results[0].seq for one in (first, last)] == [2, 3]

    assert (await store.queue_stats(KEY, NOW)).last_seq == (1 if is_alone else 3)
    assert (await store.queue_stats(KEY, NOW)).groups == []
    assert await store.leases(KEY.tenant, NOW) == []
    (result,) = await store.pop([known], NOW)
    assert {delivery.attempt for delivery in result.deliveries} == {1}
    assert [one.group for one in (await store.queue_stats(KEY, NOW)).groups] == ["g"]


async def test_I1_a_commit_that_fails_fails_its_calls(store: SqliteStore) -> None:
    db = store.writer._session.db
    db.set_commit_hook(lambda: True)  # which turns the commit into a rollback
    with pytest.raises(SkepError):
        await store.push([batch(b"a")], NOW)
    db.set_commit_hook(None)

    (outcome,) = await store.push([batch(b"b")], NOW)
    assert outcome.results[0].seq == 1


async def test_calls_whose_transaction_another_one_lost_are_made_again(store: SqliteStore) -> None:
    def lose(session: Session) -> None:
        session.db.execute("ROLLBACK")  # as SQLite does by itself when a disk is full
        raise apsw.FullError("full")

    async def losing() -> None:
        await store.writer.call(lose, short=True)

    first, lost, last = await asyncio.gather(
        store.push([batch(b"a")], NOW), losing(), store.push([batch(b"b")], NOW), return_exceptions=True
    )

    assert isinstance(lost, SkepError)
    assert lost.code is Code.STORE_FULL
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert [one[0].results[0].seq for one in (first, last)] == [1, 2]


async def test_a_cancelled_caller_does_not_stop_the_others(store: SqliteStore) -> None:
    await store.create_queue(KEY, QueueSettings(), NOW)
    cancelled = asyncio.create_task(store.push([batch(b"a")], NOW))
    kept = asyncio.create_task(store.push([batch(b"b")], NOW))
    await asyncio.sleep(0)
    cancelled.cancel()

    assert (await kept)[0].results[0].status is PushStatus.STORED


async def test_a_closed_store_refuses_and_opens_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    await store.push([batch(b"a")], NOW)
    await store.close()

    with pytest.raises(SkepError) as caught:
        await store.push([batch(b"b")], NOW)
    assert caught.value.code is Code.STORE_UNAVAILABLE

    await store.open()
    assert (await store.queue_stats(KEY, NOW)).last_seq == 1
    await store.close()


async def test_I1_every_commit_is_an_fsync(store: SqliteStore) -> None:
    async def pragma(name: str) -> object:
        assert store._writer is not None
        return await store._writer.call(lambda session: session.db.pragma(name), bare=True)

    assert await pragma("synchronous") == 2
    assert await pragma("journal_mode") == "wal"


async def test_nobody_waits_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def move(_: Checkpoints) -> None:
        begun.set()
        goes_on.wait(30)

    monkeypatch.setattr(Checkpoints, "_move", move)
    store = SqliteStore(tmp_path / "skep.db", checkpoint_pages=1)
    await store.open()

    async with asyncio.timeout(20):
        await store.push([batch(b"x")], NOW)
        await asyncio.to_thread(begun.wait)
        await store.push([batch(b"y")], NOW)
        await store.delete_queue(KEY, NOW)
    goes_on.set()
    await store.close()


@pytest.mark.parametrize(("checkpoint_pages", "is_moved"), [(1, True), (1_000, False)])
async def test_a_log_that_is_long_is_moved_into_the_database(
    tmp_path: Path, checkpoint_pages: int, is_moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, end = threading.Event(), Checkpoints.end

    def told(checkpoints: Checkpoints) -> None:
        end(checkpoints)
        ended.set()

    monkeypatch.setattr(Checkpoints, "end", told)
    store = SqliteStore(tmp_path / "skep.db", checkpoint_pages=checkpoint_pages)
    await store.open()
    await store.push([batch(b"x")], NOW)
    if is_moved:
        await asyncio.to_thread(ended.wait)

    alone = tmp_path / "alone.db"
    alone.write_bytes((tmp_path / "skep.db").read_bytes())
    await store.close()

    db = apsw.Connection(str(alone))
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
    assert ("message" in tables and db.execute("SELECT count(*) FROM message").get == 1) is is_moved


# the file


_OPEN_AND_HOLD = """
import asyncio, sys
from skep.store.sqlite import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1]); await store.open()
    print("open", flush=True); sys.stdin.readline()
asyncio.run(main())
"""


async def test_a_second_process_is_told_that_the_file_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    with subprocess.Popen(  # noqa: ASYNC220 - a pipe that blocks is what synchronizes the two
        [sys.executable, "-c", _OPEN_AND_HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(SkepError) as caught:
            await SqliteStore(path, busy_timeout_ms=100).open()
        assert caught.value.code is Code.STORE_BUSY
        assert str(other.pid) in caught.value.message
        assert str(path) in caught.value.message
        other.kill()

    store = SqliteStore(path, busy_timeout_ms=2_000)
    await store.open()
    await store.close()


async def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    path.write_bytes(b"this is no database, however long one reads it" * 100)

    with pytest.raises(SkepError) as caught:
        await SqliteStore(path).open()

    assert caught.value.code is Code.STORE_CORRUPT
    assert str(path) in caught.value.message


async def test_a_folder_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SkepError) as caught:
        await SqliteStore(tmp_path / "nowhere" / "skep.db").open()

    assert caught.value.code is Code.STORE_UNAVAILABLE


async def test_a_migration_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE migration SET checksum = 'another'")
    db.close()

    with pytest.raises(SkepError) as caught:
        await SqliteStore(path).open()
    assert caught.value.code is Code.STORE_CORRUPT


async def push_large(store: SqliteStore) -> Code | None:
    try:
        await store.push([batch(*[bytes(2_000)] * 10)], NOW)
    except SkepError as error:
        return error.code
    return None


async def test_I2_a_full_file_takes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db", max_pages=150)
    await store.open()
    answers = [await push_large(store) for _ in range(100)]
    stored = answers.count(None) * 10
    assert stored > 0
    assert set(answers) == {None, Code.STORE_FULL}

    assert (await store.queue_stats(KEY, NOW)).last_seq == stored
    (result,) = await store.pop([PopRequest(queue=KEY, token=Token(b"t" * 16), batch=1, auto_ack=True)], NOW)
    assert [delivery.seq for delivery in result.deliveries] == [1]
    await store.close()


async def test_a_full_file_hurts_only_the_calls_that_do_not_fit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db", max_pages=150)
    await store.open()
    await store.create_queue(KEY, QueueSettings(), NOW)

    answers = await asyncio.gather(
        store.push([batch(b"small")], NOW),
        store.push([batch(*[bytes(4_000)] * 500)], NOW),
        store.push([batch(b"small too")], NOW),
        return_exceptions=True,
    )

    assert isinstance(answers[1], SkepError)
    assert answers[1].code is Code.STORE_FULL
    assert not isinstance(answers[0], BaseException)
    assert not isinstance(answers[2], BaseException)
    assert (await store.queue_stats(KEY, NOW)).last_seq == 2
    await store.close()


@pytest.mark.parametrize("error", [apsw.FullError("full"), apsw.IOError("disk I/O error")])
async def test_a_store_opens_though_its_log_cannot_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: apsw.Error
) -> None:
    def cut(checkpoints: Checkpoints) -> bool:
        raise error

    monkeypatch.setattr(Checkpoints, "cut", cut)
    store = SqliteStore(tmp_path / "skep.db")

    await store.open()

    (outcome,) = await store.push([batch(b"1")], NOW)
    await store.close()
    assert [result.status for result in outcome.results] == [PushStatus.STORED]


async def test_memory_ends_with_the_store() -> None:
    store = SqliteStore(":memory:")
    await store.open()
    await store.push([batch(b"a")], NOW)
    await store.maintain()
    await store.close()
    await store.open()
    assert await store.get_queue(KEY) is None
    await store.close()


async def test_reads_see_what_was_answered(store: SqliteStore) -> None:
    for n in range(1, 30):
        await store.push([batch(b"x")], NOW)
        assert (await store.queue_stats(KEY, NOW)).last_seq == n


async def test_I6_settling_survives_a_reopening(tmp_path: Path) -> None:
    token = Token(b"t" * 16)
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    await store.push([batch(b"a", b"b")], NOW)
    await store.pop([PopRequest(queue=KEY, token=token, batch=2)], NOW)
    await store.close()
    await store.open()

    results = await store.settle(
        [Settlement(queue=KEY, partition="Default", seq=Seq(seq), token=token) for seq in (1, 2)],
        NOW,
    )

    assert [result.status for result in results] == [SettleStatus.COMPLETED] * 2
    await store.close()


async def test_what_a_process_that_ended_had_claimed_is_free_when_the_file_is_opened(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    await store.enqueue([NewOperations(OperationKind.PUSH, MINT.mint_many(1), push=batch(b"a"))], NOW)
    before = await store.claim_operations("one", Token(b"1" * 16), ClaimLimits(), NOW)
    await store.close()
    await store.open()

    after = await store.claim_operations("another", Token(b"2" * 16), ClaimLimits(), NOW)
    assert [one.id for one in after.operations] == [one.id for one in before.operations] != []
    await store.close()


# statements


FILES = sorted(
    entry.name.removesuffix(".sql")
    for entry in resources.files("skep.store.sqlite").iterdir()
    if entry.name.endswith(".sql")
)
HOT = {
    ("leases", "discover"): "SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    ("leases", "claim_ready"): "MERGE (UNION ALL)",
    ("leases", "next_of_partition"): "INDEX message_partition (queue_id=? AND partition=? AND rowid>? AND rowid<?)",
    ("leases", "head_of_partition"): "INDEX message_partition (queue_id=? AND partition=? AND rowid>? AND rowid<?)",
    ("leases", "lease_of_partition"): "SEARCH partition_lease USING PRIMARY KEY (group_id=? AND partition=?)",
    ("leases", "save_lease"): "SEARCH partition_lease USING PRIMARY KEY (group_id=? AND partition=?)",
    ("leases", "run_out_leases"): "INDEX partition_lease_leased (group_id=? AND ready_at<?)",
    ("leases", "next_deadline"): "INDEX partition_lease_leased (group_id=? AND ready_at>?)",
    ("leases", "message_at"): "SEARCH message USING INTEGER PRIMARY KEY (rowid=?)",
    ("push", "find_key"): "SEARCH dedup USING PRIMARY KEY (queue_id=? AND transaction_id=? AND partition=?)",
    ("sets", "ready_sets"): "INDEX set_lease_ready (group_id=? AND priority=? AND ready_at<?)",
    ("sets", "sets_of_token"): "INDEX set_lease_token (group_id=? AND token=?)",
    ("state", "last_message"): "SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    ("chores", "due"): "INDEX scheduled_due (queue_id=? AND due_at<?)",
    ("scheduled", "walk"): "INDEX scheduled_due (queue_id=? AND due_at>? AND due_at<?)",
    ("scheduled", "with_id"): "INDEX scheduled_id (id=?)",
    ("scheduled", "with_transaction_id"): "INDEX scheduled_transaction_id (transaction_id=? AND due_at>? AND due_at<?)",
    ("scheduled", "with_trace_id"): "INDEX scheduled_trace (trace_id=? AND due_at>? AND due_at<?)",
    ("chores", "sweep_keys"): "INDEX dedup_expiry (expires_at<?)",
    ("chores", "sweep_receipts"): "INDEX receipt_expiry (expires_at<?)",
    ("traces", "traced"): "INDEX message_trace (trace_id=?)",
    ("receipts", "find"): "SEARCH receipt USING INDEX receipt_name (name=?)",
    ("receipts", "drop"): "SEARCH receipt USING INDEX receipt_name (name=?)",
    ("entities", "version"): "INDEX entity_key (tenant=? AND type=? AND id=?)",
    ("entities", "update"): "SEARCH entity USING INTEGER PRIMARY KEY (rowid=?)",
    ("entities", "find"): "INDEX entity_key (tenant=? AND type=? AND id=?)",
    ("entities", "list"): "INDEX entity_key (tenant=? AND type=? AND id>?)",
    ("entities", "events"): "SEARCH v USING PRIMARY KEY (entity=? AND number>?)",
}
MAY_SORT = {
    ("sets", "sets_of_partition"),
    ("stats", "set_figures"),
    ("data_keys", "list"),  # keys are few, and all are read
    ("operations", "waiting"),  # into three kinds, of a bounded number
    ("operations", "figures"),
    ("staging", "queues"),  # the names in an epoch
    ("leases", "leases_of_token"),  # the partitions of one pop
    ("refusals", "list"),  # of each webhook the newest hundred are kept, and all are read
}


@pytest.fixture(scope="module")
def schema() -> apsw.Connection:
    db = open_writer(":memory:", Knobs())
    migrate(db, ":memory:")
    return db


def plan(db: apsw.Connection, sql: str) -> str:
    sql = sql.format(*range(3, 3 + sql.count("{}")))  # a row that is repeated has braces for its parameters
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    named = re.findall(r":([a-z_]+)", sql)
    values = dict.fromkeys(named) if named else (None,) * (max(numbered, default=0) or sql.count("?"))
    return " | ".join(str(row[3]) for row in db.execute("EXPLAIN QUERY PLAN " + sql, values))


BY_POSITION = "SEARCH message USING INTEGER PRIMARY KEY"
BY_PARTITION = "INDEX message_partition (queue_id=? AND partition=? AND rowid>? AND rowid<?)"


@pytest.mark.parametrize("file", [file for file in FILES if file != "log"])  # whose parts are put together
def test_every_statement_prepares_and_none_scans_a_table(schema: apsw.Connection, file: str) -> None:
    for name, sql in load_statements("skep.store.sqlite", file).items():
        found = plan(schema, sql)
        if file == "put_right" and name.startswith(("shift_", "stamp_", "cut_")):
            continue  # done once after a clock was put back: it may look at everything
        # A scan may only go from the left edge of a history, or over an index of its own.
        grows = [
            step
            for step in found.split(" | ")
            if re.match(r"SCAN (message|partition_lease|set_lease|dedup|receipt|entity|entity_event|e|v)$", step)
        ]
        assert not grows, f"{file}.{name}: {found}"
        assert "TEMP B-TREE" not in found or (file, name) in MAY_SORT, f"{file}.{name}: {found}"


@pytest.mark.parametrize(
    ("source", "step", "walk"),
    [
        ("range", "SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", BY_POSITION),
        ("range_of_partitions", f"USING COVERING {BY_PARTITION}", BY_POSITION),
        ("range_of_partition", f"SEARCH n USING COVERING {BY_PARTITION}", f"SEARCH message USING {BY_PARTITION}"),
    ],
)
def test_ranges_of_the_log_are_read_by_an_index(schema: apsw.Connection, source: str, step: str, walk: str) -> None:
    parts = load_statements("skep.store.sqlite", "log")
    columns = ", ".join(parts[name] for name in LOG_SCHEMA.names)
    for sql in (
        f"{parts['shape']} {parts[source]}",
        f"SELECT {columns} {parts[source]}",
        f"{parts['fitting']} {parts[source]})",
    ):
        found = plan(schema, sql)
        assert step in found
        assert walk in found, "in whose order the values are put together"


@pytest.mark.parametrize(("file", "name"), list(HOT))
def test_hot_statements_ride_their_index(schema: apsw.Connection, file: str, name: str) -> None:
    assert HOT[file, name] in plan(schema, load_statements("skep.store.sqlite", file)[name])


def test_a_savepoint_takes_back_what_memory_knows(schema: apsw.Connection) -> None:
    session = Session(schema)
    schema.execute("BEGIN IMMEDIATE")
    queue = make_queue(session, KEY, QueueSettings(), NOW)
    group = session.make_group(queue, "g", 0, NOW)

    with suppress(ZeroDivisionError), session.savepoint():
        group.completed += 1
        session.touch_group(group)
        raise ZeroDivisionError

    assert session.group(session.queue(KEY), "g").completed == 0
    schema.execute("ROLLBACK")


async def test_nothing_of_a_deleted_queue_is_left(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    await store.push([batch(b"1", b"2")], NOW)
    await store.forget(KEY, None, [SeqRange(1, 1)], Seq(0), 10, NOW)
    await store.delete_queue(KEY, NOW)
    while (await store.sweep(NOW, 1_000)).more:
        pass
    await store.close()

    with closing(apsw.Connection(str(tmp_path / "skep.db"))) as db:
        tables = [str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        of_queues = [
            name for name in tables if "queue_id" in {column[1] for column in db.execute(f"PRAGMA table_info({name})")}
        ]
        left = [name for name in of_queues if db.execute(f"SELECT count(*) FROM {name}").get]
    assert "forgotten" in of_queues
    assert left == []
