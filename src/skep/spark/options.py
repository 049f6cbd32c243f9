"""The options of source and sink: parsed and checked once, on the driver. An error names the cure.

Names are those of Spark's Kafka source where that has the option. Case does not matter, as with all options of Spark.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import re2
from msgspec import Struct

from skep.client.settings import from_environment, split_urls
from skep.errors import Code, SkepError
from skep.model import DEFAULT_TENANT, SealedPayloads
from skep.spark.kafka import hint
from skep.spark.offsets import LOGS
from skep.spark.push_down import PushDown, parsed

T = TypeVar("T")
Table = Literal["leases", "dead_letters", "queues", "groups"]
Compression = Literal["none", "lz4", "zstd"]
Offsets = Literal["earliest", "latest", "group"] | dict[str, int]

CONNECTION = ("url", "token", "tenant", "retrySeconds")
INTERNAL = "pushDown"
"""The option of our own jar, which no user gives."""
SOURCE = (
    "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp",
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "failOnDataLoss", "columns", "partitions", "transactionIds", "traceIds", "groupId",
    "fetchRows", "compression", "waitSeconds", "table", "offsetMeaning", "typed", "spec", "rejects", "lake", "catalog",
    "failOnShredded", INTERNAL,
)  # fmt: skip
SINK = ("queue", "delivery", "writeId", "stageRows")
SPARK_OWN = frozenset({"path", "checkpointlocation", "queryname"})
"""Options that Spark adds to ours: `.load("orders")` arrives as `path`."""
SYNONYMS = {
    "servers": "url", "host": "url", "server": "url", "apikey": "token", "key": "token", "password": "token", "namespace": "tenant",
    "queues": "subscribe", "topics": "subscribe", "group": "groupId", "consumergroup": "groupId", "timeout": "retrySeconds",
    "limit": "maxOffsetsPerTrigger", "maxfilespertrigger": "maxOffsetsPerTrigger", "maxrows": "maxOffsetsPerTrigger",
    "numpartitions": "minPartitions", "since": "startingTimestamp", "until": "endingTimestamp", "startingposition": "startingOffsets",
    "dbtable": "table", "select": "columns", "messagetype": "typed", "badrecordspath": "rejects",
}  # fmt: skip
"""Names that people try, most of them from other connectors, and our option for each."""
OF_A_TABLE = frozenset({"provider", "owner"})
"""Options that Spark adds for a table that was made by CREATE TABLE."""
NO_SQL_TABLE = (
    "CREATE TABLE … USING skep does not work, since Spark forgets the options of such a table. To read a queue in SQL, make a view: "
    "CREATE TEMPORARY VIEW orders USING skep OPTIONS (url 'http://127.0.0.1:6632', subscribe 'orders'). To write, use a DataFrame: "
    'frame.write.format("skep").option("queue", "orders").mode("append").save()'
)
NO_SQL_OPTIONS = "of a table that was made by CREATE TABLE Spark forgets the options: make a view instead, CREATE TEMPORARY VIEW … USING skep OPTIONS (…)"

OffsetMeaning = Literal["after", "kafka"]
"""The meaning of an offset N. `after`: everything up to seq N is read, so a read starts after N and ends with N. `kafka`: N is the
next seq, so a read starts with N and ends before N."""
EARLIEST, LATEST = -2, -1
"""The numbers of Kafka's source for earliest and latest, in JSON."""
TABLES: tuple[Table, ...] = ("leases", "dead_letters", "queues", "groups")
APPLIED = "applied"
"""What the option `spec` says for the specs that are applied on the server. A file of this name is ./applied."""
FETCH_ROWS = 250_000
STAGE_ROWS, STAGE_ROWS_MAX = 50_000, 100_000
"""The maximum is the server's default limit of one bulk push (`bulk_messages`)."""
TRIGGER_DELAY = "15m"
DURATION = re.compile(r"(\d{1,9}) ?(ms|s|m|min|h|d)")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
RETRY_SECONDS = 60.0
WAIT_SECONDS = 2.0


class ServerConnection(Struct, frozen=True):
    """The server's URL, the tenant, and the token."""

    urls: tuple[str, ...]
    tenant: str
    token: str | None
    retry_seconds: float
    """How long to wait for an unreachable server before a task or query fails."""

    def __repr__(self) -> str:
        """Without the token, since logs show this text."""
        return f"Connection(urls={self.urls!r}, tenant={self.tenant!r}, retry_seconds={self.retry_seconds!r})"


class LakeOptions(Struct, frozen=True):
    """The lake that has the older messages of the queues."""

    uri: str
    catalog: str | None
    """The catalog of a lake of Iceberg, as pyiceberg knows it."""


class SourceOptions(Struct, frozen=True, kw_only=True):
    """The queues to read, the range, and the size of batches."""

    connection: ServerConnection
    queues: tuple[str, ...]
    pattern: str | None
    starting: Offsets
    starting_at: datetime | None
    ending: Offsets
    ending_at: datetime | None
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    trigger_delay_seconds: float
    """How long a batch with fewer than `min_offsets` messages may be held back after the batch before it."""
    min_partitions: int | None
    fail_on_data_loss: bool
    fail_on_shredded: bool
    """Whether a message of an encrypted queue that cannot be opened is an error. If not, its payload is null."""
    columns: tuple[str, ...]
    partitions: tuple[str, ...]
    transaction_ids: tuple[str, ...]
    trace_ids: tuple[str, ...]
    group: str | None
    fetch_rows: int
    compression: Compression
    wait_seconds: float
    table: Table | None
    push_down: PushDown
    spec: str | None
    """The spec whose message types make the columns, a file or APPLIED; None for messages as they are."""
    rejects: bool
    """Whether the messages are wanted that do not fit their type, and not those that do."""
    lake: LakeOptions | None = None
    plain: frozenset[str] | None = None
    """For the archive: the queues whose payloads are opened. Those of all others stay sealed."""

    def sealed(self, queue: str) -> SealedPayloads:
        """How sealed payloads of a queue are read from its log."""
        if self.plain is not None and queue not in self.plain:
            return "keep"
        return "open" if self.fail_on_shredded else "blank"

    @property
    def described(self) -> str:
        """The subscription, as the user wrote it."""
        return ", ".join(self.queues) if self.pattern is None else f"/{self.pattern}/"


class SinkOptions(Struct, frozen=True, kw_only=True):
    """The queue to write to, and the delivery guarantee."""

    connection: ServerConnection
    queue: str | None
    delivery: Literal["exactly-once", "at-least-once"]
    write_id: str | None
    stage_rows: int


def source_options(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> SourceOptions:
    """Parse the options of a read."""
    said = _Said(given, SOURCE, "a read")
    queues, pattern = _subscription(said)
    meaning: OffsetMeaning = said.one_of("offsetMeaning", ("after", "kafka"))
    starting, starting_at = _place(said, "starting", "earliest", meaning)
    ending, ending_at = _place(said, "ending", "latest", meaning)
    if ending == "group":
        raise said.refusal("endingOffsets", 'is latest, or JSON such as {"orders": 1200}')
    group = said.text("groupId")
    if starting == "group" and group is None:
        raise said.refusal("startingOffsets", "is group, so give groupId the name of the group whose progress is meant")
    max_offsets, min_offsets = said.count("maxOffsetsPerTrigger"), said.count("minOffsetsPerTrigger")
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise said.refusal("minOffsetsPerTrigger", f"is at most maxOffsetsPerTrigger, which is {max_offsets}")
    if min_offsets is None and said.text("maxTriggerDelay") is not None:
        raise said.refusal("maxTriggerDelay", "bounds the wait for minOffsetsPerTrigger: give that, too")
    return SourceOptions(
        connection=_connection(said, os.environ if environment is None else environment),
        queues=queues, pattern=pattern, starting=starting, starting_at=starting_at, ending=ending, ending_at=ending_at,
        max_offsets=max_offsets, min_offsets=min_offsets,
        trigger_delay_seconds=said.duration("maxTriggerDelay", TRIGGER_DELAY), max_bytes=said.count("maxBytesPerTrigger"),
        min_partitions=said.count("minPartitions"), fail_on_data_loss=said.flag("failOnDataLoss", True),
        fail_on_shredded=said.flag("failOnShredded", True),
        columns=said.names("columns"), partitions=said.names("partitions"), group=group,
        transaction_ids=said.names("transactionIds"), trace_ids=said.names("traceIds"),
        fetch_rows=said.count("fetchRows") or FETCH_ROWS,
        compression=said.one_of("compression", ("none", "lz4", "zstd")),
        wait_seconds=said.number("waitSeconds", WAIT_SECONDS),
        table=None if said.text("table") is None else said.one_of("table", TABLES),
        spec=_spec(said), rejects=said.one_of("rejects", ("apart", "only")) == "only", lake=_lake(said),
        push_down=parsed(said.text(INTERNAL)),
    )  # fmt: skip


def _spec(said: _Said) -> str | None:
    """The spec of a typed read; one that names a spec, or wants rejects, is typed."""
    implied = next((name for name in ("spec", "rejects") if said.text(name) is not None), None)
    if not said.flag("typed", implied is not None):
        if implied is not None:
            raise said.refusal("typed", f"is false, and {implied} is for typed columns: leave one of them out")
        return None
    if said.text("table") is not None:
        raise said.refusal("table", "names a table that has no message type: leave out typed, spec and rejects")
    return said.text("spec") or APPLIED


def sink_options(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> SinkOptions:
    """Parse the options of a write."""
    said = _Said(given, SINK, "a write")
    stage_rows = said.count("stageRows") or STAGE_ROWS
    if stage_rows > STAGE_ROWS_MAX:
        raise said.refusal("stageRows", f"is at most {STAGE_ROWS_MAX}, which is what a server takes at once")
    return SinkOptions(
        connection=_connection(said, os.environ if environment is None else environment),
        queue=said.text("queue") or said.text("path"),
        delivery=said.one_of("delivery", ("exactly-once", "at-least-once")),
        write_id=said.text("writeId"),
        stage_rows=stage_rows,
    )


def _lake(said: _Said) -> LakeOptions | None:
    uri, catalog = said.text("lake"), said.text("catalog")
    if uri is None and catalog is not None:
        raise said.refusal("catalog", "is that of a lake of Iceberg: give the option lake, too")
    if uri is not None and said.text("table") is not None:
        raise said.refusal("lake", "is for messages; a table of the server is read without it")
    return None if uri is None else LakeOptions(uri, catalog)


def _connection(said: _Said, environment: Mapping[str, str]) -> ServerConnection:
    urls, around = from_environment({}, environment)
    return ServerConnection(
        urls=split_urls(said.text("url") or "") or urls,
        tenant=said.text("tenant") or around.get("tenant", DEFAULT_TENANT),
        token=said.text("token") or around.get("token"),
        retry_seconds=said.number("retrySeconds", RETRY_SECONDS),
    )


def _subscription(said: _Said) -> tuple[tuple[str, ...], str | None]:
    queues = said.names("subscribe") or said.names("path")
    pattern = said.text("subscribePattern")
    if pattern is not None:
        if queues:
            raise said.refusal("subscribePattern", "and subscribe (or a path) exclude each other: give one of them")
        try:
            re2.compile(pattern)
        except re2.error as error:
            raise said.refusal("subscribePattern", f"is a regular expression (RE2): {error}") from None
    elif not queues and said.text("table") is None:
        raise SkepError(
            Code.INVALID_REQUEST,
            f'say which queue to read: .option("subscribe", "orders"), or subscribePattern; {NO_SQL_OPTIONS}',
        )
    return tuple(dict.fromkeys(queues)), pattern


def _place(
    said: _Said, end: str, default: Literal["earliest", "latest"], meaning: OffsetMeaning
) -> tuple[Offsets, datetime | None]:
    """Where a read starts or ends: at offsets, or at a time."""
    offsets, at = said.text(f"{end}Offsets"), said.text(f"{end}Timestamp")
    if offsets is not None and at is not None:
        raise said.refusal(f"{end}Offsets", f"and {end}Timestamp exclude each other: give one of them")
    if at is not None:
        return default, said.instant(f"{end}Timestamp", at)
    match (offsets or default).strip():
        case "earliest":
            return "earliest", None
        case "latest":
            return "latest", None
        case "group":
            return "group", None
        case text:
            numbers = said.offsets(f"{end}Offsets", text)
            return (numbers if meaning == "after" else _of_kafka(numbers)), None


def _of_kafka(offsets: Mapping[str, int]) -> dict[str, int]:
    """Kafka's offsets (the next seq) as ours (the last seq before it); -2 and -1 mean the same in both."""
    return {queue: number if number < 0 else max(0, number - 1) for queue, number in offsets.items()}


def _meant(name: str, known: Mapping[str, str], what: str) -> str:
    """A hint for an unknown option: the one that was probably meant."""
    for others, where in ((SINK, "a write"), (SOURCE, "a read")):
        if where != what and name in map(str.lower, others):
            return f"it is one of {where}"
    if (of_kafka := hint(name)) is not None:
        return of_kafka
    if name in SYNONYMS:
        return f"did you mean {SYNONYMS[name]}?"
    near = difflib.get_close_matches(name, known, n=1)
    return (
        f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(sorted({*known.values()} - {INTERNAL}))}"
    )


class _Said:
    """The options as they were given. An error names the option and its allowed values."""

    def __init__(self, given: Mapping[str, str], own: tuple[str, ...], what: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in (*CONNECTION, *own)}
        if OF_A_TABLE & self._given.keys():
            raise SkepError(Code.INVALID_REQUEST, NO_SQL_TABLE)
        for name in sorted(self._given.keys() - known.keys() - SPARK_OWN):
            raise SkepError(Code.INVALID_REQUEST, f"{what} has no option {name}; {_meant(name, known, what)}")

    def text(self, name: str) -> str | None:
        """The value of an option; None when it is missing or blank."""
        value = self._given.get(name.lower())
        return value.strip() or None if value is not None else None

    def refusal(self, name: str, what: str) -> SkepError:
        """The error for an option with a wrong value."""
        return SkepError(Code.INVALID_REQUEST, f"the option {name} {what}")

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and int(text) > 0):
            raise self.refusal(name, f"is a whole number above 0, not {text!r}")
        return int(text)

    def number(self, name: str, default: float) -> float:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 86_400:
            raise self.refusal(name, f"is a number of seconds, not {text!r}")
        return value

    def duration(self, name: str, default: str) -> float:
        """A duration with its unit, in seconds."""
        text = (self.text(name) or default).lower()
        found = DURATION.fullmatch(text)
        if found is None:
            raise self.refusal(name, f"is a number with its unit, such as 15m, 90s or 500ms, not {text!r}")
        return int(found[1]) * UNITS[found[2]]

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is not None and text.lower() not in ("true", "false"):
            raise self.refusal(name, f"is true or false, not {text!r}")
        return default if text is None else text.lower() == "true"

    def one_of(self, name: str, words: tuple[T, ...]) -> T:
        """One of some words; the first when the option is missing."""
        text = self.text(name)
        if text is None:
            return words[0]
        for word in words:
            if word == text.lower():
                return word
        raise self.refusal(name, f"is one of {', '.join(map(str, words))}, not {text!r}")

    def names(self, name: str) -> tuple[str, ...]:
        """Names divided by commas, or a JSON list of them when they have commas of their own."""
        text = self.text(name)
        if text is None:
            return ()
        if text.startswith("["):
            found = self._json(name, text)
            if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
                raise self.refusal(name, f"is a list of names, or a JSON list of strings, not {text!r}")
            return tuple(found)
        return tuple(one.strip() for one in text.split(",") if one.strip())

    def offsets(self, name: str, text: str) -> dict[str, int]:
        """Offsets by queue."""
        found = self._json(name, text)
        if isinstance(found, dict):
            found.pop(LOGS, None)  # there when the user copied offsets from the progress of a query
        if isinstance(found, dict) and any(isinstance(value, dict) for value in found.values()):
            raise self.refusal(
                name,
                f'has one number per queue, {{"orders": 1200}}, and none per partition, as Kafka has; not {text!r}',
            )
        fits = isinstance(found, dict) and all(type(value) is int and value >= EARLIEST for value in found.values())
        if not fits:
            raise self.refusal(
                name,
                f'is earliest, latest, group or JSON such as {{"orders": 1200}}: the last seq that is behind it (with '
                f"offsetMeaning=kafka the next one), or -2 for earliest and -1 for latest; not {text!r}",
            )
        offsets: dict[str, int] = found
        return offsets

    def instant(self, name: str, text: str) -> datetime:
        """A time, as RFC 3339 or as milliseconds since 1970."""
        try:
            if text.isascii() and text.isdecimal():
                return datetime.fromtimestamp(int(text) / 1_000, UTC)
            at = datetime.fromisoformat(text)
        except (ValueError, OverflowError, OSError):
            at = None
        if at is None or at.tzinfo is None:
            raise self.refusal(name, f"is a time with its offset (2026-01-31T12:00:00Z) or milliseconds, not {text!r}")
        return at

    def _json(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self.refusal(name, f"is not JSON: {error}") from None
