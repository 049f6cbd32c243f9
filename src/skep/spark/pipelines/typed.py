"""typed: messages with a column for each field of their type, and beside them the messages that do not fit, each with the reason.

Every message is in exactly one of the two. Spark itself reads the messages where it can (`skep.spark.columns.fields`); all others go
to Python in the same pass, which has the same values, and the words for what does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from pyspark.sql.pandas.functions import arrow_udf

from skep.spark.columns.fields import field_columns, field_struct
from skep.spark.pipelines.quality import FAILED, quality
from skep.spark.schema import sql_type
from skep.spark.typed.declared import TypedQueue, typed_queue
from skep.spark.typed.fields import TAKEN, arrow_type, column_names
from skep.spark.typed.rows import REASONS, read_payloads
from skep.spec import App

TOLD = ("error", "field", "value")
"""What is told of a message that does not fit its type."""
_READ, _DOUBTFUL, _VERDICT, _OWN = "__skep_typed", "__skep_doubtful", "__skep_verdict", "__skep_"


@dataclass(frozen=True)
class Typed:
    """The messages of a queue, with their fields or with the reason why they are rejected.

    ``outcomes`` has a row for each message; ``rows`` and ``rejects`` are its two halves. If you write both, persist ``outcomes``
    first, or the messages are read twice.
    """

    outcomes: DataFrame
    kept: tuple[str, ...]
    columns: tuple[str, ...]
    """The columns of the fields."""

    @property
    def error(self) -> Column:
        """Of the outcomes, why a message is rejected; null where it is not."""
        return F.col(f"{_OWN}error")

    @property
    def rows(self) -> DataFrame:
        """The columns of a message that were there, but for the payload, and a column for each field."""
        return self.outcomes.where(self.error.isNull()).select(*self.kept, *self.columns)

    @property
    def rejects(self) -> DataFrame:
        """The columns of a message that were there, the payload, and `error`, `field`, `value` and `failed_checks`."""
        reasons = [F.col(f"{_OWN}{name}").alias(name) for name in REASONS.names]
        return self.outcomes.where(self.error.isNotNull()).select(
            *self.kept, F.col(f"{_OWN}payload").alias("payload"), *reasons
        )


def typed(messages: DataFrame, app: App, queue: str, *, payload: str = "payload") -> Typed:
    """The typed rows and the rejects of a queue's messages, by a valid app.

    The messages may come from the queue, from the lake, or from a test: of their columns all that a message or the lake has are kept.
    """
    declared = typed_queue(app, queue)
    names = column_names(declared.fields)
    kept = tuple(
        name for name in messages.columns if name in TAKEN and name not in (payload, "payload", "payload_bytes")
    )
    frame = messages
    if declared.rejects_by_checks:
        frame = quality(frame, declared.app, queue, payload=payload).rows
    else:
        frame = frame.withColumn(FAILED, F.array().cast(sql_type(REASONS.field("failed_checks").type)))
    row = field_struct(frame.sparkSession, declared.queue, F.col(payload))
    whole = F.col(payload).alias(f"{_OWN}payload")
    frame = frame.select(*kept, whole, F.col(FAILED).alias(f"{_OWN}failed_checks"), *_named(row))
    # Spark does not move an expression with the partition's id behind the Python step. Without it, all payloads would
    # go to Python.
    is_doubtful = (F.lit(True) if row is None else F.col(_READ).isNull()) & (F.spark_partition_id() >= 0)
    doubtful = F.when(is_doubtful, F.coalesce(F.col(f"{_OWN}payload"), F.lit("")))
    frame = frame.withColumn(_DOUBTFUL, doubtful).withColumn(_VERDICT, _read_in_python(declared, F.col(_DOUBTFUL)))
    verdict = F.col(_VERDICT)
    values = {name: verdict[f"f{index}"] for index, name in enumerate(declared.fields)}
    if row is not None:
        is_read = F.col(_READ).isNotNull()
        quick = field_columns(F.col(_READ), declared.queue)
        values = {name: F.when(is_read, quick[name]).otherwise(value) for name, value in values.items()}
    fields = [value.alias(names[name]) for name, value in values.items()]
    failed = F.col(f"{_OWN}failed_checks")
    words = F.transform(failed, lambda one: F.concat_ws(": ", one["check"], one["error"]))
    unmet = F.when(F.size(failed) > 0, F.array_join(words, "; "))
    reasons = [
        F.coalesce(verdict["error"], unmet).alias(f"{_OWN}error"),
        verdict["field"].alias(f"{_OWN}field"),
        verdict["value"].alias(f"{_OWN}value"),
    ]
    outcomes = frame.select(*kept, *fields, f"{_OWN}payload", f"{_OWN}failed_checks", *reasons)
    return Typed(outcomes, kept, tuple(names.values()))


def _named(row: Column | None) -> list[Column]:
    return [] if row is None else [row.alias(_READ)]


def _read_in_python(declared: TypedQueue, payload: Column) -> Column:
    """The fields of the given payloads, `f0` and so on, or why a payload does not fit."""
    types = {f"f{index}": arrow_type(field.type) for index, field in enumerate(declared.fields.values())}
    schema = pa.struct(list((types | dict.fromkeys(TOLD, pa.string())).items()))

    def read(payloads: pa.Array) -> pa.Array:
        if payloads.null_count == len(payloads):
            return pa.nulls(len(payloads), schema)
        found = read_payloads(declared, payloads.cast(pa.binary()))
        told = [(None,) * len(TOLD) if one is None else (str(one), one.field, one.value) for one in found.misfits]
        words = [pa.array(each, pa.string()) for each in zip(*told, strict=True)]
        return pa.StructArray.from_arrays([*found.columns, *words], fields=list(schema))

    # Spark reads the type hints, which are only strings in this file.
    read.__annotations__ = {"payloads": pa.Array, "return": pa.Array}
    udf: Any = arrow_udf  # its stubs do not know a function that is typed by hints
    # A deterministic function would be called again for each use of its result, and before each filter on it.
    return cast(Column, udf(read, sql_type(schema)).asNondeterministic()(payload))
