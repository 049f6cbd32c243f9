"""Lease history and dead letters as frames, page by page over the JSON routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from skep.client.exchange import Call, Request
from skep.client.reading import reader
from skep.errors import Code, SkepError
from skep.spark.link import Link
from skep.spark.schema import HEADERS, INSTANT
from skep.wire.status import LeaseHistoryResponse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE_ROWS = 1000
LEASES = pa.schema(
    [
        ("queue", pa.string()), ("position", pa.int64()), ("group", pa.string()), ("partition", pa.string()),
        ("first_seq", pa.int64()), ("last_seq", pa.int64()), ("messages", pa.int64()), ("completed", pa.int64()),
        ("attempt", pa.int32()), ("leased_at", INSTANT), ("settled_at", INSTANT), ("outcome", pa.string()),
    ]
)  # fmt: skip
DEAD_LETTERS = pa.schema(
    [
        ("queue", pa.string()), ("seq", pa.int64()), ("message_id", pa.string()), ("partition", pa.string()),
        ("source_queue", pa.string()), ("source_seq", pa.int64()), ("group", pa.string()), ("reason", pa.string()),
        ("error", pa.string()), ("attempts", pa.int32()), ("transaction_id", pa.string()), ("trace_id", pa.string()),
        ("headers", HEADERS), ("payload", pa.string()), ("created_at", INSTANT), ("failed_at", INSTANT),
    ]
)  # fmt: skip


def leases(spark: SparkSession, server: Link, queues: Sequence[str]) -> DataFrame:
    """How leases of these queues ended."""
    return _frame(spark, (row for queue in queues for row in _leases(server, queue)), LEASES)


def dead_letters(spark: SparkSession, server: Link, queues: Sequence[str]) -> DataFrame:
    """The dead letters of these queues."""
    return _frame(spark, (row for queue in queues for row in _dead_letters(server, queue)), DEAD_LETTERS)


def _leases(server: Link, queue: str) -> Iterator[dict[str, Any]]:
    after: int | None = 0
    while after is not None:
        query = {"queue": queue, "after": str(after), "limit": str(PAGE_ROWS)}
        page = server.run(
            Call(Request("GET", "/api/v1/status/lease-history", query=query), reader(LeaseHistoryResponse))
        )
        for one in page.leases:
            row = msgspec.structs.asdict(one)
            yield {"queue": queue, "group": row.pop("consumer_group"), **row}
        after = page.after


def _dead_letters(server: Link, queue: str) -> Iterator[dict[str, Any]]:
    try:
        for one in server.client.dead_letters(queue, source_queue=queue):
            row = msgspec.structs.asdict(one)
            headers = msgspec.json.decode(bytes(row["headers"]))
            yield row | {
                "group": row["consumer_group"], "message_id": row["id"], "payload": bytes(row["payload"]).decode(),
                "headers": None if headers is None else list(headers.items()), "reason": str(row["reason"]),
            }  # fmt: skip
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise


def _frame(spark: SparkSession, rows: Iterator[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema))
