"""What the benchmark of mappings compares does the same on both sides."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from skep.bench.spark_mapping import QUEUE, SPEC, write_messages
from skep.spark.judging import mapped
from skep.spec import load


def test_every_message_of_the_benchmark_can_be_mapped(tmp_path: Path) -> None:
    write_messages(tmp_path / "messages.parquet", 200)
    payloads = pq.read_table(tmp_path / "messages.parquet").column("payload").to_pylist()
    assert 270 <= sum(len(payload.encode()) for payload in payloads) / 200 <= 330
    mapping = mapped(load(SPEC, "bench.skep"), QUEUE)
    made = [msgspec.json.decode(mapping.made(payload.encode())) for payload in payloads]
    assert {len(one) for one in made} == {8}
