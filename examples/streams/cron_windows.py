"""Cron windows: one message per machine and shift, with the parts that it made; shifts begin at 6, 14 and 22 o'clock in Berlin.

    python examples/streams/cron_windows.py

Any cron expression will do, and the clocks may change. The stream reads the queue `parts` of the server at SKEP_URL and writes to the
queue `shifts`, until Ctrl-C. Start it again, and it goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.cron_windows import cron_window
from skep.spark.session import start_session


def shifts(parts: DataFrame) -> DataFrame:
    """A row per machine and shift, once the shift is over."""
    part = F.from_json("payload", "good boolean")
    return (
        parts.withColumn("good", part["good"])
        .withWatermark("created_at", "0 seconds")  # created_at never falls along a queue, so no part is late
        .withColumn("shift", cron_window("created_at", "0 6,14,22 * * *", "Europe/Berlin"))
        .groupBy("partition", "shift")
        .agg(F.count("*").alias("parts"), F.count_if("good").alias("good"))
        .select("partition", F.to_json(F.struct("shift", "parts", "good")).alias("payload"))
    )


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue parts to the queue shifts."""
    parts = spark.readStream.format("skep").options(groupId="shifts", **connection).load("parts")
    return shifts(parts).writeStream.format("skep").options(queue="shifts", **connection)


if __name__ == "__main__":
    stream = query(start_session("shifts")).option("checkpointLocation", "checkpoints/shifts")
    stream.start().awaitTermination()
