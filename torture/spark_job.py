"""The Spark job of a round: a stream that copies one queue into another, by the Spark source and the Spark sink.

This process and its Java are the driver. It never ends by itself unless its query fails. `python -m torture.spark_job '{…}'` runs it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

GROUP = "spark"
"""The external group that follows the stream: the source is copied when this group has no lag."""


class Job(Struct, frozen=True):
    """What to copy, and how."""

    url: str
    source: str
    sink: str
    checkpoint: str
    master: str
    sign: str
    """A file that the job writes as soon as its query runs: it has the folder of the files of executors, if there are any."""
    rows_of_a_batch: int


def main(job: Job) -> None:
    """Copy all there is and all that comes.

    Copies have no transaction ids: the server would drop a doubled copy as a duplicate, and nobody would see what the sink did.
    """
    import pyspark

    from skep.spark.jvm import JAR
    from skep.spark.session import JAVA_OPTIONS, QUICK_START, SMALL, start_session

    executor = {
        "spark.executor.memory": "512m",
        "spark.executor.extraClassPath": str(JAR),
        "spark.executor.extraJavaOptions": QUICK_START[JAVA_OPTIONS],
        "spark.deploy.maxExecutorRetries": "-1",  # executors may die as often as they like
    }
    spark = start_session("torture", master=job.master, quick_start=True, config=SMALL | executor)
    limits = {"maxOffsetsPerTrigger": str(job.rows_of_a_batch), "minPartitions": "2", "waitSeconds": "0.5"}
    messages = spark.readStream.format("skep").options(url=job.url, groupId=GROUP, **limits).load(job.source)
    copies = messages.selectExpr(
        "partition", "to_json(struct(message_id AS id, seq, transaction_id, payload)) AS payload"
    )
    writer = copies.writeStream.format("skep").options(url=job.url, queue=job.sink)
    query = writer.option("checkpointLocation", job.checkpoint).start()
    # Spark has no setting for this place, and nobody but us removes what is there.
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    Path(job.sign).write_text(str(Path(home) / "work" / spark.sparkContext.applicationId), encoding="utf-8")
    query.awaitTermination()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Job))
