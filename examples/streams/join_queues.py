"""A join of two queues: each order with its payment, or without one when an hour has passed.

    python examples/streams/join_queues.py

The stream reads the queues `orders` and `payments` of the server at SKEP_URL and writes to the queue `settled`, until Ctrl-C. Start
it again, and it goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session


def settled(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """A row per order: at once when it is paid, and with a null for `paid` when nobody paid within an hour."""
    made = orders.select(
        "partition",
        F.from_json("payload", "number long")["number"].alias("number"),
        F.col("created_at").alias("ordered_at"),
    ).withWatermark("ordered_at", "1 minute")
    paid = F.from_json("payload", "order long, amount double")
    came = payments.select(
        paid["order"].alias("order"), paid["amount"].alias("paid"), F.col("created_at").alias("paid_at")
    ).withWatermark("paid_at", "1 minute")
    in_time = "order = number and paid_at between ordered_at and ordered_at + interval 1 hour"
    return made.join(came, F.expr(in_time), "left_outer").select(
        "partition", F.to_json(F.struct("number", "paid"), {"ignoreNullFields": "false"}).alias("payload")
    )


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queues orders and payments to the queue settled."""
    source = spark.readStream.format("skep").options(groupId="settled", **connection)
    rows = settled(source.load("orders"), source.load("payments"))
    return rows.writeStream.format("skep").options(queue="settled", **connection)


if __name__ == "__main__":
    stream = query(start_session("settled")).option("checkpointLocation", "checkpoints/settled")
    stream.start().awaitTermination()
