"""Where the connection that writes is used: on the event loop, and in its thread for what would keep the loop from others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from skep.clock import ManualClock
from skep.ids import IdMint
from skep.model import NewMessage, Outcome, PopRequest, PushBatch, QueueKey, QueueSettings, Token
from skep.store.sqlite import SqliteStore, writer
from skep.store.sqlite import store as store_module
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.session import Session

KEY = QueueKey("orders")
CLOCK = ManualClock()
MINT = IdMint(CLOCK)
NOW = CLOCK.now()


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

    await store.push([batch(*[b"x"] * store_module.MANY_MESSAGES)], NOW)

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

    first = asyncio.create_task(store._writer.call(lambda _: long("first long")))
    await asyncio.to_thread(begun.wait)
    short = asyncio.create_task(store._writer.call(lambda _: order.append("short"), short=True))
    second = asyncio.create_task(store._writer.call(lambda _: long("second long")))
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
