"""`skep bench spark`: queues read and written by Spark on this machine, beside what Spark reads and the server takes at best.

Everything a ratio compares is measured in the same run, in rounds that alternate, and the median round counts; the first rounds
do not, since the JVM has not compiled yet what it will. The server is a process of its own with fsync on; Spark is `local[2]` with
the session that `skep.spark` starts. What each round took of the processors is stated beside: on a busy machine it says more.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import structlog
from msgspec import Struct, structs

from bench import scripts
from bench.http import serving
from bench.jdbc import driver_jar
from bench.load import fresh_queue
from bench.loader import Load, drive
from bench.report import Report, machine, middle
from bench.rounds import Rounds, alternating
from bench.spark_mapping import mapping_rates
from skep.client import Client
from skep.model import DEFAULT_TENANT
from skep.spark.lake.opening import open_lake
from skep.spark.lake.table import append
from skep.spark.options import ServerConnection
from skep.spark.running.inputs import Inputs
from skep.spark.running.quiet import output_to
from skep.spark.session import start_session
from skep.testing.postgres import PostgresServer, running_postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TARGETS = {
    "source_of_parquet": ">= 0.60",
    "source_over_jdbc": ">= 1.50",
    "source_over_jdbc_uncached": "-",
    "source_over_jdbc_same_rows": "-",
    "pushdown_speedup": ">= 10.00",
    "pushdown_speedup_by_partition": "-",
    "pushdown_speedup_by_time": "-",
    "lake_log_of_parquet": ">= 0.60",
    "archive_scaling": ">= 1.60",
    "sink_of_arrow_push": ">= 0.50",
    "column_over_python_mapping": ">= 5.00",
}
STREAM_MESSAGES = 50_000
PAYLOAD_BYTES = 300
BATCH_ROWS = 100_000
SMALL_ROWS = 1_000
WARM_BATCHES = 2
QUERY_SECONDS = 300
PARTITION_KEYS = 16
SHARES = 100
"""One of these shares of a queue is what a query wants: a partition, or the messages of one push."""
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rows: int
    filtered_rows: int
    """Rows of the queue that is read by conditions. Spark alone takes some 50 ms for a query, however few rows it has."""
    written_rows: int
    mapped_rows: int
    warm_rounds: int
    rounds: int
    read_rounds: int
    small_batches: int
    is_quick: bool = False


QUICK = Scale(
    rows=400_000, filtered_rows=2_000_000, written_rows=200_000, mapped_rows=150_000, warm_rounds=2, rounds=3, read_rounds=5, small_batches=12,
    is_quick=True,
)  # fmt: skip
FULL = Scale(
    rows=1_000_000,
    filtered_rows=2_000_000,
    written_rows=1_000_000,
    mapped_rows=1_000_000,
    warm_rounds=2,
    rounds=5,
    read_rounds=7,
    small_batches=60,
)


class Bench(Struct, frozen=True):
    """What the steps share: a Spark, a server of a store, and a queue full of messages."""

    spark: SparkSession
    store: str
    port: int
    pids: tuple[int, ...]
    queue: str
    last_seq: int
    scale: Scale
    report: Report
    folder: Path

    @property
    def connection(self) -> dict[str, str]:
        """The options that say where the server is."""
        return {"url": f"http://127.0.0.1:{self.port}"}

    def source(self, **options: str) -> DataFrame:
        """The queue as a table."""
        end = f'{{"{self.queue}": {self.scale.rows}}}'
        return self.spark.read.format("skep").options(**self.connection, endingOffsets=end, **options).load(self.queue)

    def compare(self, *works: Callable[[], float | None]) -> list[Rounds]:
        """What each took, in rounds that alternate."""
        return alternating(self.pids, self.scale.warm_rounds, self.scale.rounds, works)

    def compare_reading(self, *frames: DataFrame) -> list[Rounds]:
        """The same of reading tables. There are more rounds: they are short, and Java takes longer to compile what they run."""
        works = [partial(drain, frame) for frame in frames]
        return alternating(self.pids, 2 * self.scale.warm_rounds, self.scale.read_rounds, works)

    def rate(self, name: str, value: float) -> None:
        """Report a rate of this store."""
        self.report.rates[f"{self.store}.{name}"] = value

    def tell(self, name: str, rounds: Rounds, rows: int) -> None:
        """Report what rounds of so many rows took."""
        self.rate(name, rounds.rate(rows))
        self.rate(f"{name}_per_cpu_second", rounds.cpu_rate(rows))


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
        spark = quiet_session(folder / "spark.log", config)
        stack.callback(spark.stop)
        if "sqlite" in stores:
            with subject(spark, "sqlite", f"{folder}/served.db", (), scale, report, folder) as bench:
                steps(bench, source_of_parquet, push_down, streaming, small_batches, archive, sink_of_push)
        if "postgres" in stores:
            postgres(spark, jar, scale, report, folder, only_compared=scale.is_quick and "sqlite" in stores)
        mapping(spark, scale, report, folder)
    return report


def postgres(
    spark: SparkSession, jar: Path | None, scale: Scale, report: Report, folder: Path, *, only_compared: bool
) -> None:
    """Measure servers on PostgreSQL: one as it is by default, which has in memory what was read of the queue before, and one that keeps
    nothing, which reads everything as the first reader of a message does.
    """
    with running_postgres() as database, ExitStack() as stack:
        dsn = database.create_database()
        kept = stack.enter_context(subject(spark, "postgres", dsn, _pids(database), scale, report, folder))
        port, pid = stack.enter_context(serving(dsn, folder, {"SKEP_LOG_CACHE_BYTES": "0"}))
        fresh = structs.replace(kept, port=port, pids=(*kept.pids, pid))
        report.notes["postgres"] = "source is read from the server's memory after the first round, all else is not"
        if jar is None:
            report.notes["postgres.source_over_jdbc"] = (
                "not measured: there is no JDBC driver (apt-get install libpostgresql-jdbc-java)"
            )
            steps(kept, source_alone)
        else:
            steps(fresh, partial(source_over_jdbc, kept=kept, database=database, dsn=dsn))
        if not only_compared:
            steps(fresh, push_down, streaming, small_batches, archive, sink_of_push)


def quiet_session(told: Path, config: dict[str, str]) -> SparkSession:
    """A Spark that writes what it has to say to a file, which is shown if it does not start."""
    try:
        with output_to(told):
            return start_session("skep bench", master="local[2]", config=config)
    except Exception:
        sys.stderr.write(told.read_text(encoding="utf-8", errors="replace"))
        raise


def _pids(database: PostgresServer) -> tuple[int, ...]:
    return () if database.pid is None else (database.pid,)


@contextmanager
def subject(
    spark: SparkSession, store: str, address: str, pids: tuple[int, ...], scale: Scale, report: Report, folder: Path
) -> Iterator[Bench]:
    """A server of one store, with a full queue."""
    with serving(address, folder) as (port, pid):
        queue = fresh_queue().name
        drive(port, Load(scripts.push_stream, (queue, STREAM_MESSAGES, stream()), 2, messages=scale.rows))
        with Client(f"http://127.0.0.1:{port}") as client:
            last_seq = client.log_bounds(queue).last_seq  # some more: the connections do not end at the same moment
        yield Bench(spark, store, port, (pid, *pids), queue, last_seq, scale, report, folder)


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
    report.rates["mapping_by_columns_per_cpu_second"] = rates.columns_by_cpu
    report.rates["mapping_in_python_per_cpu_second"] = rates.python_by_cpu
    report.ratios["column_over_python_mapping"] = rates.ratio
    log.info("measured", step="mapping", seconds=round(time.perf_counter() - started, 1))


def source_of_parquet(bench: Bench) -> None:
    """The queue as a table, beside the same rows in Parquet files."""
    lake = str(bench.folder / f"{bench.store}.parquet")
    source = bench.source()
    source.write.parquet(lake)
    parquet = bench.spark.read.parquet(lake)
    united = bench.source(lake=united_lake(bench))
    queue, both, files = bench.compare_reading(source, united, parquet)
    bench.tell("source", queue, bench.scale.rows)
    bench.tell("lake_log", both, bench.scale.rows)
    bench.tell("parquet", files, bench.scale.rows)
    bench.report.ratios[f"{bench.store}.source_of_parquet"] = queue.over(files)
    bench.report.ratios[f"{bench.store}.lake_log_of_parquet"] = both.over(files)


def united_lake(bench: Bench) -> str:
    """A lake with the first nine tenths of the queue."""
    lake = str(bench.folder / f"{bench.store}-united")
    to_lake(bench, lake, bench.scale.rows * 9 // 10, tasks=2)
    return lake


def push_down(bench: Bench) -> None:
    """A hundredth of a queue by a condition on the partition, and by one on the time, beside the same rows by conditions that only Spark
    can evaluate, for which all rows are sent.
    """
    rows = bench.scale.filtered_rows
    queue, share = fresh_queue().name, rows // SHARES
    load = Load(scripts.push_stream, (queue, share, stream(share, SHARES)), 2, messages=rows)
    drive(bench.port, load)
    frame = bench.spark.read.format("skep").options(**bench.connection).load(queue)
    pushed_at = frame.where(f"seq = {rows // 2}").selectExpr("unix_micros(created_at)").collect()[0][0]
    at = f"BETWEEN timestamp_micros({pushed_at}) AND timestamp_micros({pushed_at})"
    key = f"customer-{SHARES // 2:06d}"
    conditions = [
        f"partition = '{key}'", f"partition LIKE '%{key}'",
        f"created_at {at}", f"unix_micros(created_at) = {pushed_at}",
    ]  # fmt: skip
    by_partition, all_by_partition, by_time, all_by_time = bench.compare_reading(*map(frame.where, conditions))
    speedups = {"by_partition": by_partition.over(all_by_partition), "by_time": by_time.over(all_by_time)}
    for name, speedup in speedups.items():
        bench.report.ratios[f"{bench.store}.pushdown_speedup_{name}"] = speedup
    bench.report.ratios[f"{bench.store}.pushdown_speedup"] = min(speedups.values())


def source_alone(bench: Bench) -> None:
    """The queue as a table."""
    (queue,) = bench.compare_reading(bench.source())
    bench.tell("source", queue, bench.scale.rows)


def source_over_jdbc(bench: Bench, kept: Bench, database: PostgresServer, dsn: str) -> None:
    """The queue as a table, from a server that has it in memory and from one that has not, beside Spark's own JDBC reader: at its
    best, with as many rows of a table of texts that was made for it, and, unless it has to be quick, when it makes the same rows of
    our own table.
    """
    database.execute(PLAIN_ROWS.format(rows=bench.scale.rows, bytes=PAYLOAD_BYTES))
    frames = {
        "source": kept.source(),
        "source_uncached": bench.source(),
        "jdbc": jdbc(bench, database, "postgres", "bench_rows"),
    }
    if not bench.scale.is_quick:
        same = SAME_ROWS.format(queue=bench.queue, rows=bench.scale.rows)
        frames["jdbc_same_rows"] = jdbc(bench, database, urlsplit(dsn).path.removeprefix("/"), f"({same}) t")
    found = dict(zip(frames, bench.compare_reading(*frames.values()), strict=True))
    for name, rounds in found.items():
        bench.tell(name, rounds, bench.scale.rows)
    ratios, store = bench.report.ratios, bench.store
    ratios[f"{store}.source_over_jdbc"] = found["source"].over(found["jdbc"])
    ratios[f"{store}.source_over_jdbc_uncached"] = found["source_uncached"].over(found["jdbc"])
    if "jdbc_same_rows" in found:
        ratios[f"{store}.source_over_jdbc_same_rows"] = found["source_uncached"].over(found["jdbc_same_rows"])


def jdbc(bench: Bench, database: PostgresServer, name: str, table: str) -> DataFrame:
    """What Spark's own reader reads."""
    reader = bench.spark.read.format("jdbc").options(
        url=f"jdbc:postgresql://127.0.0.1:{database.port}/{name}?user=skep", driver="org.postgresql.Driver",
        dbtable=table, partitionColumn="seq", lowerBound="1", upperBound=str(bench.scale.rows), numPartitions="2",
        fetchsize="10000",
    )  # fmt: skip
    return reader.load()


SAME_ROWS = """
select '{queue}'::text as queue, m.partition, m.seq, m.id::text as message_id, m.transaction_id,
    coalesce(m.trace_id, m.id)::text as trace_id, convert_from(m.payload, 'UTF8') as payload,
    convert_from(m.headers, 'UTF8') as headers, to_timestamp(m.created_at / 1e6) as created_at
from message m where m.queue_id = (select q.id from queue q where q.name = '{queue}') and m.seq <= {rows}
"""
PLAIN_ROWS = """
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
    batches(bench, "warming", rows, bench.scale.rows // rows)
    durations = batches(bench, "large", rows, bench.scale.rows // rows)
    bench.rate("streaming", rows / middle(durations))
    bench.report.notes[f"{bench.store}.streaming"] = f"{rows:,} rows a batch, median {middle(durations) * 1e3:.0f} ms"


def small_batches(bench: Bench) -> None:
    """The same with 1,000 rows a batch: what a batch costs that has hardly any."""
    durations = batches(bench, "small", SMALL_ROWS, bench.scale.small_batches + WARM_BATCHES)
    bench.rate("micro_batch_p50_ms", middle(durations) * 1e3)


def batches(bench: Bench, name: str, rows: int, number: int) -> list[float]:
    """Seconds that so many batches of so many rows took, up to the end of the queue, without the first ones."""
    source = bench.spark.readStream.format("skep").options(**bench.connection, maxOffsetsPerTrigger=str(rows))
    frame = source.option("startingOffsets", f'{{"{bench.queue}": {max(0, bench.last_seq - rows * number)}}}')
    folder = str(bench.folder / f"{bench.store}-{name}")
    writer = frame.load(bench.queue).writeStream.format("noop").option("checkpointLocation", folder)
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_SECONDS):
        query.stop()
        raise TimeoutError(f"the query took more than {QUERY_SECONDS} s")
    taken = [one.durationMs["triggerExecution"] / 1e3 for one in query.recentProgress if one.numInputRows == rows]
    return taken[WARM_BATCHES:] or taken


def archive(bench: Bench) -> None:
    """The queue into a lake of Parquet files, by one executor and by two, each with a core of its own."""
    rows = bench.scale.rows
    lakes = (str(bench.folder / f"{bench.store}-lake-{number}") for number in count(1))

    def archived(tasks: int) -> None:
        to_lake(bench, next(lakes), rows, tasks)

    works = [partial(archived, 2), partial(archived, 1)]
    two, one = alternating(bench.pids, 1, 2 if bench.scale.is_quick else 3, works)
    bench.tell("archive", two, rows)
    bench.tell("archive_by_one", one, rows)
    bench.report.ratios[f"{bench.store}.archive_scaling"] = two.over(one)


def to_lake(bench: Bench, lake: str, rows: int, tasks: int) -> None:
    """The first rows of the queue into a new lake, by so many tasks at once."""
    connection = ServerConnection((bench.connection["url"],), DEFAULT_TENANT, None, retry_seconds=60.0)
    inputs = Inputs(bench.spark, connection, [bench.queue])
    log, end = inputs.link.bounds(bench.queue).log, {bench.queue: rows}
    sources = inputs.log_rows({bench.queue: 0}, end, {bench.queue: log}, {}, cores=tasks)
    with open_lake(lake, DEFAULT_TENANT) as opened:
        append(bench.spark, opened, sources, end, {bench.queue: log})


def sink_of_push(bench: Bench) -> None:
    """Rows written once each, beside a bare push of Arrow streams as large, over two connections each."""
    written_rows = bench.scale.written_rows
    text = f'rpad(concat(\'{{"n":\', id, \',"x":"\', md5(string(id))), {PAYLOAD_BYTES - 2}, md5(string(id + 1)))'
    rows = bench.spark.range(0, written_rows, 1, 2).selectExpr(
        f"concat('customer-', id % {PARTITION_KEYS}) as partition", f"concat({text}, '\"}}') as payload"
    )
    drain(rows)
    body = stream()

    def written() -> None:
        writer = rows.write.format("skep").options(**bench.connection, queue=fresh_queue().name)
        writer.mode("append").save()

    def pushed() -> float:
        load = Load(scripts.push_stream, (fresh_queue().name, STREAM_MESSAGES, body), 2, messages=written_rows)
        return written_rows / drive(bench.port, load).messages_per_second

    sink, push = bench.compare(written, pushed)
    bench.tell("sink", sink, written_rows)
    bench.tell("arrow_push", push, written_rows)
    bench.report.ratios[f"{bench.store}.sink_of_arrow_push"] = sink.over(push)


def drain(frame: DataFrame) -> None:
    """Read all columns, and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def stream(
    messages: int = STREAM_MESSAGES, partitions: int = PARTITION_KEYS, payload_bytes: int = PAYLOAD_BYTES
) -> bytes:
    """An Arrow stream of messages that all differ, so that no file format can make light of them."""
    random = np.random.default_rng(7)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    head, tail = np.frombuffer(b'{"x":"', np.uint8), np.frombuffer(b'"}', np.uint8)
    width = payload_bytes - len(head) - len(tail)
    middle_part = digits[random.integers(0, 16, (messages, width), dtype=np.uint8)]
    whole = np.hstack([np.tile(head, (messages, 1)), middle_part, np.tile(tail, (messages, 1))])
    offsets = np.arange(messages + 1, dtype=np.int32) * payload_bytes
    payload = pa.StringArray.from_buffers(messages, pa.py_buffer(offsets), pa.py_buffer(whole))
    partition = pa.array([f"customer-{number % partitions:06d}" for number in range(messages)])
    batch = pa.record_batch({"payload": payload, "partition": partition})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
