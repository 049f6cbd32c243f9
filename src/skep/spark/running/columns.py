"""The columns of tables for lineage: with Spark's types where the schema is fixed, else with the types of the Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from skep.spark.schema import MESSAGES, SQL_TYPES
from skep.spark.tables import TABLES


def columns_of(name: str) -> dict[str, str]:
    """The columns of a queue, or of a table of the server."""
    schema = TABLES.get(name, MESSAGES)  # type: ignore[call-overload] # any other name is a queue
    return {field.name: SQL_TYPES[field.type] for field in schema}


def columns_in(folder: Path, name: str) -> dict[str, str]:
    """The columns of a table of the lake."""
    if name == "messages":
        from skep.spark.pipelines.archive import LAKE_TYPES

        return dict(column.split(" ", 1) for column in LAKE_TYPES.split(", "))
    file = next(folder.rglob("*.parquet"), None)
    if file is None:
        return {}
    folders = [part.partition("=")[0] for part in file.relative_to(folder).parts[:-1]]
    return {one.name: str(one.type) for one in pq.read_schema(file)} | dict.fromkeys(folders, "string")
