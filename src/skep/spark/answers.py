"""Answers to Spark's Java part: the schema and the filters of a table, its range as it is now, or the queues of the server.

Spark asks a Python data source for nothing but a schema. So an answer is a schema, whose last column is no column: its metadata is
the rest of the answer as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from skep.errors import SkepError
from skep.spark import handed, offset_ranges, push_down
from skep.spark.link import link
from skep.spark.options import SourceOptions, source_options
from skep.spark.source import lake_index

ANSWER = "skep"
"""The name of the last column, and of its metadata."""


COMMENTS = {
    "queue": "the queue's name",
    "partition": "the key whose messages are in order",
    "seq": "the position in the queue's log (offset)",
    "message_id": "the message's own id",
    "transaction_id": "the idempotency key, null when none was given",
    "trace_id": "the trace, the message's own id when none was given",
    "payload": "the message as it was pushed",
    "headers": "null when there are none",
    "created_at": "when the message entered the log",
}
"""What DESCRIBE says of a queue's columns."""


def answer(given: Mapping[str, str], offered: Callable[[SourceOptions], pa.Schema]) -> StructType:
    """The answer to the question in the options. An error is an answer, too: Spark would put a traceback around it."""
    columns: list[StructField] = []
    try:
        options = source_options(given)
        schema = offered(options)
        found = _answer(options, schema.names)
        columns = from_arrow_schema(schema).fields
        if options.push_down.asks == "table" and options.table is None:
            columns = [_commented(column) for column in columns]
    except SkepError as error:
        found = {"error": {"code": error.code, "message": str(error)}}
    told = msgspec.json.encode(found).decode()
    return StructType([*columns, StructField(ANSWER, StringType(), True, {ANSWER: told})])


def _answer(options: SourceOptions, columns: Sequence[str]) -> dict[str, Any]:
    server = link(options.connection)
    if options.push_down.asks == "queues":
        return {"queues": [{"name": one.name, "namespace": one.settings.namespace} for one in server.queues()]}
    # A field of a type may have the name of a column of messages, and is another thing.
    filters = push_down.MESSAGE_FILTERS if options.spec is None else {}
    if options.table is not None:
        from skep.spark import tables

        filters = tables.filters(options)
    found: dict[str, Any] = {
        "filters": {name: filters[name] for name in filters if name in columns},
        "by_java": handed.is_possible(options),
    }
    if options.push_down.asks == "table" and options.table is None:
        found["pinned"] = offset_ranges.pin(server, options, lake_index(options))
    return found


def _commented(column: StructField) -> StructField:
    comment = COMMENTS.get(column.name)
    return StructField(column.name, column.dataType, column.nullable, None if comment is None else {"comment": comment})
