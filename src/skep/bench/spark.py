"""`skep bench spark`: queues read and written by Spark on this machine, beside what Spark reads and the server takes at best.

Everything a ratio compares is measured in the same run, in rounds that alternate, and the median round counts. The server is a
process of its own with fsync on; Spark is `local[2]` with the session that `skep.spark` starts.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import structlog
from msgspec import Struct

from skep.bench import scripts
from skep.bench.http import serving
from skep.bench.jdbc import driver_jar
from skep.bench.load import fresh_queue
from skep.bench.loader import Load, drive
from skep.bench.report import Report, machine, middle
from skep.bench.spark_mapping import mapping_rates
from skep.spark.session import start_session
from skep.testing.postgres import PostgresServer, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TARGETS = {
    "source_of_parquet": ">= 0.60",
    "source_over_jdbc": ">= 1.50",
    "sink_of_arrow_push": ">= 0.50",
    "column_over_python_mapping": ">= 5.00",
}
STREAM_MESSAGES = 50_000
PAYLOAD_BYTES = 300
BATCH_ROWS = 100_000
SMALL_ROWS = 1_000
QUERY_SECONDS = 300
PARTITION_KEYS = 16
log = structlog.get_logger("skep.bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rows: int
    mapped_rows: int
    rounds: int
    batches: int
    small_batches: int


QUICK = Scale(rows=300_000, mapped_rows=100_000, rounds=2, batches=3, small_batches=12)
FULL = Scale(rows=1_000_000, mapped_rows=500_000, rounds=5, batches=10, small_batches=60)


class Bench(Struct, frozen=True):
    """What the steps share: a Spark, a server of a store, and a queue full of messages."""

    spark: SparkSession
    store: str
    port: int
    pids: tuple[int, ...]
    queue: str
    scale: Scale
    report: Report
    folder: Path

    @property
    def connection(self) -> dict[str, str]:
        """The options that say where the server is."""
        return {"url": f"http://127.0.0.1:{self.port}"}

    def source(self) -> DataFrame:
        """The queue as a table."""
        end = f'{{"{self.queue}": {self.scale.rows}}}'
        return self.spark.read.format("skep").options(**self.connection, endingOffsets=end).load(self.queue)

    def rate(self, name: str, value: float) -> None:
        """Report a rate of this store."""
        self.report.rates[f"{self.store}.{name}"] = value


async def run(stores: list[str], quick: bool) -> Report:
    """Measure Spark with servers of the stores."""
    return await asyncio.to_thread(measure, stores, QUICK if quick else FULL)


def measure(stores: list[str], scale: Scale) -> Report:
    """The same, blocking."""
    report = Report("spark", machine())
    report.notes["load"] = f"{scale.rows:,} rows with payloads of {PAYLOAD_BYTES} bytes, fsync on, Spark on local[2]"
    jar = driver_jar() if "postgres" in stores else None
    config = {"spark.driver.memory": "3g"} | ({} if jar is None else {"spark.jars": str(jar)})
    with TemporaryDirectory(prefix="skep-bench-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        spark = start_session("skep bench", master="local[2]", config=config)
        stack.callback(spark.stop)
        if "sqlite" in stores:
            with subject(spark, "sqlite", f"{folder}/served.db", (), scale, report, folder) as bench:
                steps(bench, source_of_parquet, streaming, small_batches, sink_of_push)
        if "postgres" in stores:
            with (
                running_postgres() as database,
                subject(spark, "postgres", database.create_database(), _pids(database), scale, report, folder) as bench,
            ):
                if jar is None:
                    report.notes["postgres.source_over_jdbc"] = (
                        "not measured: there is no JDBC driver (apt-get install libpostgresql-jdbc-java)"
                    )
                    steps(bench, source_alone)
                else:
                    steps(bench, partial(source_over_jdbc, database=database))
                steps(bench, streaming, small_batches, sink_of_push)
        mapping(spark, scale, report, folder)
    return report


def _pids(database: PostgresServer) -> tuple[int, ...]:
    return () if database.pid is None else (database.pid,)


@contextmanager
def subject(
    spark: SparkSession, store: str, address: str, pids: tuple[int, ...], scale: Scale, report: Report, folder: Path
) -> Iterator[Bench]:
    """A server of one store, with a full queue."""
    with serving(address, folder) as (port, pid):
        bench = Bench(spark, store, port, (pid, *pids), fresh_queue().name, scale, report, folder)
        pushed = drive(
            port, Load(scripts.push_stream, (bench.queue, STREAM_MESSAGES, stream()), 2, messages=scale.rows)
        )
        bench.rate("arrow_push_fill", pushed.messages_per_second)
        yield bench


def steps(bench: Bench, *wanted: Callable[[Bench], None]) -> None:
    """Measure one thing after the other."""
    for step in wanted:
        started = time.perf_counter()
        step(bench)
        name = step.func.__name__ if isinstance(step, partial) else step.__name__
        log.info("measured", store=bench.store, step=name, seconds=round(time.perf_counter() - started, 1))


def mapping(spark: SparkSession, scale: Scale, report: Report, folder: Path) -> None:
    """A spec's mapping as columns, beside the same in Python."""
    started = time.perf_counter()
    rates = mapping_rates(spark, folder, scale.mapped_rows, scale.rounds)
    report.rates["mapping_by_columns"] = rates.columns
    report.rates["mapping_in_python"] = rates.python
    report.ratios["column_over_python_mapping"] = rates.ratio
    log.info("measured", step="mapping", seconds=round(time.perf_counter() - started, 1))


def source_of_parquet(bench: Bench) -> None:
    """The queue as a table, beside the same rows in Parquet files."""
    lake = str(bench.folder / f"{bench.store}.parquet")
    bench.source().write.parquet(lake)
    parquet = bench.spark.read.parquet(lake)
    queue, files = alternating(bench, lambda: drained(bench, bench.source()), lambda: drained(bench, parquet))
    bench.rate("source", middle(queue))
    bench.rate("parquet", middle(files))
    bench.report.ratios[f"{bench.store}.source_of_parquet"] = ratio(queue, files)


def source_alone(bench: Bench) -> None:
    """The queue as a table."""
    bench.rate("source", middle([drained(bench, bench.source()) for _ in range(bench.scale.rounds + 1)][1:]))


def source_over_jdbc(bench: Bench, database: PostgresServer) -> None:
    """The queue as a table, beside Spark's own JDBC reader on a table of the same database server."""
    database.execute(JDBC_ROWS.format(rows=bench.scale.rows, bytes=PAYLOAD_BYTES))
    reader = bench.spark.read.format("jdbc").options(
        url=f"jdbc:postgresql://127.0.0.1:{database.port}/postgres?user=skep", driver="org.postgresql.Driver",
        dbtable="bench_rows", partitionColumn="seq", lowerBound="1", upperBound=str(bench.scale.rows),
        numPartitions="2", fetchsize="10000",
    )  # fmt: skip
    cpu = {"source": [0.0], "jdbc": [0.0]}
    queue, rows = alternating(
        bench,
        lambda: with_cpu(bench, cpu["source"], lambda: drained(bench, bench.source())),
        lambda: with_cpu(bench, cpu["jdbc"], lambda: drained(bench, reader.load())),
    )
    bench.rate("source", middle(queue))
    bench.rate("jdbc", middle(rows))
    for name, taken in cpu.items():
        bench.rate(f"{name}_per_cpu_second", bench.scale.rows / middle(taken[2:]))
    bench.report.ratios[f"{bench.store}.source_over_jdbc"] = ratio(queue, rows)


JDBC_ROWS = """
create table bench_rows as
select seq, 'orders'::text as queue, 'customer-' || seq %% 16 as partition, gen_random_uuid()::text as message_id,
    null::text as transaction_id, gen_random_uuid()::text as trace_id,
    rpad('{{"n":' || seq || ',"x":"' || md5(seq::text) || md5((seq + 1)::text), {bytes} - 2, md5(seq::text)) || '"}}' as payload,
    now() as created_at
from generate_series(1::bigint, {rows}) as seq;
alter table bench_rows add primary key (seq);
analyze bench_rows;
""".replace("%%", "%")


def streaming(bench: Bench) -> None:
    """The queue as a stream with a checkpoint, 100,000 rows a batch."""
    rows = min(BATCH_ROWS, bench.scale.rows // 3)
    durations = batches(bench, f"{bench.store}-large", rows, bench.scale.batches)
    bench.rate("streaming", rows / middle(durations))
    bench.report.notes[f"{bench.store}.streaming"] = f"{rows:,} rows a batch, median {middle(durations) * 1e3:.0f} ms"


def small_batches(bench: Bench) -> None:
    """The same with 1,000 rows a batch: what a batch costs that has hardly any."""
    durations = batches(bench, f"{bench.store}-small", SMALL_ROWS, bench.scale.small_batches)
    bench.rate("micro_batch_p50_ms", middle(durations) * 1e3)


def batches(bench: Bench, name: str, rows: int, count: int) -> list[float]:
    """Seconds that batches of so many rows took, without the first ones."""
    source = bench.spark.readStream.format("skep").options(**bench.connection, maxOffsetsPerTrigger=str(rows))
    frame = source.option("startingOffsets", f'{{"{bench.queue}": {max(0, bench.scale.rows - rows * (count + 2))}}}')
    writer = frame.load(bench.queue).writeStream.format("noop").option("checkpointLocation", str(bench.folder / name))
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_SECONDS):
        query.stop()
        raise TimeoutError(f"the query took more than {QUERY_SECONDS} s")
    taken = [one.durationMs["triggerExecution"] / 1e3 for one in query.recentProgress if one.numInputRows == rows]
    return taken[2:] or taken


def sink_of_push(bench: Bench) -> None:
    """Rows written once each, beside a bare push of Arrow streams as large, over two connections each."""
    text = f'rpad(concat(\'{{"n":\', id, \',"x":"\', md5(string(id))), {PAYLOAD_BYTES - 2}, md5(string(id + 1)))'
    rows = bench.spark.range(0, bench.scale.rows, 1, 2).selectExpr(
        f"concat('customer-', id % {PARTITION_KEYS}) as partition", f"concat({text}, '\"}}') as payload"
    )
    drained(bench, rows)
    body = stream()

    def written() -> float:
        writer = rows.write.format("skep").options(**bench.connection, queue=fresh_queue().name)
        return per_second(bench, lambda: writer.mode("append").save())

    def pushed() -> float:
        load = Load(scripts.push_stream, (fresh_queue().name, STREAM_MESSAGES, body), 2, messages=bench.scale.rows)
        return drive(bench.port, load).messages_per_second

    sink, push = alternating(bench, written, pushed)
    bench.rate("sink", middle(sink))
    bench.rate("arrow_push", middle(push))
    bench.report.ratios[f"{bench.store}.sink_of_arrow_push"] = ratio(sink, push)


def alternating(bench: Bench, one: Callable[[], float], other: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Rates of both, in turn; the first round is for warming up."""
    pairs = [(one(), other()) for _ in range(bench.scale.rounds + 1)][1:]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def ratio(one: list[float], other: list[float]) -> float:
    """The median of what the rounds say."""
    return middle([a / b for a, b in zip(one, other, strict=True)])


def drained(bench: Bench, frame: DataFrame) -> float:
    """Rows per second when all columns are read and nothing is done with them."""
    return per_second(bench, lambda: frame.write.format("noop").mode("overwrite").save())


def per_second(bench: Bench, work: Callable[[], None]) -> float:
    """Rows per second of something that is done to all rows."""
    started = time.perf_counter()
    work()
    return bench.scale.rows / (time.perf_counter() - started)


def with_cpu(bench: Bench, taken: list[float], work: Callable[[], float]) -> float:
    """Do something, and note the CPU seconds that it took of everybody: server, database, Spark and its Python."""
    before = cpu_seconds(bench.pids)
    result = work()
    taken.append(cpu_seconds(bench.pids) - before)
    return result


def cpu_seconds(pids: tuple[int, ...]) -> float:
    """What this process and these have used so far, with all that they started."""
    total = 0.0
    for pid in (psutil.Process().pid, *pids):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
    return total


def stream() -> bytes:
    """An Arrow stream of messages that all differ, so that no file format can make light of them."""
    random = np.random.default_rng(7)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    head, tail = np.frombuffer(b'{"x":"', np.uint8), np.frombuffer(b'"}', np.uint8)
    width = PAYLOAD_BYTES - len(head) - len(tail)
    middle_part = digits[random.integers(0, 16, (STREAM_MESSAGES, width), dtype=np.uint8)]
    whole = np.hstack([np.tile(head, (STREAM_MESSAGES, 1)), middle_part, np.tile(tail, (STREAM_MESSAGES, 1))])
    offsets = np.arange(STREAM_MESSAGES + 1, dtype=np.int32) * PAYLOAD_BYTES
    payload = pa.StringArray.from_buffers(STREAM_MESSAGES, pa.py_buffer(offsets), pa.py_buffer(whole))
    partition = pa.array([f"customer-{number % PARTITION_KEYS:06d}" for number in range(STREAM_MESSAGES)])
    batch = pa.record_batch({"payload": payload, "partition": partition})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
