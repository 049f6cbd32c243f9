"""The columns of tables for lineage: with Spark's types where the schema is fixed, else with the types of the Parquet files."""

from __future__ import annotations

from functools import lru_cache

from skep.spark.lake.frames import columns_of_file
from skep.spark.lake.place import Place
from skep.spark.options import Table
from skep.spark.schema import MESSAGES, SQL_TYPES
from skep.spark.tables import TABLES


def columns_of(name: str) -> dict[str, str]:
    """The columns of a queue, or of a table of the server: for all of thousands of queues the same object."""
    return _columns(name if name in TABLES else None)


@lru_cache
def _columns(table: Table | None) -> dict[str, str]:
    schema = MESSAGES if table is None else TABLES[table]
    return {field.name: SQL_TYPES[field.type] for field in schema}


def columns_in(folder: Place, name: str) -> dict[str, str]:
    """The columns of a table of the lake."""
    if name == "messages":
        from skep.spark.lake.reading import TYPES

        return dict(column.split(" ", 1) for column in TYPES.split(", "))
    file = next((found.place for found in folder.below_it(".parquet")), None)
    if file is None:
        return {}
    folders = [part.partition("=")[0] for part in folder.below(file).split("/")[:-1]]
    return columns_of_file(file) | dict.fromkeys(folders, "string")
