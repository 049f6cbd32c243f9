"""A Spark driver as a process of its own, to be killed: it copies a queue into a lake or into another queue, and ends when all
of it is done. Run as `python -m tests.support.spark_driver '{…}'`.
"""

from __future__ import annotations

import sys

import msgspec
from msgspec import Struct

QUERY_SECONDS = 1_800


class Job(Struct, frozen=True):
    """What to copy, and where to."""

    url: str
    source: str
    checkpoint: str
    lake: str | None
    queue: str | None
    rows_of_a_batch: int
    older: str | None = None
    """A lake that has the older messages of the source."""


def main(job: Job) -> None:
    """Copy all there is."""
    from skep.spark.session import start_session

    spark = start_session("skep kill test", master="local[2]", quick_start=True)
    spark.sparkContext.setLogLevel("OFF")
    options = {"url": job.url, "maxOffsetsPerTrigger": str(job.rows_of_a_batch), "groupId": "copier"}
    if job.older is not None:
        options["lake"] = job.older
    frame = spark.readStream.format("skep").options(**options, minPartitions="4").load(job.source)
    if job.lake is not None:
        writer = frame.writeStream.format("parquet").option("path", job.lake)
    else:
        # Rows pass through Python on their way, so that there are workers to kill in the middle of them.
        passed = frame.select("partition", "payload").mapInArrow(
            lambda batches: batches, "partition string, payload string"
        )
        writer = passed.writeStream.format("skep").options(url=job.url, queue=job.queue, stageRows="5000")
    query = writer.option("checkpointLocation", job.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(QUERY_SECONDS)
    spark.stop()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Job))
