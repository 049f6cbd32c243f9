"""What the benchmark of mappings compares does the same on both sides."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from bench.spark import QUICK
from bench.spark_mapping import PYTHON_SHARE, QUEUE, SPEC, write_messages
from skep.spark.judging import mapping_judge
from skep.spec import load, to_json


def test_every_message_of_the_benchmark_can_be_mapped(tmp_path: Path) -> None:
    write_messages(tmp_path / "messages.parquet", 200)
    payloads = pq.read_table(tmp_path / "messages.parquet").column("payload").to_pylist()
    assert 270 <= sum(len(payload.encode()) for payload in payloads) / 200 <= 330
    judge = mapping_judge(to_json(load(SPEC, "bench.skep")), QUEUE)
    made = [judge(payload.encode())["made"] for payload in payloads]
    assert {len(msgspec.json.decode(one)) for one in made if one is not None} == {8}
    assert None not in made


@pytest.mark.parametrize("rows", [200, QUICK.mapped_rows // PYTHON_SHARE])
def test_both_tasks_have_as_much_to_do(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "messages.parquet"
    write_messages(path, rows)

    found = pq.read_metadata(path)

    sizes = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    assert len(sizes) % 2 == 0
    assert max(sizes) - min(sizes) <= len(sizes)
