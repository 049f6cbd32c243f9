"""Messages that a pop has read when it discovered them: which it may hand out without reading them again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.clock import ManualClock
from skep.store.sqlite import SqliteStore
from skep.store.sqlite.pop_state import AtHand
from tests.contract.driver import Driver

MESSAGES = 20


def message(position: int, partition: str, payload: bytes) -> tuple[Any, ...]:
    return (position, 0, 0, b"", partition, None, None, None, None, payload)


def test_all_that_a_partition_has_pending_is_at_hand() -> None:
    at_hand = AtHand(100)
    for position in (1, 2):
        at_hand.keep(message(position, "p", b"x"))

    assert [row[0] for row in at_hand.take("p", 0, 2) or []] == [1, 2]
    assert at_hand.take("p", 0, 2) is None


@pytest.mark.parametrize("pending", [1, 3])
def test_of_a_partition_with_more_or_less_pending_nothing_is(pending: int) -> None:
    at_hand = AtHand(100)
    for position in (1, 2):
        at_hand.keep(message(position, "p", b"x"))

    assert at_hand.take("p", 0, pending) is None


def test_what_is_delivered_or_expired_already_is_not_at_hand() -> None:
    at_hand = AtHand(100)
    for position in (1, 2):
        at_hand.keep(message(position, "p", b"x"))

    assert [row[0] for row in at_hand.take("p", 1, 1) or []] == [2]


def test_no_more_is_kept_than_there_is_room_for() -> None:
    at_hand = AtHand(10)
    at_hand.keep(message(1, "p", b"123456"))
    at_hand.keep(message(2, "q", b"12345"))
    at_hand.keep(message(3, "p", b"1"))

    assert at_hand.take("q", 0, 1) is None
    assert at_hand.take("p", 0, 2) is None


@pytest.fixture
async def driver(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Driver]:
    store = SqliteStore(tmp_path_factory.mktemp("store") / "skep.db")
    await store.open()
    yield Driver(store, ManualClock(), "tenant")
    await store.close()


async def test_a_pop_reads_what_was_just_pushed_once(driver: Driver) -> None:
    store = driver.store
    assert isinstance(store, SqliteStore)
    await driver.push_messages(*(driver.message(str(n), partition=str(n)) for n in range(MESSAGES)))
    statements: list[str] = []

    def executed(_: object, sql: str, __: object) -> bool:
        statements.append(sql)
        return True

    def trace(session: Any) -> None:
        session.db.exec_trace = executed

    await store._write(trace)
    found = await driver.pop(batch=MESSAGES)

    assert len(found) == MESSAGES
    assert len([sql for sql in statements if "FROM message" in sql]) == 1
