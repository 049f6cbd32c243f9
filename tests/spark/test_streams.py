"""The recipes of docs/streams.md: each file of `examples/streams`, from queue to queue, on a server whose clock the test moves.

Every second run begins without Spark's last note, as if the driver had been killed between the sink's commit and Spark's own.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import skep
from skep.clock import MICROS_PER_SECOND, ManualClock
from skep.spark.options import ServerConnection
from skep.spark.running.runner import RunPlan, run_pipelines
from skep.testing.server import RunningServer, running_server
from tests.spark.conftest import Lake
from tests.spark.test_stream import WAIT_SECONDS

RECIPES = Path(__file__).parents[2] / "examples" / "streams"
NOON = int(datetime.fromisoformat("2026-01-31T12:00:00Z").timestamp())
MINUTE, HOUR = 60, 3600


class Streams(Struct, frozen=True):
    """Spark beside a server whose clock stands at noon until it is moved."""

    spark: SparkSession
    client: skep.Client
    clock: ManualClock
    server: RunningServer
    folder: Path

    @property
    def connection(self) -> dict[str, str]:
        return {"url": self.server.url, "retrySeconds": "60"}

    def at(self, seconds: float, queue: str, payload: object, partition: str = "p") -> None:
        """Push a message so many seconds after noon."""
        self.clock.advance(seconds - (self.clock.now() / MICROS_PER_SECOND - NOON))
        self.client.push(queue, payload, partition=partition)

    def run(self, file: str) -> None:
        """Run a recipe over all there is. From the second time on, it goes on as after a crash."""
        recipe = runpy.run_path(str(RECIPES / file))
        if (self.folder / file).exists():
            forget_last_commit(self.folder / file)
        self.finish(recipe["query"](self.spark, **self.connection), file)

    def finish(self, writer: DataStreamWriter, checkpoint: str) -> None:
        """Run a query to the end of what is there. No row is dropped as late."""
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS)
        states = [state for progress in query.recentProgress for state in progress.stateOperators]
        assert [state.numRowsDroppedByWatermark for state in states] == [0] * len(states)

    def found(self, queue: str) -> list[Any]:
        """The payloads of a queue, in a fixed order: a stream gives its windows in any."""
        if queue not in [one.name for one in self.client.queues()]:
            return []
        return sorted((one.json() for one in self.client.messages(queue)), key=repr)


def forget_last_commit(checkpoint: Path) -> None:
    """Take back Spark's note that the last batch is done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    clock = ManualClock(NOON * MICROS_PER_SECOND)
    with running_server(clock=clock) as server, skep.Client(server.url) as client:
        yield Streams(spark, client, clock, server, tmp_path)


def window(start: str, end: str) -> dict[str, str]:
    return {"start": f"2026-01-31T{start}:00.000Z", "end": f"2026-01-31T{end}:00.000Z"}


@pytest.mark.slow
def test_totals_of_tumbling_windows(streams: Streams) -> None:
    for second, customer in ((0, "a"), (59.999999, "a"), (59.999999, "b"), (60, "a"), (119, "b")):
        streams.at(second, "orders", {"total": second // 1}, customer)

    streams.run("tumbling_windows.py")
    first = [
        {"minute": window("12:00", "12:01"), "orders": 1, "total": 59.0},
        {"minute": window("12:00", "12:01"), "orders": 2, "total": 59.0},
    ]
    assert streams.found("totals") == first

    streams.at(120, "orders", {"total": 7}, "c")
    streams.run("tumbling_windows.py")
    second_minute = [
        {"minute": window("12:01", "12:02"), "orders": 1, "total": 60.0},
        {"minute": window("12:01", "12:02"), "orders": 1, "total": 119.0},
    ]
    assert streams.found("totals") == sorted(first + second_minute, key=repr)
    assert {one.partition for one in streams.client.messages("totals")} == {"a", "b"}
    assert streams.client.group("totals", "orders").lag == 0


@pytest.mark.slow
def test_no_message_is_late_by_its_time_in_the_log_however_batches_are_cut(streams: Streams) -> None:
    streams.client.push("orders", [{"total": 1}] * 3, partition="a")  # all at the same microsecond
    for second in (59, 60, 60, 180):
        streams.at(second, "orders", {"total": 1}, "a")
    totals = runpy.run_path(str(RECIPES / "tumbling_windows.py"))["totals"]
    orders = streams.spark.readStream.format("skep").options(**streams.connection, maxOffsetsPerTrigger=1)

    writer = totals(orders.load("orders")).writeStream.format("skep").options(**streams.connection, queue="totals")
    streams.finish(writer, "one by one")

    assert [(one["minute"]["start"][11:16], one["orders"]) for one in streams.found("totals")] == [
        ("12:00", 4),
        ("12:01", 2),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "found"), [("total is not null", 1), ("partition != 'tick'", 0)])
def test_an_empty_message_closes_the_windows_of_a_quiet_queue(streams: Streams, kept: str, found: int) -> None:
    """With the condition that docs/streams.md names; the other one shows why it has to be that one."""
    streams.at(0, "orders", {"total": 1}, "a")
    streams.at(60, "orders", {}, "tick")
    orders = streams.spark.readStream.format("skep").options(**streams.connection).load("orders")
    windows = orders.withWatermark("created_at", "0 seconds").groupBy("partition", F.window("created_at", "1 minute"))
    totals = windows.agg(F.sum(F.get_json_object("payload", "$.total")).alias("total")).where(kept)
    rows = totals.select(F.to_json(F.struct("partition", "total")).alias("payload"))

    streams.client.configure("totals")
    writer = rows.writeStream.format("skep").options(**streams.connection, queue="totals")
    streams.finish(writer, "checkpoint")

    assert streams.found("totals") == [{"partition": "a", "total": 1.0}] * found


@pytest.mark.slow
def test_levels_of_sliding_windows(streams: Streams) -> None:
    for minute, celsius in ((0, 10), (20, 20), (40, 60)):
        streams.at(minute * MINUTE, "readings", {"celsius": celsius}, "roof")
    streams.at(75 * MINUTE, "readings", {"celsius": 0}, "roof")

    streams.run("sliding_windows.py")
    streams.run("sliding_windows.py")

    assert streams.found("levels") == [
        {"hour": window("11:15", "12:15"), "mean": 10.0, "highest": 10.0},
        {"hour": window("11:30", "12:30"), "mean": 15.0, "highest": 20.0},
        {"hour": window("11:45", "12:45"), "mean": 30.0, "highest": 60.0},
        {"hour": window("12:00", "13:00"), "mean": 30.0, "highest": 60.0},
        {"hour": window("12:15", "13:15"), "mean": 40.0, "highest": 60.0},
    ]


@pytest.mark.slow
def test_visits_of_session_windows(streams: Streams) -> None:
    for minute, visitor, page in ((0, "a", "home"), (5, "b", "help"), (29, "a", "cart"), (58, "a", "paid")):
        streams.at(minute * MINUTE, "clicks", {"page": page}, visitor)
    streams.run("session_windows.py")
    of_b = {"began": "2026-01-31T12:05:00.000Z", "ended": "2026-01-31T12:05:00.000Z", "clicks": 1, "first_page": "help"}
    assert streams.found("visits") == [of_b]

    streams.at(100 * MINUTE, "clicks", {"page": "home"}, "a")
    streams.run("session_windows.py")
    of_a = {"began": "2026-01-31T12:00:00.000Z", "ended": "2026-01-31T12:58:00.000Z", "clicks": 3, "first_page": "home"}
    assert streams.found("visits") == [of_a, of_b]


@pytest.mark.slow
def test_shifts_of_cron_windows(streams: Streams) -> None:
    """Noon is 13 o'clock in Berlin."""
    parts = [(0, True), (0.5, False), (1, True), (8.5, True), (9, True), (17, False)]
    for some in (parts[:4], parts[4:]):
        for hour, good in some:
            streams.at(hour * HOUR, "parts", {"good": good}, "lathe")
        streams.run("cron_windows.py")

    assert streams.found("shifts") == [
        {"shift": window("05:00", "13:00"), "parts": 2, "good": 1},
        {"shift": window("13:00", "21:00"), "parts": 2, "good": 2},
        {"shift": {**window("21:00", "00:00"), "end": "2026-02-01T05:00:00.000Z"}, "parts": 1, "good": 1},
    ]


@pytest.mark.slow
def test_late_orders_go_to_a_queue_of_their_own(streams: Streams) -> None:
    def made(minute: str, total: int, at: float) -> None:
        streams.at(at, "orders", {"total": total, "at": f"2026-01-31T{minute}Z"}, "a")

    made("12:00:10", 1, at=60)
    made("12:04:00", 2, at=300)
    streams.run("late_data.py")
    made("12:00:59", 3, at=650)  # ten minutes old at the most
    made("12:00:49", 4, at=650)
    made("23:59:00", 5, at=700)  # by a clock that is ahead: it counts as made when it came
    streams.at(750, "orders", {"total": 6})  # one without a time too
    streams.run("late_data.py")

    assert [one["total"] for one in streams.found("late")] == [4]
    assert [(one["minute"]["start"][11:16], one["orders"], one["total"]) for one in streams.found("totals")] == [
        ("12:00", 2, 4.0)  # what is up to ten minutes old at 12:12:30
    ]

    streams.at(2 * HOUR, "orders", {"total": 0}, "a")
    streams.run("late_data.py")

    assert [one["total"] for one in streams.found("late")] == [4]
    assert [(one["minute"]["start"][11:16], one["orders"], one["total"]) for one in streams.found("totals")] == [
        ("12:00", 2, 4.0),
        ("12:04", 1, 2.0),
        ("12:11", 1, 5.0),
        ("12:12", 1, 6.0),
    ]


def test_repeated_orders_go_on_once(streams: Streams) -> None:
    for minute, number in ((0, 1), (1, 2), (2, 1), (59, 3)):
        streams.at(minute * MINUTE, "orders", {"number": number})
    streams.run("dedup.py")
    for minute, number in ((59, 2), (60, 1), (61, 4)):
        streams.at(minute * MINUTE, "orders", {"number": number})
    streams.run("dedup.py")

    assert [one["number"] for one in streams.found("unique")] == [1, 2, 3, 4]


@pytest.mark.slow
def test_orders_are_joined_with_payments(streams: Streams) -> None:
    for number in (1, 2, 3):
        streams.at(number * MINUTE, "orders", {"number": number}, f"customer-{number}")
    streams.at(4 * MINUTE, "payments", {"order": 1, "amount": 9.5})
    streams.at(4 * MINUTE, "payments", {"order": 99, "amount": 1})
    streams.run("join_queues.py")
    assert streams.found("settled") == [{"number": 1, "paid": 9.5}]

    streams.at(62 * MINUTE, "payments", {"order": 2, "amount": 2})
    streams.at(64 * MINUTE, "payments", {"order": 3, "amount": 3})  # more than an hour after its order
    streams.at(3 * HOUR, "orders", {"number": 4})
    streams.run("join_queues.py")
    two = [{"number": 1, "paid": 9.5}, {"number": 2, "paid": 2.0}]
    assert streams.found("settled") == two, "the payments must go on too, for an order to have none"

    streams.at(3 * HOUR, "orders", {"number": 5})
    streams.at(3 * HOUR, "payments", {"order": 98, "amount": 1})
    streams.run("join_queues.py")
    assert streams.found("settled") == [*two, {"number": 3, "paid": None}]


@pytest.mark.slow
def test_orders_are_enriched_from_the_lake_as_it_is_at_each_batch(lake: Lake) -> None:
    recipe = runpy.run_path(str(RECIPES / "enrichment.py"))
    table = str(lake.folder / "lake")

    def archived() -> None:
        server = ServerConnection((lake.url,), lake.tenant, None, 60.0)
        plan = RunPlan(names=["archive"], connection=server, queues=["customers"], lake=table)
        assert run_pipelines(plan, spark=lake.spark).run.status == "ok"

    def started() -> StreamingQuery:
        writer = recipe["query"](lake.spark, lake=table, **lake.connection)
        query: StreamingQuery = writer.option("checkpointLocation", str(lake.folder / "checkpoint")).start()
        return query

    for customer, country in (("a", "DE"), ("b", "FR"), ("a", "AT")):
        lake.client.push("customers", {"country": country}, partition=customer)
    archived()
    for number, customer in enumerate("abc"):
        lake.client.push("orders", {"number": number}, partition=customer)
    query = started()
    query.processAllAvailable()
    lake.client.push("customers", {"country": "IT"}, partition="c")
    archived()
    lake.client.push("orders", {"number": 3}, partition="c")
    query.processAllAvailable()
    query.stop()
    forget_last_commit(lake.folder / "checkpoint")
    again = started()
    again.processAllAvailable()
    again.stop()

    assert [(one.partition, one.json()) for one in lake.client.messages("enriched")] == [
        ("a", {"number": 0, "country": "AT"}),
        ("b", {"number": 1, "country": "FR"}),
        ("c", {"number": 2}),
        ("c", {"number": 3, "country": "IT"}),
    ]


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    [(name, provider)] = runpy.run_path(str(RECIPES / "gate.py"))["STATE"].items()
    usual = spark.conf.get(name)
    spark.conf.set(name, provider)
    yield
    assert usual is not None
    spark.conf.set(name, usual)


def turns(streams: Streams, customer: str) -> list[float]:
    """When the calls of a customer have their turns, in the order of their numbers."""
    calls = [one for one in streams.client.scheduled("paced") if one.partition == customer]
    return [one.deliver_at.timestamp() for one in sorted(calls, key=lambda one: int(bytes(one.payload)))]


@pytest.mark.slow
@pytest.mark.usefixtures("rocksdb")
def test_a_gate_gives_each_call_its_turn(streams: Streams) -> None:
    """The server's clock is behind that of the gate, so that no turn has come yet."""
    streams.client.push("calls", list(range(13)), partition="a")
    streams.client.push("calls", [100], partition="b")
    streams.run("gate.py")
    first = turns(streams, "a")
    assert [turn - first[0] for turn in first] == pytest.approx([0] * 10 + [1, 2, 3], abs=0.001)
    assert len(turns(streams, "b")) == 1

    streams.client.push("calls", [13, 14], partition="a")
    streams.run("gate.py")
    later = turns(streams, "a")
    assert later[:13] == first
    assert later == sorted(later)
    assert all(after - before > 0.999 for before, after in zip(later, later[10:], strict=False)), (
        "ten at once, then one a second"
    )

    streams.clock.advance(later[-1] + 1 - NOON)
    streams.server.until_quiet()
    assert [one.json() for one in streams.client.messages("paced", partition="a")] == list(range(15))
