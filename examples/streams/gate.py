"""A gate: calls go on at the rate that each customer may have, and those above it wait for their turn.

    python examples/streams/gate.py

The stream reads the queue `calls` of the server at SKEP_URL and writes to the queue `paced`, until Ctrl-C: for each customer ten calls
at once, then one a second. It gives each call the time of its turn (`deliver_at`), and the server delivers it then. So nothing
is dropped, and nothing waits in Spark. Start it again, and it goes on where it was.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

from skep.spark.session import start_session

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
"""The setting that `transformWithState` needs."""


class Gate(StatefulProcessor):
    """A token bucket per customer. Its state is one number: the time at which the bucket is full again."""

    def __init__(self, every_seconds: float, at_once: int) -> None:
        self._every, self._burst = every_seconds, (at_once - 1) * every_seconds

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once per task."""
        self._full = handle.getValueState("full", "at double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """The calls of one customer in this batch."""
        now = time.time()
        state = self._full.get()
        full = now if state is None else state[0]
        for row in sorted(rows, key=lambda row: row.seq):
            turn = max(now, full - self._burst)
            full = max(now, full) + self._every
            yield Row(partition=key[0], payload=row.payload, deliver_at=datetime.fromtimestamp(turn, UTC))
        self._full.update((full,))

    def close(self) -> None:
        """There is nothing to release."""


def paced(calls: DataFrame, every_seconds: float = 1.0, at_once: int = 10) -> DataFrame:
    """The calls, each with the time of its turn."""
    rows = "partition string, payload string, deliver_at timestamp"
    return calls.groupBy("partition").transformWithState(Gate(every_seconds, at_once), rows, "append", "None")


def query(spark: SparkSession, **connection: str) -> DataStreamWriter:
    """From the queue calls to the queue paced."""
    calls = spark.readStream.format("skep").options(groupId="paced", maxOffsetsPerTrigger="1000", **connection)
    return paced(calls.load("calls")).writeStream.format("skep").options(queue="paced", **connection)


if __name__ == "__main__":
    stream = query(start_session("paced", config=STATE)).option("checkpointLocation", "checkpoints/paced")
    stream.start().awaitTermination()
