"""The `commands` pipeline by columns beside the same mapping in Python: one spec, one Parquet file, rounds that alternate.

The Python side is the worker's own mapping, in Arrow batches (`mapInArrow`): decode, hold against the type, evaluate, hold against the
input, encode. Both write to nowhere, and both rates are of warm rounds, the median of them.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from skep.bench.report import middle
from skep.spark.judging import judge_rows, mapping_judge
from skep.spark.pipelines.commands import commands
from skep.spec import App, load, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUE = "Placed"
SPEC = """
app Orders {
  queue Placed {
    message_type {
      order_id: uuid
      customer: string
      total: float
      cents: int
      express: bool
      state: enum(open, closed)
      placed_at: time
      tags: list<string>
      address: json
      note: string?
    }
    map_to: command Order.Place {
      id: order_id
      customer: customer.upperAscii()
      cents: cents + (express ? 500 : 0)
      large: total > 50.0 && state == "open"
      vip: "vip" in tags
      city: has(address.city) ? address.city : ""
      day: string(placed_at).substring(0, 10)
      note: note != null ? note : "none"
    }
  }
  entity Order {
    id: input.id
    command Place {
      input {
        id: uuid
        customer: string
        cents: int
        large: bool
        vip: bool
        city: string
        day: string
        note: string
      }
    }
  }
}
"""
ROWS_A_GROUP = 50_000


class MappingRates(Struct, frozen=True):
    """Rows a second, and rows for each second of CPU of all processes together, by columns and in Python."""

    columns: float
    python: float
    columns_by_cpu: float
    python_by_cpu: float

    @property
    def ratio(self) -> float:
        """`column_over_python_mapping`"""
        return self.columns / self.python


def mapping_rates(spark: SparkSession, folder: Path, rows: int, rounds: int, warm_rounds: int = 2) -> MappingRates:
    """Map that many messages of 300 bytes both ways, in alternating rounds after some that do not count."""
    app = load(SPEC, "bench.skep")
    path = folder / "messages.parquet"
    write_messages(path, rows)
    messages = spark.read.parquet(str(path))
    by_columns, in_python = commands(messages, app, QUEUE).commands, python_commands(messages, app)
    found: dict[str, list[tuple[float, float]]] = {"columns": [], "python": []}
    for number in range(warm_rounds + rounds):
        for name, frame in (("columns", by_columns), ("python", in_python)):
            measured = _run(frame)
            if number >= warm_rounds:
                found[name].append(measured)
    wall = {name: rows / middle([one for one, _ in times]) for name, times in found.items()}
    cpu = {name: rows / middle([one for _, one in times]) for name, times in found.items()}
    return MappingRates(wall["columns"], wall["python"], cpu["columns"], cpu["python"])


def python_commands(messages: DataFrame, app: App) -> DataFrame:
    """The same mapping by the evaluator, for every row."""
    document = to_json(app)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        judge = mapping_judge(document, QUEUE)
        for batch in batches:
            verdicts = judge_rows(judge, batch.column("payload"))
            yield pa.RecordBatch.from_arrays(
                [batch.column("seq"), batch.column("partition"), verdicts.field("made")], ["seq", "partition", "input"]
            )

    return messages.mapInArrow(run, "seq bigint, partition string, input string").where("input is not null")


def write_messages(path: Path, rows: int) -> None:
    """Messages of some 300 bytes, as the log has them."""
    generator = random.Random(1)
    schema = pa.schema([("seq", pa.int64()), ("partition", pa.string()), ("payload", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, ROWS_A_GROUP):
            seqs = range(start, min(start + ROWS_A_GROUP, rows))
            columns = [list(seqs), [f"p{seq % 100}" for seq in seqs], [_message(generator, seq) for seq in seqs]]
            writer.write_table(pa.table(columns, schema=schema))


def _message(generator: random.Random, seq: int) -> str:
    message = {
        "order_id": str(uuid.UUID(int=generator.getrandbits(128))),
        "customer": f"customer-{seq % 1000}",
        "total": round(generator.random() * 100, 2),
        "cents": seq * 7 % 100_000,
        "express": seq % 3 == 0,
        "state": "open" if seq % 2 else "closed",
        "placed_at": f"2026-03-01T10:20:{seq % 60:02}.{seq % 1000:03}Z",
        "tags": ["new", "vip"][: seq % 3],
        "address": {"city": "Zürich", "zip": str(8000 + seq % 100), "country": "CH"},
        "note": f"leave it at the door, number {seq}",
    }
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def _run(frame: DataFrame) -> tuple[float, float]:
    started, spent = time.perf_counter(), _cpu_seconds()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started, max(_cpu_seconds() - spent, 1e-9)


def _cpu_seconds() -> float:
    """Of this process and all that it started: the JVM and its Python workers."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total
