"""Deduplication: of orders with the same number that come within an hour, only the first goes on.

    python examples/streams/dedup.py

The stream reads the queue `orders` of the server at SKEP_URL and writes to the queue `unique`, until Ctrl-C. Start it again, and it
goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session


def unique(orders: DataFrame) -> DataFrame:
    """The orders without repeats. What makes an order the same is its number, which only the payload has."""
    order = F.from_json("payload", "number long")
    return (
        orders.withColumn("number", order["number"])
        .withWatermark("created_at", "1 hour")  # for so long Spark knows a number
        .dropDuplicatesWithinWatermark(["number"])
        .select("partition", "payload", "headers", "trace_id")
    )


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue orders to the queue unique."""
    orders = spark.readStream.format("skep").options(groupId="unique", **connection).load("orders")
    return unique(orders).writeStream.format("skep").options(queue="unique", **connection)


if __name__ == "__main__":
    stream = query(start_session("unique")).option("checkpointLocation", "checkpoints/unique")
    stream.start().awaitTermination()
