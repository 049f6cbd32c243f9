"""Portions of logs that Java reads, as the requests to make.

Spark's Java part (`LogReader`) makes them as long as nothing is unusual. A task then needs no Python process, through which rows would
have to go from the server to Java. What it leaves, from the first unread seq of each part on, comes back as a `Portion` to the reader in
Python: that one tries again, asks other servers, and looks what was lost.

A portion travels as JSON in the pickle that Spark passes on to tasks.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct
from pyspark.sql.datasource import InputPartition

from skep import __version__
from skep.client.log_calls import BOUNDS_OF_LOGS
from skep.spark.link import Link, link
from skep.spark.offsets import QueueStretch
from skep.spark.options import SourceOptions
from skep.spark.source import MessageReader, Portion, QueuePart, requests


class Part(Struct, frozen=True):
    """Seqs of one log, and the URLs to read them from, one after the other. Java moves ``first`` on."""

    queue: str
    log: int
    first: int
    last: int
    requests: list[str]


class Document(Struct, frozen=True):
    """A portion, as Java reads it."""

    parts: list[Part]
    bounds: str
    """The URL that tells the bounds of logs."""
    headers: dict[str, str]
    silence_millis: int


class HandedPortion(InputPartition):
    """A portion that Java reads."""

    def __init__(self, document: str) -> None:
        super().__init__(document)
        self.document = document

    def __reduce__(self) -> tuple[Callable[[str], Portion], tuple[str]]:
        return portion_of, (self.document,)


def is_possible(options: SourceOptions) -> bool:
    """Whether Java can read what the options ask for: messages as they are in logs, from servers to which it needs no more than a socket."""
    return (
        options.table is None
        and options.spec is None
        and options.lake is None
        and options.compression == "none"
        and options.fail_on_shredded
        and link(options.connection).is_plain
    )


class HandingReader(MessageReader):
    """Plans a read, and hands its portions to Java."""

    def partitions(self) -> list[InputPartition]:
        """The portions as documents. Without any, there is one with nothing in it, since Spark would start a Python process for none."""
        server = link(self.options.connection)
        portions = [one for one in super().partitions() if isinstance(one, Portion)]
        return [self._handed(server, one) for one in portions or [Portion([])]]

    def _handed(self, server: Link, portion: Portion) -> InputPartition:
        parts = [self._part(server, one) for one in portion.parts]
        bounds = server.first_url(server.about(*(part.queue for part in parts[:1])), BOUNDS_OF_LOGS)
        headers = {**server.headers, "User-Agent": f"skep-spark/{__version__}"}
        document = Document(parts, bounds, headers, round(server.silence_seconds * 1000))
        return HandedPortion(msgspec.json.encode(document).decode())

    def _part(self, server: Link, part: QueuePart) -> Part:
        stretch = part.stretch
        logs = (one for log in requests(self.options, self.schema, stretch) for one in server.parts(log))
        return Part(stretch.queue, part.log, stretch.first, stretch.last, [server.url_of(one) for one in logs])


def portion_of(document: str) -> Portion:
    """What is left of a portion, for the reader in Python. Java knows this function by its name."""
    left = msgspec.json.decode(document, type=Document)
    return Portion([QueuePart(QueueStretch(one.queue, one.first, one.last), one.log) for one in left.parts])
