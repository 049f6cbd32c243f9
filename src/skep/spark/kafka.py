"""The options of Spark's Kafka connector beside ours, for users who know that connector; `docs/spark.md` has the same table."""

from __future__ import annotations

from typing import NamedTuple


class Beside(NamedTuple):
    """Our counterpart of an option of the Kafka connector, if there is one, and what to know about it."""

    ours: str | None
    about: str = ""


SAME = "the same"
KAFKA: dict[str, Beside] = {
    "kafka.bootstrap.servers": Beside("url", "the server's URL; several are divided by commas"),
    "subscribe": Beside("subscribe", "queues instead of topics"),
    "subscribePattern": Beside("subscribePattern", "a regular expression of RE2, over the whole name"),
    "assign": Beside("partitions", "partitions are keys, not numbers; subscribe names the queue"),
    "startingOffsets": Beside("startingOffsets", "one number per queue; see offsetMeaning"),
    "endingOffsets": Beside("endingOffsets", "one number per queue; see offsetMeaning"),
    "startingTimestamp": Beside("startingTimestamp", SAME),
    "endingTimestamp": Beside("endingTimestamp", SAME),
    "startingOffsetsByTimestamp": Beside("startingTimestamp", "one time for all queues"),
    "endingOffsetsByTimestamp": Beside("endingTimestamp", "one time for all queues"),
    "startingOffsetsByTimestampStrategy": Beside(None, "a time after the last message is where the next one will be"),
    "failOnDataLoss": Beside("failOnDataLoss", SAME),
    "maxOffsetsPerTrigger": Beside("maxOffsetsPerTrigger", SAME),
    "minOffsetsPerTrigger": Beside("minOffsetsPerTrigger", "the same, but ignored by availableNow"),
    "maxTriggerDelay": Beside("maxTriggerDelay", "with its unit, such as 15m"),
    "minPartitions": Beside("minPartitions", SAME),
    "maxRecordsPerPartition": Beside("minPartitions", "a task has a million rows at the most in any case"),
    "kafka.group.id": Beside("groupId", "the group on the server follows the query; it is not read by it"),
    "groupIdPrefix": Beside("groupId", "name the group itself"),
    "includeHeaders": Beside(None, "headers is always a column, a map of texts"),
    "kafkaConsumer.pollTimeoutMs": Beside("retrySeconds", "in seconds"),
    "fetchOffset.numRetries": Beside("retrySeconds", "a deadline instead of a number of tries"),
    "fetchOffset.retryIntervalMs": Beside("retrySeconds", "a deadline; the pauses are ours"),
    "topic": Beside("queue", "of a write; subscribe of a read"),
}  # fmt: skip
"""Every option of source and sink that the documentation of Spark's Kafka connector lists."""


def hint(name: str) -> str | None:
    """The text that tells what to write instead of an option of Kafka; None for a name that Kafka does not have."""
    known = {kafka.lower(): (kafka, beside) for kafka, beside in KAFKA.items()}
    for written in (name.lower(), f"kafka.{name.lower()}"):
        if written in known:
            kafka, (ours, about) = known[written]
            told = "has no counterpart here" if ours is None else f"is {ours} here"
            return f"{kafka} of the Kafka connector {told}" + (f": {about}" if about and about != SAME else "")
    if name.lower().startswith("kafka."):
        return "settings of Kafka's consumers and producers mean nothing here; leave it out"
    return None
