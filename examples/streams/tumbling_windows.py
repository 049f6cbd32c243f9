"""Tumbling windows: for each customer and minute one message, with the number and the sum of the orders.

    python examples/streams/tumbling_windows.py

The stream reads the queue `orders` of the server at SKEP_URL and writes to the queue `totals`, until Ctrl-C. Start it again, and
it goes on where it was: each order is in one total, and each total is in the queue once.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session


def totals(orders: DataFrame) -> DataFrame:
    """A row per customer and minute, once the minute is over."""
    order = F.from_json("payload", "total double")
    return (
        orders.withColumn("total", order["total"])
        .withWatermark("created_at", "0 seconds")  # created_at never falls along a queue, so no order is late
        .groupBy("partition", F.window("created_at", "1 minute").alias("minute"))
        .agg(F.count("*").alias("orders"), F.sum("total").alias("total"))
        .select("partition", F.to_json(F.struct("minute", "orders", "total")).alias("payload"))
    )


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue orders to the queue totals."""
    orders = spark.readStream.format("skep").options(groupId="totals", **connection).load("orders")
    return totals(orders).writeStream.format("skep").options(queue="totals", **connection)


if __name__ == "__main__":
    stream = query(start_session("totals")).option("checkpointLocation", "checkpoints/totals")
    stream.start().awaitTermination()
