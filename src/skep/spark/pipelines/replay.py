"""replay: rows of the lake as messages to push again.

The transaction id (idempotency key) is made of queue, generation and seq. So when a run is ended and started again, a row that it
pushes twice is a duplicate, and is stored once within the queue's deduplication window.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it


def replay(
    rows: DataFrame,
    *,
    where: Column | None = None,
    payload: Column | None = None,
    to: str | None = None,
    label: str = "replay",
) -> DataFrame:
    """The rows for which ``where`` holds as new messages, in the order of their queue and seq.

    ``payload`` replaces their payload, ``to`` their queue. Another ``label`` makes them other messages than those of an earlier
    replay. `source_queue`, `source_generation` and `source_seq` tell where they come from.
    """
    chosen = rows if where is None else rows.where(where)
    # After a queue was deleted and made anew, its seqs begin at 1 again and name other messages.
    is_later = "generation" in rows.columns
    later = F.when(F.col("generation") > 1, F.concat(F.lit("generation "), "generation")) if is_later else F.lit(None)
    origin = F.concat_ws("/", F.lit(label), F.col("queue"), later, F.col("seq").cast("string"))
    headers = F.coalesce(F.col("headers"), F.create_map().cast("map<string,string>"))
    return chosen.select(
        (F.col("queue") if to is None else F.lit(to)).alias("queue"),
        "partition",
        (F.col("payload") if payload is None else payload).alias("payload"),
        origin.alias("transaction_id"),
        "trace_id",
        headers.alias("headers"),
        F.col("queue").alias("source_queue"),
        (F.col("generation") if is_later else F.lit(1)).alias("source_generation"),
        F.col("seq").alias("source_seq"),
    ).orderBy("source_queue", "source_generation", "source_seq")
