"""Windows between the firings of a cron expression, for `groupBy`, in batches and in streams.

Spark's own windows all have one length. Shifts, working days and months do not: each of these windows begins with one firing and
ends with the next. The firings are those of the schedules of a spec, also where the clocks change.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from pyspark.sql.pandas.functions import arrow_udf

from skep.apps.firings import first_after, last_until
from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.spec.validate import cron_problem, timezone_problem

TYPE = "struct<start:timestamp,end:timestamp>"
WATERMARKED = {"spark.watermarkDelayMs": 0}
"""The metadata by which Spark knows a column of event time. Its `window` has it too. Only that it is there matters: the delay is
that of `withWatermark`."""
MICROSECONDS = pa.timestamp("us", "UTC")
WINDOWS = pa.struct([("start", MICROSECONDS), ("end", MICROSECONDS)])


class Cron(Struct, frozen=True):
    """A cron expression in its time zone."""

    cron: str
    timezone: str


def cron_window(time: str, cron: str, timezone: str = "UTC") -> Column:
    """The window of a time: a struct of `start`, the last firing until then, and `end`, the next firing. Null where one is missing.

    ``time`` is the name of a column of timestamps. In a stream it has a watermark; then a window ends, and its state is dropped,
    as with Spark's `window`. Make a column of it before you group by it::

        frame.withWatermark("created_at", "0 seconds").withColumn("shift", cron_window("created_at", "0 6,14,22 * * *"))
    """
    for problem in (cron_problem(cron), timezone_problem(timezone)):
        if problem is not None:
            raise SkepError(Code.INVALID_REQUEST, f"{problem.wrong}; write {problem.cure}")
    firings = Cron(cron, timezone)

    def find(times: pa.Array) -> pa.Array:
        return windows_of(firings, times)

    udf: Any = arrow_udf  # its stubs do not know a function with a type of its own
    found = cast(Column, udf(find, TYPE)(F.col(time)))
    return found.alias("window", metadata=WATERMARKED)


def windows_of(firings: Cron, times: pa.Array) -> pa.Array:
    """The window of each time. It looks for firings once per window, not once per time."""
    micros = times.cast(MICROSECONDS).cast(pa.int64())
    known, places = np.unique(micros.drop_null().to_numpy(), return_inverse=True)
    starts, ends = np.empty_like(known), np.empty_like(known)
    missing = np.zeros(len(known), dtype=bool)
    place = 0
    while place < len(known):
        start, end = _window(firings, Instant(int(known[place])))
        after = place + 1 if end is None else int(np.searchsorted(known, end))
        starts[place:after], ends[place:after] = start or 0, end or 0
        missing[place:after] = start is None or end is None
        place = after
    mask = np.ones(len(times), dtype=bool)
    of_each = np.zeros(len(times), dtype=np.int64)
    valid = micros.is_valid().to_numpy(zero_copy_only=False)
    of_each[valid], mask[valid] = places, missing[places]
    if not len(known):
        return pa.nulls(len(times), WINDOWS)
    fields = [pa.array(values[of_each]).cast(MICROSECONDS) for values in (starts, ends)]
    return pa.StructArray.from_arrays(fields, fields=list(WINDOWS), mask=pa.array(mask))


def _window(firings: Cron, moment: Instant) -> tuple[Instant | None, Instant | None]:
    return last_until(firings, moment), first_after(firings, moment)
