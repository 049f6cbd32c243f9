"""Commands: the messages of a queue, mapped by its `map_to`. Messages that cannot be mapped are rejected with the reason.

The mapping is one column, without Python for each row. Where the column has no value, because the message does not fit or because
only the evaluator can tell, the row goes to the evaluator in the same pass. So every message has the same outcome as with a worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skep.entities.inputs import compile_input
from skep.errors import Code, SkepError
from skep.spark.columns.mapping import mapping_column
from skep.spark.columns.message import message_columns
from skep.spark.columns.values import Uncompiled, nothing
from skep.spark.judging import judged, mapping_judge
from skep.spec import App
from skep.spec.types import STRING

KEPT = ("queue", "partition", "seq", "message_id", "transaction_id", "trace_id", "created_at")
"""The columns of a message that both frames keep, if they are there."""
_INPUT, _DOUBTFUL, _VERDICT = "__skep_input", "__skep_doubtful", "__skep_verdict"


@dataclass(frozen=True)
class Commands:
    """The outcomes of a queue's messages.

    ``outcomes`` has a row for each message; `input` or `error` is null. ``commands`` and ``rejects`` are its two halves. If you write
    both, persist ``outcomes`` first, or the queue is read twice. ``left_out`` names the fields that the evaluator makes for
    every message, and why.
    """

    outcomes: DataFrame
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> DataFrame:
        """`entity`, `command` and `input` (JSON), besides the kept columns of the message."""
        kept = [name for name in self.outcomes.columns if name in KEPT]
        return self.outcomes.where("error is null").select(*kept, "entity", "command", "input")

    @property
    def rejects(self) -> DataFrame:
        """`payload`, `code`, `error`, `field`, `expression` and `value`, besides the kept columns of the message."""
        kept = [name for name in self.outcomes.columns if name in KEPT]
        told = ("payload", "code", "error", "field", "expression", "value")
        return self.outcomes.where("error is not null").select(*kept, *told)

    def explain(self) -> str:
        """Tell in words which fields columns make, and which the evaluator makes."""
        if not self.left_out:
            return "every field is made by columns; messages that columns have no value for go to the evaluator"
        lines = [f"  {name}: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(["every message goes to the evaluator, since columns cannot make:", *lines])


def commands(messages: DataFrame, app: App, queue: str, *, payload: str = "payload") -> Commands:
    """The commands of a queue's messages, by a valid app."""
    spec = app.queues.get(queue)
    mapping = None if spec is None else compile_input(app, spec)
    if spec is None or spec.map_to is None or mapping is None:
        raise SkepError(Code.INVALID_REQUEST, f"the queue {queue!r} of {app.name} has no map_to", queue=queue)
    kept = [name for name in messages.columns if name in KEPT]
    try:
        message = message_columns(messages, spec, payload)
        made = mapping_column(mapping, message)
        column, left_out, frame = made.column, made.left_out, made.frame
    except Uncompiled as reason:
        column, left_out, frame = nothing(STRING), {"message_type": str(reason)}, messages
    # Only the payloads for which the column has no value go to the evaluator.
    frame = frame.select(*kept, F.col(payload).alias("payload"), column.alias(_INPUT))
    # Spark does not move an expression with the partition's id behind the Python step. Without it, all payloads would
    # go to Python.
    is_doubtful = F.col(_INPUT).isNull() & (F.spark_partition_id() >= 0)
    doubtful = F.when(is_doubtful, F.coalesce(F.col("payload"), F.lit("")))
    frame = frame.select(*kept, _INPUT, doubtful.alias(_DOUBTFUL))
    verdict = F.col(_VERDICT)
    outcomes = frame.withColumn(_VERDICT, judged(mapping_judge, app, queue, F.col(_DOUBTFUL))).select(
        *kept,
        F.lit(spec.map_to.entity).alias("entity"),
        F.lit(spec.map_to.command).alias("command"),
        F.coalesce(F.col(_INPUT), verdict["made"]).alias("input"),
        F.when(verdict["error"].isNotNull(), F.col(_DOUBTFUL)).alias("payload"),
        *[verdict[name].alias(name) for name in ("code", "error", "field", "expression", "value")],
    )
    return Commands(outcomes, left_out)
