"""Enrichment: each order with the country of its customer, from a table.

    skep pipeline run archive --queue customers --every 1m
    python examples/streams/enrichment.py

The customers are messages too, and the first command brings them into the lake. The stream reads the queue `orders` of the server at
SKEP_URL and writes to the queue `enriched`, until Ctrl-C. Start it again, and it goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from skep.spark.session import start_session


def newest(customers: DataFrame) -> DataFrame:
    """The newest message of each customer, whose name is the partition."""
    payload = F.max_by("payload", F.struct("generation", "seq"))
    return customers.groupBy("partition").agg(F.from_json(payload, "country string")["country"].alias("country"))


def enriched(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """The orders, with a country where the customer is known. Each order is one row, whatever the table has."""
    order = F.from_json("payload", "number long")
    return orders.join(F.broadcast(customers), "partition", "left").select(
        "partition", F.to_json(F.struct(order["number"].alias("number"), "country")).alias("payload")
    )


def query(spark: SparkSession, lake: str = "lake", **connection: str) -> DataStreamWriter:
    """From the queue orders, with the lake's customers, to the queue enriched."""

    def write(orders: DataFrame, batch: int) -> None:
        """Reads the table anew for each batch. Under its `writeId` a batch is written once, however often it is run."""
        customers = newest(spark.read.parquet(f"{lake}/messages").where("queue = 'customers'"))
        rows = enriched(orders, customers).write.format("skep").options(queue="enriched", **connection)
        rows.option("writeId", f"enriched-{batch}").mode("append").save()

    orders = spark.readStream.format("skep").options(groupId="enriched", **connection).load("orders")
    return orders.writeStream.foreachBatch(write)


if __name__ == "__main__":
    stream = query(start_session("enriched")).option("checkpointLocation", "checkpoints/enriched")
    stream.start().awaitTermination()
