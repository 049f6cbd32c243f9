"""Session windows: one message per visit, which ends when a visitor has done nothing for 30 minutes.

    python examples/streams/session_windows.py

The stream reads the queue `clicks` of the server at SKEP_URL and writes to the queue `visits`, until Ctrl-C. Start it again, and it
goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session


def visits(clicks: DataFrame) -> DataFrame:
    """A row per visit, once it has ended."""
    click = F.from_json("payload", "page string")
    return (
        clicks.withColumn("page", click["page"])
        .withWatermark("created_at", "0 seconds")  # created_at never falls along a queue, so no click is late
        .groupBy("partition", F.session_window("created_at", "30 minutes").alias("visit"))
        .agg(
            F.min("created_at").alias("began"),
            F.max("created_at").alias("ended"),
            F.count("*").alias("clicks"),
            F.min_by("page", "seq").alias("first_page"),
        )
        .select("partition", F.to_json(F.struct("began", "ended", "clicks", "first_page")).alias("payload"))
    )


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue clicks to the queue visits."""
    clicks = spark.readStream.format("skep").options(groupId="visits", **connection).load("clicks")
    return visits(clicks).writeStream.format("skep").options(queue="visits", **connection)


if __name__ == "__main__":
    stream = query(start_session("visits")).option("checkpointLocation", "checkpoints/visits")
    stream.start().awaitTermination()
