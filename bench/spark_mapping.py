"""The `commands` pipeline by columns beside the same mapping in Python: one spec, one Parquet file, rounds that alternate.

The Python side is the worker's own mapping, in Arrow batches (`mapInArrow`): decode, hold against the type, evaluate, hold against the
input, encode. Both write to nowhere, and both rates are of warm rounds, the median of them.
"""

from __future__ import annotations

import json
import math
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

from bench.report import middle
from skep.spark.judging import mapping_judge
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
"""About; see `write_messages`."""
PYTHON_SHARE = 6
"""Python takes longer for a row, so a sixth of the rows are enough for a rate."""
WARM_ROUNDS = {"columns": 14, "python": 1}
"""Rounds that do not count: the JVM compiles what it has run often, in two steps, and takes seconds for the second."""


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


def mapping_rates(spark: SparkSession, folder: Path, rows: int, rounds: int) -> MappingRates:
    """Map that many messages of 300 bytes by columns and a part of them in Python, in rounds that alternate after some that do not count."""
    app = load(SPEC, "bench.skep")
    counts = {"columns": rows, "python": max(1, rows // PYTHON_SHARE)}
    messages: dict[str, DataFrame] = {}
    for name, count in counts.items():
        path = folder / f"messages-{name}.parquet"
        write_messages(path, count)
        messages[name] = spark.read.parquet(str(path))
    frames = {
        "columns": commands(messages["columns"], app, QUEUE).commands,
        "python": python_commands(messages["python"], app),
    }
    for name, frame in frames.items():
        for _ in range(WARM_ROUNDS[name]):
            _run(frame)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
    for _ in range(rounds):
        for name, frame in frames.items():
            found[name].append(_run(frame))
    wall = {name: counts[name] / middle([one for one, _ in times]) for name, times in found.items()}
    cpu = {name: counts[name] / middle([one for _, one in times]) for name, times in found.items()}
    return MappingRates(wall["columns"], wall["python"], cpu["columns"], cpu["python"])


def python_commands(messages: DataFrame, app: App) -> DataFrame:
    """The same mapping by the evaluator, for every row."""
    document = to_json(app)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        judge = mapping_judge(document, QUEUE)
        for batch in batches:
            payloads = batch.column("payload").cast(pa.binary()).to_pylist()
            made = pa.array([judge(payload).get("made") for payload in payloads], pa.string())
            yield pa.RecordBatch.from_arrays(
                [batch.column("seq"), batch.column("partition"), made], ["seq", "partition", "input"]
            )

    return messages.mapInArrow(run, "seq bigint, partition string, input string").where("input is not null")


def write_messages(path: Path, rows: int) -> None:
    """Messages of some 300 bytes, as the log has them. Each of two tasks gets as many: Spark splits a file between groups of rows."""
    generator = random.Random(1)
    a_group = math.ceil(rows / (2 * max(1, round(rows / (2 * ROWS_A_GROUP)))))
    schema = pa.schema([("seq", pa.int64()), ("partition", pa.string()), ("payload", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, a_group):
            seqs = range(start, min(start + a_group, rows))
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
