"""Where the connection that writes is used: on the event loop, and in its thread for what would keep the loop from others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from skep.clock import Instant, ManualClock
from skep.ids import IdMint
from skep.model import NewMessage, Outcome, PopRequest, PushBatch, QueueChanges, QueueKey, QueueSettings, Token
from skep.store import pieces
from skep.store.sqlite import SqliteStore, push, retain, writer
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.database import MANY_MESSAGES, chore, written
from skep.store.sqlite.session import Session

KEY = QueueKey("orders")
CLOCK = ManualClock()
MINT = IdMint(CLOCK)
NOW = CLOCK.now()
LATER = Instant(NOW + 10_000_000)


def batch(*payloads: bytes) -> PushBatch:
    return PushBatch([NewMessage(KEY, payload) for payload in payloads], MINT.mint_many(len(payloads)))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "skep.db")
    await store.open()
    await store.create_queue(KEY, QueueSettings(), NOW)
    yield store
    await store.close()


def session_of(store: SqliteStore) -> Session:
    assert store._writer is not None
    return store._writer._session


def committing_threads(store: SqliteStore) -> list[int]:
    """Where commits are made from now on."""
    threads: list[int] = []

    def commits() -> bool:
        threads.append(threading.get_ident())
        return False

    session_of(store).db.set_commit_hook(commits)
    return threads


async def test_a_short_call_is_written_and_committed_on_the_loop(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLOW_COMMIT_SECONDS", 60)  # whatever the disk of this machine does
    threads = committing_threads(store)

    await store.push([batch(b"x")], NOW)

    assert threads == [threading.get_ident()]


async def test_a_commit_is_waited_for_in_the_thread_once_the_disk_is_slow(store: SqliteStore) -> None:
    threads = committing_threads(store)
    assert store._writer is not None
    store._writer._commit_seconds = 1.0

    await asyncio.gather(*(store.push([batch(b"x")], NOW) for _ in range(3)))

    assert threads
    assert threading.get_ident() not in threads


async def test_a_call_that_touches_many_messages_is_made_in_the_thread(store: SqliteStore) -> None:
    threads = committing_threads(store)

    await store.push([batch(*[b"x"] * MANY_MESSAGES)], NOW)

    assert threads
    assert threading.get_ident() not in threads


async def test_the_loop_goes_on_while_another_process_holds_the_file(store: SqliteStore, tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "skep.db"))
    other.execute("BEGIN IMMEDIATE")
    pushing = asyncio.create_task(store.push([batch(b"x")], NOW))
    async with asyncio.timeout(20):
        assert await store.get_queue(KEY) is not None, "readers answer"
    assert not pushing.done()

    other.execute("ROLLBACK")
    other.close()
    (outcome,) = await pushing
    assert [result.seq for result in outcome.results] == [1]


async def test_short_calls_wait_for_a_long_one_and_come_before_the_next(store: SqliteStore) -> None:
    assert store._writer is not None
    begun, goes_on = threading.Event(), threading.Event()
    order: list[str] = []

    def long(name: str) -> None:
        order.append(name)
        begun.set()
        goes_on.wait(30)

    first = store._writer.call(lambda _: long("first long"))
    await asyncio.to_thread(begun.wait)
    short = store._writer.call(lambda _: order.append("short"), short=True)
    second = store._writer.call(lambda _: long("second long"))
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(first, short, second)

    assert order == ["first long", "short", "second long"]


async def test_the_write_ahead_log_begins_anew_however_steadily_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = 0
    end = Checkpoints.end

    def counted(checkpoints: Checkpoints) -> None:
        nonlocal ended
        end(checkpoints)
        ended += 1

    monkeypatch.setattr(Checkpoints, "end", counted)
    store = SqliteStore(tmp_path / "skep.db", checkpoint_pages=20)
    await store.open()
    checkpoints = session_of(store).checkpoints
    assert checkpoints is not None
    begins = 0
    async with asyncio.timeout(60):
        while begins < 3:
            before, pages = ended, checkpoints._log_pages
            await asyncio.gather(*(store.push([batch(b"x" * 4_000)], NOW) for _ in range(3)))
            begins += ended > before and checkpoints._log_pages < max(pages, 20)
    await store.close()


async def test_statements_are_planned_once_and_not_for_every_value(store: SqliteStore) -> None:
    planned: list[str | None] = []

    def may(action: int, *about: str | None) -> int:
        """Asked while a statement is planned, and only then."""
        planned.append(about[0])
        return apsw.SQLITE_OK

    async def cycle() -> None:
        await store.push([batch(b"1", b"2", b"3")], NOW, True)
        [result] = await store.pop([PopRequest(queue=KEY, token=Token(bytes(MINT.mint())), batch=3)], NOW)
        await store.settle([one.settlement(Outcome.ACK) for one in result.deliveries], NOW)

    session_of(store).db.authorizer = may
    await cycle()
    assert "message" in planned
    planned.clear()
    await cycle()

    assert planned == []


@pytest.fixture
async def doomed(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """A store in which retention has 40 messages to delete, in pieces of 4."""
    monkeypatch.setattr(pieces, "FIRST", 4)
    monkeypatch.setattr(pieces, "LEAST", 1)
    monkeypatch.setattr(store._pieces, "took", lambda *_: None)
    await store.push([batch(*[b"x"] * 40)], NOW)
    await store.update_queue(KEY, QueueChanges(retention_seconds=1.0, retention_ignores_groups=True), NOW)
    return store


async def retained(store: SqliteStore) -> int:
    """Let retention run to its end; how many pieces it took."""
    count = 1
    while (await store.retain(KEY, LATER, 1_000)).more:
        count += 1
    return count


async def test_callers_come_between_the_pieces_of_a_chore(doomed: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    pushing: list[asyncio.Task[object]] = []
    delete, append = retain.retain, push.push

    def a_piece(*args: Any) -> Any:
        order.append("piece")
        pushing.append(asyncio.get_running_loop().create_task(doomed.push([batch(b"y")], LATER)))
        return delete(*args)

    def a_push(*args: Any) -> Any:
        order.append("push")
        return append(*args)

    monkeypatch.setattr(SqliteStore, "retain", chore(a_piece))
    monkeypatch.setattr(SqliteStore, "push", written(a_push, lambda *_: 1))
    waiting = [asyncio.create_task(doomed.retain(KEY, LATER, 1_000)) for _ in range(4)]

    await asyncio.gather(*waiting)
    await asyncio.gather(*pushing)

    assert order == ["piece", "push"] * 4, "who came during a piece is served before the next, however many wait"


async def test_a_chore_comes_to_its_end_though_callers_always_wait(doomed: SqliteStore) -> None:
    done = asyncio.Event()

    async def push_on() -> None:
        while not done.is_set():
            await doomed.push([batch(b"y")], LATER)

    callers = [asyncio.create_task(push_on()) for _ in range(3)]
    async with asyncio.timeout(60):
        count = await retained(doomed)
    done.set()
    await asyncio.gather(*callers)

    assert count == 10


async def test_while_callers_are_about_the_next_piece_leaves_them_time(
    doomed: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CALLERS_SECONDS", 1e9)
    monkeypatch.setattr(writer, "REST", 1e9)
    await doomed.retain(KEY, LATER, 1_000)
    second = asyncio.create_task(doomed.retain(KEY, LATER, 1_000))

    for _ in range(10):
        await doomed.push([batch(b"y")], LATER)
    assert not second.done()

    await doomed.close()
    assert (await second).done == 4, "nothing rests when the store is closed"


async def test_where_callers_take_long_a_piece_may_take_longer_so_that_chores_keep_up(doomed: SqliteStore) -> None:
    assert doomed._writer is not None
    told = []
    doomed._pieces.took = lambda *_: told.append(doomed._pieces.seconds)  # type: ignore[method-assign]
    for callers_seconds in (0.0, 0.008, 1.0):
        doomed._writer._callers_seconds = callers_seconds
        await doomed.retain(KEY, LATER, 1_000)

    assert told == [writer.PIECE_SECONDS, 0.004, writer.LONGEST_PIECE_SECONDS]


async def test_only_callers_say_how_long_callers_take(doomed: SqliteStore) -> None:
    assert doomed._writer is not None
    doomed._writer._callers_seconds = -1.0
    await doomed.retain(KEY, LATER, 1_000)
    assert doomed._writer._callers_seconds == -1.0

    await doomed.push([batch(b"y")], LATER)
    assert doomed._writer._callers_seconds > 0


async def test_with_nobody_about_pieces_follow_each_other_at_once(
    doomed: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CALLERS_SECONDS", -1e9)
    monkeypatch.setattr(writer, "REST", 1e9)

    async with asyncio.timeout(60):
        assert await retained(doomed) == 10


async def test_a_piece_runs_on_the_loop_unless_its_kind_takes_long(
    doomed: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLOW_COMMIT_SECONDS", 60)
    monkeypatch.setattr(writer, "CALLERS_SECONDS", -1e9)
    threads = committing_threads(doomed)
    await doomed.retain(KEY, LATER, 1_000)
    assert threads == [threading.get_ident()]

    doomed._pieces._long.add("retain")
    await doomed.retain(KEY, LATER, 1_000)
    assert threads[1:]
    assert threading.get_ident() not in threads[1:]


async def test_what_a_piece_did_is_there_when_the_store_is_opened_again(doomed: SqliteStore, tmp_path: Path) -> None:
    await doomed.retain(KEY, LATER, 1_000)
    await doomed.retain(KEY, LATER, 1_000)
    await doomed.close()

    again = SqliteStore(tmp_path / "skep.db")
    await again.open()
    assert (await again.log_bounds(KEY)).first_seq == 9
    await again.close()


async def test_callers_do_not_wait_while_the_log_is_moved_that_is_about_to_be_cut(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves, goes_on = threading.Event(), threading.Event()
    move = Checkpoints._move

    def moved(checkpoints: Checkpoints) -> None:
        moves.set()
        goes_on.wait(30)
        move(checkpoints)

    monkeypatch.setattr(Checkpoints, "_move", moved)
    session_of(store).cut_log_soon()
    chores = asyncio.create_task(store.maintain())
    assert await asyncio.to_thread(moves.wait, 30)
    async with asyncio.timeout(20):
        await store.push([batch(b"x")], NOW)
    assert not chores.done()

    goes_on.set()
    await chores
    assert (tmp_path / "skep.db-wal").stat().st_size == 0


async def test_maintain_asks_nothing_of_a_connection_that_is_at_work_in_the_thread(store: SqliteStore) -> None:
    assert store._writer is not None
    begun, goes_on = threading.Event(), threading.Event()

    def pause(*_: object) -> int:
        begun.set()
        goes_on.wait(30)
        return 0

    session_of(store).db.create_scalar_function("pause", pause)
    at_work = store._writer.call(lambda session: session.row("SELECT pause()"))
    assert await asyncio.to_thread(begun.wait, 30)

    await store._writer.cut_log_if_due()

    goes_on.set()
    await at_work


async def test_chores_do_not_wait_for_a_time_that_the_clock_showed_by_mistake(store: SqliteStore) -> None:
    """Seen once: the end of a rest lay weeks ahead, so all chores waited, and the server did not stop."""
    assert store._writer is not None
    store._writer._rest_ends_at = time.perf_counter() + 1_000_000

    async with asyncio.timeout(60):
        await store.sweep(NOW, 10)
