"""Small frames whose answers can be worked out by hand. Times are seconds after `START`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)

MESSAGES = (
    "queue string, partition string, seq bigint, message_id string, transaction_id string, trace_id string, "
    "payload string, headers map<string,string>, created_at timestamp"
)
LEASES = (
    "queue string, position bigint, group string, partition string, first_seq bigint, last_seq bigint, messages bigint, "
    "completed bigint, attempt int, leased_at timestamp, settled_at timestamp, outcome string"
)
LETTERS = (
    "queue string, seq bigint, message_id string, partition string, source_queue string, source_seq bigint, group string, "
    "reason string, error string, attempts int, transaction_id string, trace_id string, headers map<string,string>, "
    "payload string, created_at timestamp, failed_at timestamp"
)


def shop_spec(*checks: str) -> str:
    """A spec with a queue `Placed` whose messages become commands; checks as name, what holds and what to do."""
    return f"""
app Shop {{
  queue Placed {{
    message_type {{
      number: int
      cents: int
    }}
    map_to: command Order.Place {{
      id: string(number)
      euros: cents / 100
    }}
    {" ".join(checks)}
  }}
}}
"""


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def message(
    queue: str, seq: int, created: float, *, partition: str = "p", trace: str = "t", payload: str = "{}", **more: Any
) -> dict[str, Any]:
    named = {"message_id": f"{queue}-{seq}", "transaction_id": None, "headers": None, **more}
    return {
        "queue": queue, "seq": seq, "partition": partition, "trace_id": trace, "payload": payload,
        "created_at": at(created), **named,
    }  # fmt: skip


def lease(
    queue: str, seqs: tuple[int, int], times: tuple[float, float], outcome: str = "completed", *, group: str = "g",
    partition: str = "p", messages: int | None = None, completed: int | None = None, attempt: int = 1,
) -> dict[str, Any]:  # fmt: skip
    first, last = seqs
    count = last - first + 1 if messages is None else messages
    done = (count if outcome == "completed" else 0) if completed is None else completed
    return {
        "queue": queue, "group": group, "partition": partition, "first_seq": first, "last_seq": last, "messages": count,
        "completed": done, "attempt": attempt, "leased_at": at(times[0]), "settled_at": at(times[1]), "outcome": outcome,
    }  # fmt: skip


def letter(
    source_seq: int, failed: float, error: str | None, *, queue: str = "orders", payload: str = "{}", **more: Any
) -> dict[str, Any]:
    rest = {
        "seq": source_seq, "message_id": f"dead-{source_seq}", "partition": "p", "group": "g", "reason": "max_attempts",
        "attempts": 3, "transaction_id": None, "trace_id": "t", "headers": None, **more,
    }  # fmt: skip
    return {
        "queue": f"{queue}.dead", "source_queue": queue, "source_seq": source_seq, "error": error, "payload": payload,
        "created_at": at(0), "failed_at": at(failed), **rest,
    }  # fmt: skip


def _frame(spark: SparkSession, rows: list[dict[str, Any]], schema: str) -> DataFrame:
    names = [column.split()[0] for column in schema.split(", ")]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], schema)


def messages_of(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return _frame(spark, list(rows), MESSAGES)


def leases_of(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return _frame(spark, [{**row, "position": number} for number, row in enumerate(rows, 1)], LEASES)


def letters_of(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return _frame(spark, list(rows), LETTERS)


def kept(frame: DataFrame) -> DataFrame:
    """The rows of a frame as a table would have them: what they were computed from is not computed again."""
    return frame.sparkSession.createDataFrame(frame.collect(), frame.schema)


def dicts(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows]
