"""Typed rows of the data source: batches of the log become batches with a column for each field, or batches of rejects.

A message is in exactly one of the two: it is rejected when it does not fit its type, or fails a check with `on_fail: drop`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import pyarrow as pa

from skep.errors import Code, SkepError
from skep.spark.judging import checks_judge, judge_rows
from skep.spark.schema import FURTHER, MESSAGES, part_of, schema_of, sql_type
from skep.spark.typed.declared import TypedQueue
from skep.spark.typed.fields import FieldReader, ReadPayloads, arrow_type, column_names
from skep.spec import Misfit, from_json, to_json
from skep.spec.ir import OnFail

FAILED = pa.list_(
    pa.field("element", pa.struct([("check", pa.string()), ("on_fail", pa.string()), ("error", pa.string())]))
)
REASONS = pa.schema([("error", pa.string()), ("field", pa.string()), ("value", pa.string()), ("failed_checks", FAILED)])
"""Why a message was rejected."""
METADATA = pa.schema([field for field in MESSAGES if field.name != "payload"])
REJECTS = pa.schema([*MESSAGES, *REASONS])
ON_REQUEST = pa.schema([MESSAGES.field("payload"), *FURTHER])
"""Columns that typed rows have only when somebody names them."""
ROWS_AT_ONCE = 10_000
"""So many messages are Python objects at the same time."""
READERS_KEPT = 32


class RejectReason(NamedTuple):
    """Why a message was rejected: it does not fit its type, or failed some checks."""

    error: str
    field: str | None
    value: str | None
    failed_checks: Sequence[Mapping[str, str]]


class TypedRows(msgspec.Struct, frozen=True):
    """The types of the queues to read, and whether their typed rows or their rejects are wanted."""

    queues: dict[str, TypedQueue]
    rejects: bool

    def offered(self, names: Sequence[str]) -> pa.Schema:
        """The columns that are to be had, in the order of the names; the usual ones when none is named."""
        if self.rejects:
            return part_of(REJECTS if not names else pa.schema([*REJECTS, *FURTHER]), names)
        fields = united(self.queues)
        return part_of(pa.schema([*METADATA, *fields, *(ON_REQUEST if names else ())]), names)

    def batches(self, raw: Iterable[pa.RecordBatch], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The wanted columns of batches that have the columns of `raw`; this runs in a task."""
        for batch in raw:
            for first in range(0, batch.num_rows, ROWS_AT_ONCE):
                yield self._typed(batch.slice(first, ROWS_AT_ONCE), wanted)

    def raw(self, wanted: pa.Schema) -> pa.Schema:
        """The columns of the log that these columns are made of."""
        known = {*MESSAGES.names, *FURTHER.names}
        return schema_of(list(dict.fromkeys(["queue", "payload", *(one for one in wanted.names if one in known)])))

    def _typed(self, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        name = batch.column("queue")[0].as_py()
        typed = self.queues.get(name)
        if typed is None:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the queue {name!r} was made after the query began, so the type of its messages is not known: start the query again",
            )
        payloads = batch.column("payload").cast(pa.binary())
        read = read_payloads(typed, payloads)
        reasons = rejections(typed, payloads, read.misfits)
        is_wanted = pa.array([(reason is not None) is self.rejects for reason in reasons])
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self.rejects:
            columns |= reason_columns(reasons)
        else:
            columns |= dict(zip(column_names(typed.fields).values(), read.columns, strict=True))
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(batch.num_rows, field.type) for field in wanted
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted).filter(is_wanted)


def united(queues: Mapping[str, TypedQueue]) -> list[pa.Field]:
    """The fields of several queues by name. Fields of the same name have the same type, or INVALID_REQUEST tells which have not."""
    found: dict[str, tuple[pa.Field, str]] = {}
    for queue, typed in queues.items():
        names = column_names(typed.fields)
        for name, field in typed.fields.items():
            mine = pa.field(names[name], arrow_type(field.type))
            known, of = found.setdefault(mine.name.lower(), (mine, queue))
            if known != mine:
                raise SkepError(
                    Code.INVALID_REQUEST,
                    f"the column {known.name} is {sql_type(known.type)} in {of}, and {mine.name} is {sql_type(mine.type)} in {queue}: "
                    "read these queues one by one",
                )
    return [field for field, _ in found.values()]


def read_payloads(typed: TypedQueue, payloads: pa.Array) -> ReadPayloads:
    """The fields of some payloads, which are bytes."""
    return _reader(to_json(typed.app), typed.name).read(payloads.to_pylist())


@lru_cache(READERS_KEPT)
def _reader(document: str, queue: str) -> FieldReader:
    return FieldReader(from_json(document).queues[queue].message_type)


def rejections(typed: TypedQueue, payloads: pa.Array, misfits: Sequence[Misfit | None]) -> list[RejectReason | None]:
    """Why each of some messages is rejected; None for those that are not."""
    failed: list[list[dict[str, str]]] = [[] for _ in misfits]
    if typed.rejects_by_checks:
        verdicts = judge_rows(checks_judge(to_json(typed.app), typed.name), payloads)
        failed = [_failed(verdict["made"]) for verdict in verdicts.to_pylist()]
    return [_reason(unfit, unmet) for unfit, unmet in zip(misfits, failed, strict=True)]


def _failed(made: str) -> list[dict[str, str]]:
    return [
        {"check": one["check"], "on_fail": str(OnFail.DROP), "error": one["error"]} for one in msgspec.json.decode(made)
    ]


def _reason(unfit: Misfit | None, failed: Sequence[Mapping[str, str]]) -> RejectReason | None:
    if unfit is not None:
        return RejectReason(str(unfit), unfit.field, unfit.value, failed)
    if not failed:
        return None
    return RejectReason("; ".join(f"{one['check']}: {one['error']}" for one in failed), None, None, failed)


def reason_columns(reasons: Sequence[RejectReason | None]) -> dict[str, pa.Array]:
    """The reasons as columns, null where there is none."""
    return {
        field.name: pa.array([None if one is None else getattr(one, field.name) for one in reasons], field.type)
        for field in REASONS
    }
