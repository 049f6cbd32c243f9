"""The log in bulk: columns in, ranges out, with the same rules as one message at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest

from skep.columns import LOG_SCHEMA, NewRows
from skep.errors import Code, SkepError
from skep.ids import id_text
from skep.model import DEFAULT_PARTITION, Ordering, Seq
from tests.contract.driver import Driver

MANY = 1_000_000


def rows(driver: Driver, *messages: tuple[str, bytes]) -> NewRows:
    """Columns of partitions and payloads, with fresh ids."""
    partitions, payloads = zip(*messages, strict=True)
    return NewRows(
        pa.array([partition.encode() for partition in partitions], pa.large_binary()),
        pa.array(payloads, pa.large_binary()),
        driver.mint.mint_range(len(messages)),
    )


async def read(
    driver: Driver, first: int = 1, last: int = MANY, max_rows: int = 100, max_bytes: int = MANY
) -> pa.Table:
    batch = await driver.store.read_log(driver.key(), Seq(first), Seq(last), max_rows, max_bytes)
    batch.validate(full=True)
    assert batch.schema == LOG_SCHEMA
    return pa.Table.from_batches([batch])


async def test_columns_become_messages_in_their_order(driver: Driver) -> None:
    new = rows(driver, ("é", b"1"), ("b", b'{"x": "\xc3\xa9"}'), ("é", b""))

    appended = await driver.store.push_rows(driver.key(), new, driver.now)

    assert (appended.first_seq, appended.last_seq, appended.depth.depth) == (1, 3, 3)
    popped = await driver.pop(batch=10)
    assert sorted((d.seq, d.partition, d.payload) for d in popped) == [
        (1, "é", b"1"), (2, "b", b'{"x": "\xc3\xa9"}'), (3, "é", b""),
    ]  # fmt: skip
    assert {d.seq: bytes(d.id) for d in popped} == {n + 1: bytes(id_) for n, id_ in enumerate(new.ids())}


async def test_bulk_and_single_pushes_share_one_log(driver: Driver) -> None:
    await driver.push("first")
    appended = await driver.store.push_rows(driver.key(), rows(driver, ("a", b"2"), ("a", b"3")), driver.now)
    [last] = await driver.push("last")

    assert (appended.first_seq, appended.last_seq, last.seq) == (2, 3, 4)


async def test_I15_a_bulk_push_beyond_max_depth_stores_nothing(driver: Driver) -> None:
    await driver.create(max_depth=2)

    with pytest.raises(SkepError) as refused:
        await driver.store.push_rows(driver.key(), rows(driver, *[("a", b"1")] * 3), driver.now)

    assert refused.value.code is Code.QUEUE_FULL
    assert (await read(driver)).num_rows == 0
    assert (
        await driver.store.push_rows(driver.key(), rows(driver, *[("a", b"1")] * 2), driver.now)
    ).depth.remaining == 0


async def test_a_bulk_push_makes_the_queue_unless_told_not_to(driver: Driver) -> None:
    with pytest.raises(SkepError) as refused:
        await driver.store.push_rows(driver.key(), rows(driver, ("a", b"1")), driver.now, create_queue=False)
    assert refused.value.code is Code.QUEUE_NOT_FOUND

    assert (await driver.store.push_rows(driver.key(), rows(driver, ("a", b"1")), driver.now)).last_seq == 1


async def test_a_fifo_queue_has_one_partition_in_bulk_too(driver: Driver) -> None:
    await driver.create(ordering=Ordering.FIFO)
    await driver.store.push_rows(driver.key(), rows(driver, ("a", b"1"), ("b", b"2")), driver.now)

    assert (await read(driver))["partition"].to_pylist() == [DEFAULT_PARTITION] * 2


async def test_a_bulk_message_is_found_by_its_trace_though_it_was_stored_late(driver: Driver) -> None:
    new = rows(driver, ("a", b"1"))
    driver.clock.advance(3600)
    await driver.store.push_rows(driver.key(), new, driver.now)

    found = await driver.store.trace(driver.tenant, bytes(new.ids()[0]), 10)  # type: ignore[arg-type] # bytes are ids

    assert [message.seq for message in found] == [1]


async def test_the_log_is_read_as_it_was_written(driver: Driver) -> None:
    await driver.push("one", transaction_id="t-1", headers=b'{"a":"b"}', partition="p")
    await driver.push("two", content_type="text/plain")

    table = await read(driver)

    first, second = table.to_pylist()
    stored = await driver.store.message(driver.key(), Seq(1))
    assert stored is not None
    assert (first["queue"], first["partition"], first["seq"], first["transaction_id"]) == ("q", "p", 1, "t-1")
    assert (first["payload"], first["headers"], first["content_type"]) == (b"one", '{"a":"b"}', None)
    assert (first["message_id"], first["trace_id"]) == (id_text(stored.id), id_text(stored.trace_id))
    assert first["created_at"].timestamp() == stored.created_at / 1e6
    assert (second["content_type"], second["headers"], second["transaction_id"]) == ("text/plain", None, None)


async def test_a_range_is_both_ends_included_and_bounded_by_rows_and_bytes(driver: Driver) -> None:
    await driver.store.push_rows(driver.key(), rows(driver, *[("a", b"12345")] * 10), driver.now)

    assert (await read(driver, 3, 5))["seq"].to_pylist() == [3, 4, 5]
    assert (await read(driver, 3, max_rows=2))["seq"].to_pylist() == [3, 4]
    assert (await read(driver, 3, max_bytes=11))["seq"].to_pylist() == [3, 4, 5]
    assert (await read(driver, 3, max_bytes=1))["seq"].to_pylist() == [3]
    assert (await read(driver, 11)).num_rows == 0


async def test_bounds_say_what_the_log_holds(driver: Driver) -> None:
    await driver.create()
    empty = await driver.store.log_bounds(driver.key())
    await driver.push("one", "two")

    bounds = await driver.store.log_bounds(driver.key())

    assert (empty.first_seq, empty.last_seq, empty.last_at) == (1, 0, None)
    assert (bounds.first_seq, bounds.last_seq, bounds.last_at) == (1, 2, driver.now)
