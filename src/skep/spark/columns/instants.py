"""Times and durations in columns: microseconds since 1970, and their spellings. The session's time zone does not matter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from skep.spec.instants import DIFFERENCE_MAX, DURATION_MAX

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // MICROSECOND
LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // MICROSECOND
LONGEST = DURATION_MAX // MICROSECOND
FURTHEST = DIFFERENCE_MAX // MICROSECOND

_SIXTY = " ".join(f"{number:02}" for number in range(60))
_THOUSAND = " ".join(f"{number:03}" for number in range(1_000))

TIME_PATTERN = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])\z"
)
"""The usual spelling of a time. The evaluator reads the others."""


def micros_of(value: datetime) -> int:
    """A time as microseconds since 1970."""
    return (value - _EPOCH) // MICROSECOND


def parse_time(text: Column) -> Column:
    """A time from its usual spelling; no value for other spellings, or for a day that does not exist."""
    micros = F.unix_micros(F.when(text.rlike(TIME_PATTERN), text.try_cast("timestamp")))
    return within_years(micros)


def within_years(micros: Column) -> Column:
    """The time if it lies in the years 1 to 9999, else no value."""
    return F.when(micros.between(FIRST, LAST), micros)


def within_span(micros: Column) -> Column:
    """The duration if it is not too long for expressions, else no value."""
    return F.when(micros.between(-LONGEST, LONGEST), micros)


def within_difference(micros: Column) -> Column:
    """The difference of two times if it is not too long, else no value."""
    return F.when(micros.between(-FURTHEST, FURTHEST), micros)


def print_time(micros: Column) -> Column:
    """RFC 3339 in UTC, with none, three or six digits of the second's fraction."""
    clock = F.pmod(micros, F.lit(DAY))
    parts = [
        date_of(micros).cast("string"), F.lit("T"), _digits(_SIXTY, whole(clock, HOUR)), F.lit(":"),
        _digits(_SIXTY, whole(clock, MINUTE) % 60), F.lit(":"), _digits(_SIXTY, whole(clock, SECOND) % 60),
        _fraction(F.pmod(micros, F.lit(SECOND))), F.lit("Z"),
    ]  # fmt: skip
    return F.concat(*parts)


def print_duration(micros: Column) -> Column:
    """Seconds, with none, three or six digits after the point."""
    length = F.abs(micros)
    sign = F.when(micros < 0, F.lit("-")).otherwise(F.lit(""))
    return F.concat(sign, whole(length, SECOND).cast("string"), _fraction(length % SECOND), F.lit("s"))


def whole(micros: Column, unit: int) -> Column:
    """How often a unit goes into microseconds, cut towards zero."""
    return F.call_function("div", micros, F.lit(unit).cast("bigint"))


def floor(micros: Column, unit: int) -> Column:
    """How often a unit goes into microseconds, rounded down."""
    return whole(micros - F.pmod(micros, F.lit(unit).cast("bigint")), unit)


def date_of(micros: Column) -> Column:
    """The day in UTC."""
    return F.date_from_unix_date(floor(micros, DAY).cast("int"))


def part_of_time(name: str, micros: Column) -> Column:
    """One of CEL's parts of a time."""
    date, clock = date_of(micros), F.pmod(micros, F.lit(DAY))
    found = {
        "getFullYear": lambda: F.year(date),
        "getMonth": lambda: F.month(date) - 1,
        "getDate": lambda: F.dayofmonth(date),
        "getDayOfMonth": lambda: F.dayofmonth(date) - 1,
        "getDayOfWeek": lambda: F.dayofweek(date) - 1,
        "getDayOfYear": lambda: F.dayofyear(date) - 1,
        "getHours": lambda: whole(clock, HOUR),
        "getMinutes": lambda: whole(clock, MINUTE) % 60,
        "getSeconds": lambda: whole(clock, SECOND) % 60,
        "getMilliseconds": lambda: whole(clock % SECOND, 1000),
    }[name]()
    return found.cast("bigint")


def part_of_duration(name: str, micros: Column) -> Column:
    """One of CEL's parts of a duration, with its sign."""
    if name == "getMilliseconds":
        return whole(micros % SECOND, 1000)
    return whole(micros, {"getHours": HOUR, "getMinutes": MINUTE, "getSeconds": SECOND}[name])


def _digits(numbers: str, number: Column) -> Column:
    """Two or three digits, from a table: padding is slower, since it goes character by character."""
    return F.get(F.split(F.lit(numbers), " "), number.cast("int"))


def _fraction(micros: Column) -> Column:
    millis = _digits(_THOUSAND, whole(micros, 1000))
    return (
        F.when(micros == 0, F.lit(""))
        .when(micros % 1000 == 0, F.concat(F.lit("."), millis))
        .otherwise(F.concat(F.lit("."), millis, _digits(_THOUSAND, micros % 1000)))
    )
