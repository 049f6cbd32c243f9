"""The log in bulk: columns in, ranges out, with the same rules as one message at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skep.arrow.log import LogPiece, LogRange, NewRows
from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import DEFAULT_PARTITION, LOG_CHUNK, ClearScope, Ordering, Seq
from skep.store.postgres.log import SLICE_ROWS
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


async def piece(
    driver: Driver, first: int = 1, last: int = MANY, max_rows: int = 100, max_bytes: int = MANY, **wanted: Any
) -> LogPiece:
    within = LogRange(first=Seq(first), last=Seq(last), max_rows=max_rows, max_bytes=max_bytes, **wanted)
    found = await driver.store.read_log(driver.key(), within)
    found.batch.validate(full=True)
    assert found.batch.schema == within.schema
    return found


async def read(driver: Driver, *args: int, **wanted: Any) -> pa.Table:
    return pa.Table.from_batches([(await piece(driver, *args, **wanted)).batch])


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
    assert (first["partition"], first["seq"], first["transaction_id"]) == ("p", 1, "t-1")
    assert (first["payload"], first["headers"], first["content_type"]) == (b"one", '{"a":"b"}', None)
    assert (first["message_id"], first["trace_id"]) == (bytes(stored.id), bytes(stored.trace_id))
    assert first["created_at"].timestamp() == stored.created_at / 1e6
    assert (second["content_type"], second["headers"], second["transaction_id"]) == ("text/plain", None, None)


async def test_a_range_is_both_ends_included_and_bounded_by_rows_and_bytes(driver: Driver) -> None:
    await driver.store.push_rows(driver.key(), rows(driver, *[("a", b"12345")] * 10), driver.now)

    assert (await read(driver, 3, 5))["seq"].to_pylist() == [3, 4, 5]
    assert (await read(driver, 3, max_rows=2))["seq"].to_pylist() == [3, 4]
    assert (await read(driver, 3, max_bytes=11))["seq"].to_pylist() == [3, 4, 5]
    assert (await read(driver, 3, max_bytes=1))["seq"].to_pylist() == [3]
    assert (await read(driver, 11)).num_rows == 0


async def test_a_long_piece_is_one_though_it_is_read_by_several_statements(driver: Driver) -> None:
    await driver.create()
    count = 2 * LOG_CHUNK + 600
    await driver.store.push_rows(
        driver.key(), rows(driver, *((f"p{n % 7}", b"%d" % n) for n in range(count - 1))), driver.now
    )
    await driver.push("last", trace_id=driver.mint.mint())  # of whose columns others have nothing
    found = await read(driver, 1, count, max_rows=count)
    assert found.column("seq").to_pylist() == list(range(1, count + 1))
    assert found.column("payload").to_pylist() == [*(b"%d" % n for n in range(count - 1)), b"last"]
    most = LOG_CHUNK + 100
    assert (await read(driver, 3, count, max_rows=most)).column("seq").to_pylist() == list(range(3, 3 + most))


async def test_what_lies_behind_a_long_gap_is_read(driver: Driver) -> None:
    count = 3 * SLICE_ROWS
    await driver.push(*map(str, range(count)))
    await driver.reject(*await driver.pop(batch=count))
    await driver.purge(seqs=[Seq(seq) for seq in range(2, 2 * SLICE_ROWS + 3)])

    within = LogRange(first=Seq(1), last=Seq(count), max_rows=count, max_bytes=MANY)
    found = (await driver.store.read_log(driver.key("q.dead"), within)).batch

    assert found["seq"].to_pylist() == [1, *range(2 * SLICE_ROWS + 3, count + 1)]


async def test_short_and_long_payloads_are_read_on_from_piece_to_piece(driver: Driver) -> None:
    await driver.create()
    sizes = {299: 250_000, **dict.fromkeys(range(700, 800), 2_000), 1_100: 90_000}
    payloads = [b"%d" % n + b"." * sizes.get(n, 0) for n in range(1_199)]
    await driver.store.push_rows(driver.key(), rows(driver, *(("p", one) for one in payloads)), driver.now)
    await driver.push("last", transaction_id="t")

    found, through = [], 0
    while through < len(payloads) + 1:
        part = await piece(driver, through + 1, len(payloads) + 1, max_rows=5_000, max_bytes=100_000)
        assert part.batch.num_rows
        assert len(b"".join(part.batch["payload"].to_pylist()[:-1])) <= 100_000
        found += part.batch.to_pylist()
        through = part.through

    assert [row["seq"] for row in found] == list(range(1, len(payloads) + 2))
    assert [row["payload"] for row in found] == [*payloads, b"last"]
    assert [row["transaction_id"] for row in found if row["transaction_id"]] == ["t"]


async def test_bounds_say_what_the_log_holds(driver: Driver) -> None:
    await driver.create()
    empty = await driver.store.log_bounds(driver.key())
    await driver.push("one", "two")

    bounds = await driver.store.log_bounds(driver.key())

    assert (empty.first_seq, empty.last_seq, empty.last_at) == (1, 0, None)
    assert (bounds.first_seq, bounds.last_seq, bounds.last_at) == (1, 2, driver.now)


async def test_the_bounds_of_many_logs_are_those_of_each_and_a_queue_that_is_not_there_is_left_out(
    driver: Driver,
) -> None:
    await driver.create("empty")
    await driver.create("kept")
    await driver.push("one", "two", queue="kept")
    await driver.create("cleared")
    await driver.push("one", queue="cleared")
    await driver.clear(ClearScope.ALL, queue="cleared")
    await driver.create("deleted")
    await driver.delete("deleted")
    names = ["kept", "never", "cleared", "deleted", "empty"]

    found = await driver.store.bounds_of_logs(driver.key().tenant, names)

    there = [name for name in names if name not in ("never", "deleted")]
    assert found == {name: await driver.store.log_bounds(driver.key(name)) for name in there}
    assert (found["kept"].last_seq, found["cleared"].first_seq, found["empty"].last_seq) == (2, 2, 0)
    assert await driver.store.bounds_of_logs("another tenant", names) == {}


async def test_a_queue_that_was_made_anew_has_another_log_and_one_that_was_changed_has_not(driver: Driver) -> None:
    created_at = (await driver.create()).created_at
    driver.clock.advance(1)
    await driver.update(priority=3)
    await driver.push("one")
    await driver.clear(ClearScope.ALL)
    kept = await driver.store.log_bounds(driver.key())
    await driver.delete()

    await driver.push("one")

    assert kept.created_at == created_at
    assert (await driver.store.log_bounds(driver.key())).created_at == driver.now > created_at


async def test_only_the_columns_that_are_asked_for_come_and_in_that_order(driver: Driver) -> None:
    await driver.push("one", transaction_id="t", partition="p")

    table = await read(driver, columns=("payload", "transaction_id", "seq"))

    assert table.to_pylist() == [{"payload": b"one", "transaction_id": "t", "seq": 1}]


async def test_only_the_partitions_that_are_asked_for_come_in_the_order_of_the_log(driver: Driver) -> None:
    await driver.store.push_rows(
        driver.key(), rows(driver, *[(p, b"%d" % n) for n, p in enumerate("abcabcé")]), driver.now
    )

    some = await piece(driver, partitions=("é", "c", "a", "none"))
    cut = await piece(driver, partitions=("c", "a"), max_rows=3)
    rest = await piece(driver, first=cut.through + 1, partitions=("c", "a"))
    none = await piece(driver, partitions=("none",))

    assert some.batch["seq"].to_pylist() == [1, 3, 4, 6, 7]
    assert (cut.batch["seq"].to_pylist(), cut.through) == ([1, 3, 4], 4)
    assert (rest.batch["payload"].to_pylist(), rest.through) == ([b"5"], 7)
    assert (none.batch.num_rows, none.through) == (0, 7)


async def test_one_partition_comes_in_pieces_that_follow_each_other(driver: Driver) -> None:
    letters = "abacbabaca"
    await driver.store.push_rows(
        driver.key(), rows(driver, *[(p, b"%d" % n) for n, p in enumerate(letters)]), driver.now
    )
    found, throughs, through = [], [], 0

    while through < len(letters):
        part = await piece(driver, first=through + 1, last=len(letters), partitions=("a",), max_rows=2)
        found += part.batch["seq"].to_pylist()
        through = part.through
        throughs.append(through)

    assert found == [1, 3, 6, 8, 10]
    assert throughs == [3, 8, 10]


async def test_a_long_payload_among_short_ones_of_a_partition_is_whole(driver: Driver) -> None:
    payloads = [b"1", b"long" * 20, b"3"]
    await driver.store.push_rows(driver.key(), rows(driver, *[("a", payload) for payload in payloads]), driver.now)

    found = await piece(driver, partitions=("a",), max_bytes=300)  # 3 bytes for each of 100 rows

    assert found.batch["payload"].to_pylist() == payloads


async def test_what_differs_from_message_to_message_is_read_and_gaps_are_seen(driver: Driver) -> None:
    await driver.push("a", headers=b"{}", content_type="text/plain")
    await driver.reject(*await driver.pop())
    driver.clock.advance(1)
    for number in range(3):
        await driver.push(f"{number}", partition="p", transaction_id=f"t{number}" if number else None)
        await driver.reject(*await driver.pop())
        driver.clock.advance(1)
    await driver.purge(seqs=[Seq(2)])

    within = LogRange(first=Seq(1), last=Seq(9), max_rows=9, max_bytes=MANY)
    found = (await driver.store.read_log(driver.key("q.dead"), within)).batch

    assert found["seq"].to_pylist() == [1, 3, 4]
    assert found["transaction_id"].to_pylist() == [None, "t1", "t2"]
    assert found["headers"].to_pylist() == ["{}", None, None]
    assert found["content_type"].to_pylist() == ["text/plain", None, None]
    stored = [await driver.store.message(driver.key("q.dead"), Seq(seq)) for seq in (1, 3, 4)]
    assert found["trace_id"].to_pylist() == [bytes(m.trace_id) for m in stored if m]
    assert [at.timestamp() for at in found["created_at"].to_pylist()] == [m.created_at / 1e6 for m in stored if m]


async def test_a_range_that_retention_took_is_empty_and_ends(driver: Driver) -> None:
    await driver.create(retention_seconds=10.0)
    await driver.push("a", "b", "c")
    await driver.ack(*(await driver.pop(batch=2)))
    driver.clock.advance(20)
    await driver.retain()

    assert (await piece(driver, 1, 2)).through == 2
    assert (await read(driver, 1, 3))["seq"].to_pylist() == [3]


async def test_a_seq_is_found_by_time(driver: Driver) -> None:
    before = driver.now
    await driver.push("a", "b")
    driver.clock.advance(10)
    await driver.push("c")

    async def at(instant: int) -> int:
        return (await driver.store.first_seqs_at(driver.key().tenant, ["q"], Instant(instant)))["q"]

    assert [await at(before), await at(before + 1), await at(driver.now), await at(driver.now + 1)] == [1, 3, 3, 4]


async def test_payloads_fit_up_to_a_seq_and_one_always_does(driver: Driver) -> None:
    await driver.push("12345", "12345", "1", "1234567890", "1")

    async def through(first: int, max_bytes: int, max_rows: int = 100) -> int:
        return (await driver.store.last_seqs_within(driver.key().tenant, {"q": Seq(first)}, max_bytes, max_rows))["q"]

    assert [await through(1, n) for n in (1, 5, 9, 10, 11, 20, 21, 22, 99)] == [1, 1, 1, 2, 3, 3, 4, 5, 5]
    assert [await through(4, 1), await through(4, 11), await through(6, 1)] == [4, 5, 5]
    assert await through(1, 99, max_rows=3) == 3


async def test_positions_in_many_logs_are_those_of_each_and_a_queue_that_is_not_there_is_left_out(
    driver: Driver,
) -> None:
    tenant, names = driver.key().tenant, ["b", "none", "a", "empty"]
    await driver.create("empty")
    await driver.push("1", "22", "333", queue="a")
    driver.clock.advance(10)
    await driver.push("1", queue="b")
    await driver.push("4444", queue="a")

    times = await driver.store.first_seqs_at(tenant, names, driver.now)
    sizes = await driver.store.last_seqs_within(
        tenant, {"b": Seq(1), "none": Seq(1), "a": Seq(2), "empty": Seq(1)}, 5, 100
    )

    assert times == {"a": 4, "b": 1, "empty": 1}
    assert sizes == {"a": 3, "b": 1, "empty": 0}
    assert await driver.store.first_seqs_at("another tenant", names, driver.now) == {}


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_the_progress_of_a_group_in_many_logs_is_that_of_its_figures(driver: Driver, ordering: Ordering) -> None:
    for queue in ("a", "b", "other"):
        await driver.create(queue, ordering=ordering)
        await driver.push("1", "2", "3", queue=queue, partition="p")
    await driver.ack(await driver.pop_one("a", group="g"))
    await driver.pop_one("a", group="g")
    await driver.store.report_progress(driver.key("b"), "g", Seq(2), driver.now)

    found = await driver.store.progress_of_logs(driver.key().tenant, ["other", "b", "a", "none"], "g")

    assert found == {queue: (await driver.stats(queue, group="g")).progress_seq for queue in ("a", "b")}
    assert found["b"] == 2
