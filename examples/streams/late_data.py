"""Event time and late data: totals by the minute in which an order was made, and a queue for orders that came too late.

    python examples/streams/late_data.py

An order names the time at which it was made (`at`): a till that was offline sends its orders later. The stream reads the queue
`orders` of the server at SKEP_URL. An order that comes within ten minutes is in the total of its minute, in the queue `totals`; any
later one goes to the queue `late`. None is dropped. Start it again after Ctrl-C, and it goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session

PATIENCE = "10 minutes"


def totals_and_late(orders: DataFrame) -> DataFrame:
    """Rows for two queues, named by the column queue."""
    order = F.from_json("payload", "total double, at timestamp")
    made = orders.select(
        "partition",
        "payload",
        order["total"].alias("total"),
        # A clock that is ahead must not move the watermark, or orders with the right time would be late.
        F.least(F.coalesce(order["at"], "created_at"), "created_at").alias("at"),
        (order["at"] < F.col("created_at") - F.expr(f"interval {PATIENCE}")).alias("late"),
    )
    totals = (
        made.where("late is not true")
        .withWatermark("at", PATIENCE)
        .groupBy("partition", F.window("at", "1 minute").alias("minute"))
        .agg(F.count("*").alias("orders"), F.sum("total").alias("total"))
        .select(
            F.lit("totals").alias("queue"),
            "partition",
            F.to_json(F.struct("minute", "orders", "total")).alias("payload"),
        )
    )
    return totals.union(made.where("late").select(F.lit("late"), "partition", "payload"))


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue orders to the queues totals and late."""
    orders = spark.readStream.format("skep").options(groupId="totals", **connection).load("orders")
    return totals_and_late(orders).writeStream.format("skep").options(**connection)


if __name__ == "__main__":
    stream = query(start_session("totals and late")).option("checkpointLocation", "checkpoints/late")
    stream.start().awaitTermination()
