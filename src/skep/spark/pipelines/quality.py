"""Quality: a queue's checks on the rows of any pipeline that has their payloads, counted in the same pass.

A check that does not hold, or has no value for a message, is noted beside the row with the reason. A row that fails a `drop` check is
quarantined. `warn` only counts. `fail` lets the row pass; the caller then lets the run fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.columns.compiler import compile_column
from skep.spark.columns.message import message_columns
from skep.spark.columns.operations import truth
from skep.spark.columns.values import Uncompiled, nothing
from skep.spark.judging import UNMET, checks_judge, judged
from skep.spec import App, compile_expression
from skep.spec.ir import Check, OnFail, Queue
from skep.spec.types import BOOL
from skep.spec.variables import of_queue

FAILED = "failed_checks"
"""The column of failed checks: an array of `check`, `on_fail` and `error`, empty for a good row."""
ROWS = "rows"
_FAILED_TYPE = "array<struct<check:string,on_fail:string,error:string>>"
_JUDGED_TYPE = "array<struct<check:string,error:string>>"
_HOLDS, _DOUBTFUL, _VERDICT = "__skep_holds_", "__skep_doubtful", "__skep_verdict"


@dataclass(frozen=True)
class Quality:
    """Rows with their failed checks. ``left_out`` names the checks that the evaluator makes for every row, and why."""

    rows: DataFrame
    left_out: dict[str, str]

    @property
    def kept(self) -> DataFrame:
        """The rows that pass, with their own columns."""
        return self.rows.where(~_has(OnFail.DROP)).drop(FAILED)

    @property
    def quarantined(self) -> DataFrame:
        """The dropped rows, with their failed checks."""
        return self.rows.where(_has(OnFail.DROP))


class CheckResult(Struct, frozen=True):
    """The result of a check over a whole run."""

    check: str
    on_fail: OnFail
    rows: int
    failed: int

    @property
    def status(self) -> str:
        """`ok`, or what the check asks for when it fails: `warn`, `drop` or `fail`."""
        return str(self.on_fail) if self.failed else "ok"


def quality(
    rows: DataFrame, app: App, queue: str, *, payload: str = "payload", observe: Observation | str | None = None
) -> Quality:
    """The rows with the checks of a queue that they failed.

    With ``observe``, failures are counted by check while the rows pass: in an `Observation` of a batch, or under a name in the
    progress of a streaming query.
    """
    spec = app.queues.get(queue)
    if spec is None or not spec.checks:
        raise SkepError(Code.INVALID_REQUEST, f"the queue {queue!r} of {app.name} has no checks", queue=queue)
    frame, left_out = _with_checks(rows, spec, payload)
    names = [f"{_HOLDS}{name}" for name in spec.checks]
    doubtful = reduce(lambda one, other: one | other, [F.col(name).isNull() for name in names])
    frame = frame.select(
        *rows.columns, *names, F.when(doubtful, F.coalesce(F.col(payload), F.lit(""))).alias(_DOUBTFUL)
    )
    frame = frame.withColumn(_VERDICT, judged(checks_judge, app, queue, F.col(_DOUBTFUL)))
    checked = frame.select(*rows.columns, _failed(spec.checks).alias(FAILED))
    if observe is not None:
        checked = checked.observe(observe, *_counts(spec.checks))
    return Quality(checked, left_out)


def results(app: App, queue: str, counted: Mapping[str, int]) -> list[CheckResult]:
    """The counts by check, from ``Observation.get`` or from a query's progress."""
    checks = app.queues[queue].checks
    rows = counted.get(ROWS) or 0
    return [CheckResult(name, check.on_fail, rows, counted.get(name) or 0) for name, check in checks.items()]


def _with_checks(rows: DataFrame, spec: Queue, payload: str) -> tuple[DataFrame, dict[str, str]]:
    left_out: dict[str, str] = {}
    nowhere = nothing(BOOL)
    try:
        message = message_columns(rows, spec, payload)
    except Uncompiled as reason:
        columns = {f"{_HOLDS}{name}": nowhere for name in spec.checks}
        return rows.withColumns(columns), dict.fromkeys(spec.checks, str(reason))
    found: dict[str, Column] = {}
    for name, check in spec.checks.items():
        try:
            compiled = compile_column(compile_expression(check.holds, of_queue(spec), BOOL), message)
            found[name] = F.when(F.col("__skep_fits") & compiled.sure, truth(compiled.value))
        except Uncompiled as reason:
            left_out[name] = str(reason)
            found[name] = nowhere
    frame = message.binder.applied(message.frame.withColumn("__skep_fits", message.fits))
    return frame.withColumns({f"{_HOLDS}{name}": column for name, column in found.items()}), left_out


def _failed(checks: Mapping[str, Check]) -> Column:
    """The failed checks: from columns where they are sure of all checks, else from the evaluator."""
    unmet = [
        F.when(
            ~F.col(f"{_HOLDS}{name}"),
            F.struct(
                F.lit(name).alias("check"), F.lit(str(check.on_fail)).alias("on_fail"), F.lit(UNMET).alias("error")
            ),
        )
        for name, check in checks.items()
    ]
    judged = F.from_json(F.col(_VERDICT)["made"], _JUDGED_TYPE)
    asks = F.create_map(*[F.lit(part) for name, check in checks.items() for part in (name, str(check.on_fail))])
    named = F.transform(
        judged,
        lambda one: F.struct(
            one["check"].alias("check"), asks[one["check"]].alias("on_fail"), one["error"].alias("error")
        ),
    )
    return F.when(F.col(_DOUBTFUL).isNull(), F.array_compact(F.array(*unmet)).cast(_FAILED_TYPE)).otherwise(
        named.cast(_FAILED_TYPE)
    )


def _has(asked: OnFail) -> Column:
    return F.exists(F.col(FAILED), lambda one: one["on_fail"] == str(asked))


def _counts(checks: Mapping[str, Check]) -> list[Column]:
    counts = [F.count(F.lit(1)).alias(ROWS)]
    for name in checks:
        failed = F.array_contains(F.transform(F.col(FAILED), lambda one: one["check"]), name)
        counts.append(F.count_if(failed).alias(name))
    return counts
