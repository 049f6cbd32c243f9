"""Sliding windows: every 15 minutes one message per sensor, with the mean and the maximum of its last hour.

    python examples/streams/sliding_windows.py

The stream reads the queue `readings` of the server at SKEP_URL and writes to the queue `levels`, until Ctrl-C. Start it again, and
it goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session


def levels(readings: DataFrame) -> DataFrame:
    """A row per sensor and hour, for the hours that begin at :00, :15, :30 and :45. Each reading is in four of them."""
    reading = F.from_json("payload", "celsius double")
    return (
        readings.withColumn("celsius", reading["celsius"])
        .withWatermark("created_at", "0 seconds")  # created_at never falls along a queue, so no reading is late
        .groupBy("partition", F.window("created_at", "1 hour", "15 minutes").alias("hour"))
        .agg(F.avg("celsius").alias("mean"), F.max("celsius").alias("highest"))
        .select("partition", F.to_json(F.struct("hour", "mean", "highest")).alias("payload"))
    )


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue readings to the queue levels."""
    readings = spark.readStream.format("skep").options(groupId="levels", **connection).load("readings")
    return levels(readings).writeStream.format("skep").options(queue="levels", **connection)


if __name__ == "__main__":
    stream = query(start_session("levels")).option("checkpointLocation", "checkpoints/levels")
    stream.start().awaitTermination()
