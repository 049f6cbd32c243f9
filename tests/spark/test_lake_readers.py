"""Every table of the lake is read by DuckDB, pandas, Polars and pyarrow, whatever bytes the payloads are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest

import skep
from skep.spark.running.catalogue import PIPELINES
from tests.spark.conftest import Lake
from tests.spark.test_running import SHOP, ran

IMAGE = b"\xff\x00\xfe"
Rows = list[dict[str, Any]]


def by_duckdb(folder: Path) -> Rows:
    found = duckdb.read_parquet(f"{folder}/**/*.parquet", hive_partitioning=True)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def by_polars(folder: Path) -> Rows:
    import polars as pl  # here: it starts threads, and processes that have some are better not forked (tests.support.workers)

    return pl.scan_parquet(f"{folder}/**/*.parquet", hive_partitioning=True).collect().to_dicts()


def by_pandas(folder: Path) -> Rows:
    rows: Rows = pd.read_parquet(folder).to_dict("records")
    return rows


def by_pyarrow(folder: Path) -> Rows:
    rows: Rows = ds.dataset(folder, partitioning="hive", exclude_invalid_files=True).to_table().to_pylist()
    return rows


READERS: tuple[Callable[[Path], Rows], ...] = (by_duckdb, by_polars, by_pandas, by_pyarrow)


QUICK = ("archive",)
"""The one whose table has the payloads of all messages."""
EVERY = tuple(pipeline.name for pipeline in PIPELINES if pipeline.writes)


@pytest.mark.parametrize("names", [QUICK, pytest.param(EVERY, marks=pytest.mark.slow)])
def test_all_readers_read_all_tables(lake: Lake, names: tuple[str, ...]) -> None:
    client = lake.client
    image = skep.NewMessage(IMAGE, content_type="image/png")
    client.push("orders", [{"number": 1, "ü": "€"}, image])
    for message in client.pop("orders", group="billing", batch=2):
        client.reject(message, error="no amount")
    client.push("Placed", [{"number": 1, "cents": 5}, {"number": 2, "cents": -5}, image])
    run = ran(lake, *names, app=SHOP).run
    assert run.error is None

    tables = [name for pipeline in PIPELINES if pipeline.name in names for name in pipeline.writes]
    root = lake.folder / "lake"
    for table in tables:
        counts = {reader.__name__: len(reader(root / table)) for reader in READERS}
        assert len(set(counts.values())) == 1, (table, counts)
        assert counts["by_duckdb"], table
    for reader in READERS:
        rows = [row for row in reader(root / "messages") if row["queue"] == "orders"]
        found = {row["seq"]: (row["payload"], row["payload_bytes"], row["generation"]) for row in rows}
        assert found == {1: ('{"number":1,"ü":"€"}', None, 1), 2: (None, IMAGE, 1)}, reader.__name__
