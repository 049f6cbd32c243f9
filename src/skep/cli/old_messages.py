"""`--lake`: commands that look at messages find those that retention took from the log in a lake. They start no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from skep.cli.connection import ServerOptions
from skep.cli.exits import note
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.client.queue_calls import Position
    from skep.spark.lake.old_messages import OldMessages, Wanted
    from skep.spark.options import LakeOptions, ServerConnection
    from skep.wire.browsing import BrowsedMessage

Catalog = Annotated[str | None, Parameter(env_var="SKEP_CATALOG")]
RETRY_SECONDS = 10.0
"""How long a server that does not answer is asked again."""
_GROUP = Group("Messages that retention took", sort_key=80)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class InLake:
    """Where to find messages that the log does not have any more."""

    lake: Annotated[str | None, Parameter(env_var="SKEP_LAKE")] = None
    """Find messages that the log does not have any more in this lake: a folder, or a URI (s3://, gs://, abfss://, hdfs://)."""
    catalog: Catalog = None
    """The catalog of a lake of Iceberg, as pyiceberg is configured: NAME or NAME.NAMESPACE."""

    def __post_init__(self) -> None:
        """Take an empty SKEP_LAKE for no lake."""
        object.__setattr__(self, "lake", self.lake or None)

    def of(self, queue: str, to: ServerOptions) -> OldMessages | None:
        """What the lake has of a queue, and the log does not; None without a lake."""
        lake = self._options()
        if lake is None:
            return None
        from skep.spark.lake.old_messages import OldMessages

        return OldMessages(lake, self.connection(to), queue)

    def of_trace(self, trace_id: str, to: ServerOptions) -> list[BrowsedMessage]:
        """The messages of a trace that the lake has, and the logs do not."""
        lake = self._options()
        if lake is None:
            return []
        from skep.spark.lake.old_messages import of_trace

        return list(of_trace(lake, self.connection(to), trace_id))

    def _options(self) -> LakeOptions | None:
        if self.lake is None:
            return None
        self.check()
        from skep.spark.options import LakeOptions

        return LakeOptions(self.lake, self.catalog)

    def check(self) -> None:
        """Check that this Python has what reading a lake needs. Spark is not among that."""
        from skep.spark.environment import check

        check(("pyarrow",))

    def connection(self, to: ServerOptions) -> ServerConnection:
        """The server, as readers of the lake know it."""
        from skep.spark.options import ServerConnection

        return ServerConnection(to.urls, to.tenant, to.token, retry_seconds=RETRY_SECONDS)


def wanted(
    partition: str | None = None, transaction_id: str | None = None, trace_id: str | None = None, **more: Any
) -> Wanted:
    """What the options of a command choose."""
    from skep.spark.lake.old_messages import Wanted
    from skep.spark.push_down import written

    # An id has one spelling in the lake. A text that is no id is for the server to refuse.
    trace = None if trace_id is None else written(trace_id) or trace_id
    return Wanted(partitions=_one(partition), transaction_ids=_one(transaction_id), trace_ids=_one(trace), **more)


def _one(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def with_old(
    log: Iterator[BrowsedMessage], found: OldMessages | None, newest_first: bool, most: int, chosen: dict[str, Any]
) -> Iterator[BrowsedMessage]:
    """The messages of log and lake together, in order."""
    if found is None:
        return log
    tell_gap(found)
    from skep.spark.lake.old_messages import PREVIEW_BYTES

    lake = found.messages(wanted(**chosen), newest_first=newest_first, most=most, preview_bytes=PREVIEW_BYTES)
    return chain(log, lake) if newest_first else chain(lake, log)


def first_in_lake(found: OldMessages, place: Position) -> int | None:
    """The first seq from a position on that only the lake has; None when it has none."""
    if not found.last or place == "end":
        return None
    if place == "beginning":
        return found.first
    if isinstance(place, int):
        return max(place, found.first) if place <= found.last else None
    return found.first_since(place)


def tell_gap(found: OldMessages) -> None:
    """Say which messages are neither in the lake nor in the log."""
    if found.gap is not None:
        first, last = found.gap
        note(
            f"the log of {found.bounds.queue} begins at seq {found.bounds.first_seq:,}, and its seqs {first:,} to {last:,} are not in the lake"
        )


def from_lake(error: SkepError, in_lake: InLake, queue: str, to: ServerOptions, **chosen: Any) -> BrowsedMessage:
    """The newest message that fits, from the lake, when the server has none; else the server's error, with the cure."""
    if error.code is not Code.MESSAGE_NOT_FOUND:
        raise error
    found = in_lake.of(queue, to)
    if found is None:
        cure = "If retention took it, name a lake that has it: --lake."
        raise SkepError(error.code, f"{error.sentence} {cure}") from None
    newest = found.newest(wanted(**chosen))
    if newest is None:
        raise SkepError(error.code, f"{error.sentence} {_had(found)}") from None
    return newest


def _had(found: OldMessages) -> str:
    if not found.last:
        return "The lake has no older messages of its present log either."
    return f"The lake has its seqs {found.first:,} to {found.last:,}, and no such message either."
