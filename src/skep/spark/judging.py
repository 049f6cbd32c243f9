"""Judges: they evaluate the messages for which a Spark column has no value, and find the value, or the error that a worker would report.

They run in Spark's Python workers on Arrow batches. All other rows of a batch are null, so a batch without doubtful rows costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from skep.entities import encoded
from skep.entities.inputs import InputReader, compile_input, compile_reading
from skep.entities.refusal import not_a_condition, without_value
from skep.errors import SkepError
from skep.spec import App, ExpressionError, from_json, to_json
from skep.spec.expressions import Expression, compile_expression, evaluate
from skep.spec.types import BOOL
from skep.spec.variables import of_queue

JUDGES_KEPT = 32
UNMET = "does not hold"
VERDICT = "struct<made:string,code:string,error:string,field:string,expression:string,value:string>"
"""The verdict on a message: ``made`` is JSON, or there is a code and an error."""
_VERDICT = pa.struct([(name, pa.string()) for name in ("made", "code", "error", "field", "expression", "value")])

Verdict = dict[str, str | None]
Judge = Callable[[bytes], Verdict]


@lru_cache(JUDGES_KEPT)
def mapping_judge(document: str, queue: str) -> Judge:
    """The judge of a queue's mapping, from the app as JSON."""
    app = from_json(document)
    spec = app.queues[queue]
    read, mapping = compile_reading(spec), compile_input(app, spec)
    assert mapping is not None
    return lambda payload: _judged(payload, lambda given: encoded(mapping.made(read.fields(given))))


@lru_cache(JUDGES_KEPT)
def checks_judge(document: str, queue: str) -> Judge:
    """The judge of a queue's checks; it makes a JSON list of the checks that do not hold, each with the reason."""
    spec = from_json(document).queues[queue]
    conditions = {name: compile_expression(check.holds, of_queue(spec), BOOL) for name, check in spec.checks.items()}
    read = compile_reading(spec)
    return lambda payload: _judged(payload, lambda given: _unmet(conditions, read, given))


def _unmet(conditions: dict[str, Expression], read: InputReader, payload: bytes) -> bytes:
    try:
        fields = read.fields(payload)
    except SkepError as error:
        # A message that cannot be read fails every check.
        return encoded([{"check": name, "error": error.message} for name in conditions])
    reasons = ((name, _reason(condition, fields)) for name, condition in conditions.items())
    return encoded([{"check": name, "error": reason} for name, reason in reasons if reason is not None])


def _reason(condition: Expression, fields: dict[str, object]) -> str | None:
    try:
        holds = evaluate(condition, fields)
    except ExpressionError as error:
        return without_value(error, "the check").message
    if holds is True:
        return None
    return UNMET if holds is False else not_a_condition(condition, holds, "the check").message


def _judged(payload: bytes, make: Callable[[bytes], bytes]) -> Verdict:
    try:
        return {"made": make(payload).decode()}
    except SkepError as error:
        details = error.details
        told = {name: details.get(name) for name in ("field", "expression", "value")}
        return {"code": str(error.code), "error": error.message, **{key: _text(one) for key, one in told.items()}}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def judge_rows(judge: Judge, payloads: pa.Array) -> pa.Array:
    """The verdicts of a judge on some payloads; null for a null payload."""
    if payloads.null_count == len(payloads):
        return pa.nulls(len(payloads), _VERDICT)
    texts = payloads.cast(pa.binary()).to_pylist()
    return pa.array([None if text is None else judge(text) for text in texts], _VERDICT)


def judged(judge_of: Callable[[str, str], Judge], app: App, queue: str, payload: Column) -> Column:
    """The verdicts of a queue's judge, `mapping_judge` or `checks_judge`, for the rows whose payload is given."""
    document = to_json(app)

    def judge(payloads: pa.Array) -> pa.Array:
        return judge_rows(judge_of(document, queue), payloads)

    # Spark reads the type hints, which are only strings in this file.
    judge.__annotations__ = {"payloads": pa.Array, "return": pa.Array}
    udf: Any = arrow_udf  # its stubs do not know a function that is typed by hints
    # A deterministic function would be called again for each use of its result, and before each filter on it.
    return cast(Column, udf(judge, VERDICT).asNondeterministic()(payload))
