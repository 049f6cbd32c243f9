"""The evaluator's word on messages that columns have none for: the value after all, or the error that the worker would report.

It runs in Spark's Python workers on Arrow batches, where all rows but these are null, so it costs next to nothing when there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from skep.entities import encoded
from skep.entities.refusal import cannot_apply, not_a_condition, without_value
from skep.errors import Code, SkepError
from skep.spec import (
    App,
    ExpressionError,
    FieldMapping,
    Validator,
    apply_mapping,
    compile_mapping,
    compile_validator,
    from_json,
    misfit,
    misfit_of,
    to_json,
)
from skep.spec.expressions import Expression, compile_expression, evaluate
from skep.spec.ir import Queue
from skep.spec.messages import with_defaults
from skep.spec.types import BOOL
from skep.spec.variables import of_queue

JUDGES_KEPT = 32
UNMET = "does not hold"
VERDICT = "struct<made:string,code:string,error:string,field:string,expression:string,value:string>"
"""What a judge says of a message: ``made`` is JSON, or there is a code and an error."""
_VERDICT = pa.struct([(name, pa.string()) for name in ("made", "code", "error", "field", "expression", "value")])

Verdict = dict[str, str | None]
Judge = Callable[[bytes], Verdict]


class Reading(Struct, frozen=True):
    """How the messages of a queue are read."""

    validator: Validator | None

    def fields(self, payload: bytes) -> dict[str, object]:
        """What expressions can read; MESSAGE_INVALID when the message does not fit."""
        if self.validator is not None:
            unfit = misfit(self.validator, payload)
            if unfit is not None:
                raise SkepError(
                    Code.MESSAGE_INVALID, str(unfit), field=unfit.field, value=unfit.value, expected=unfit.expected
                )
            return with_defaults(self.validator, msgspec.json.decode(payload))
        try:
            return {"message": msgspec.json.decode(payload)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SkepError(Code.MESSAGE_INVALID, f"the message is no JSON: {error}") from None


def reading(queue: Queue) -> Reading:
    """How to read a queue's messages."""
    return Reading(compile_validator(queue.message_type, queue.extra_fields) if queue.message_type else None)


class Mapped(Struct, frozen=True):
    """A queue's mapping to a command, as the worker has it."""

    reading: Reading
    mapping: FieldMapping
    input: Validator | None
    where: str

    def made(self, payload: bytes) -> bytes:
        """The command's input as JSON; MESSAGE_INVALID or MAPPING_FAILED when there is none."""
        fields = self.reading.fields(payload)
        try:
            made = apply_mapping(self.mapping, fields)
        except ExpressionError as error:
            raise without_value(error, self.where) from None
        if self.input is not None and (unfit := misfit_of(self.input, made)) is not None:
            raise cannot_apply(self.mapping, unfit, self.where)
        return encoded(made)


def mapped(app: App, name: str) -> Mapped:
    """The mapping of one queue of a valid app."""
    queue = app.queues[name]
    call = queue.map_to
    assert call is not None
    entity = app.entities.get(call.entity)
    target = entity.commands[call.command].input if entity is not None else None
    return Mapped(
        reading(queue),
        compile_mapping(call.fields, of_queue(queue), target),
        compile_validator(target) if target is not None else None,
        f"map_to {call.entity}.{call.command}",
    )


@lru_cache(JUDGES_KEPT)
def mapping_judge(document: str, queue: str) -> Judge:
    """The judge of a queue's mapping, from the app as JSON."""
    compiled = mapped(from_json(document), queue)
    return lambda payload: _judged(payload, compiled.made)


@lru_cache(JUDGES_KEPT)
def checks_judge(document: str, queue: str) -> Judge:
    """The judge of a queue's checks; what it makes is a JSON list of those that do not hold, each with the reason."""
    spec = from_json(document).queues[queue]
    conditions = {name: compile_expression(check.holds, of_queue(spec), BOOL) for name, check in spec.checks.items()}
    read = reading(spec)
    return lambda payload: _judged(payload, lambda given: _unmet(conditions, read, given))


def _unmet(conditions: dict[str, Expression], read: Reading, payload: bytes) -> bytes:
    try:
        fields = read.fields(payload)
    except SkepError as error:
        # What cannot be read is good for no check.
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
    """What a judge says of some payloads; nothing of those that are null."""
    if payloads.null_count == len(payloads):
        return pa.nulls(len(payloads), _VERDICT)
    texts = payloads.cast(pa.binary()).to_pylist()
    return pa.array([None if text is None else judge(text) for text in texts], _VERDICT)


def judged_mapping(app: App, queue: str, payload: Column) -> Column:
    """The verdicts on a mapping, for the rows whose payload is given."""
    document = to_json(app)

    def judge(payloads: pa.Array) -> pa.Array:
        return judge_rows(mapping_judge(document, queue), payloads)

    return _in_batches(judge)(payload)


def judged_checks(app: App, queue: str, payload: Column) -> Column:
    """The verdicts of a queue's checks, for the rows whose payload is given."""
    document = to_json(app)

    def judge(payloads: pa.Array) -> pa.Array:
        return judge_rows(checks_judge(document, queue), payloads)

    return _in_batches(judge)(payload)


def _in_batches(judge: Callable[[pa.Array], pa.Array]) -> Callable[[Column], Column]:
    # Spark reads the hints themselves, which are only names in this file.
    judge.__annotations__ = {"payloads": pa.Array, "return": pa.Array}
    udf: Any = arrow_udf  # its hints know no function whose type is in its own hints
    return cast(Callable[[Column], Column], udf(judge, VERDICT))
