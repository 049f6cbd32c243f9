"""Messages of some logs as rows of the lake: the input of one task of the archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from msgspec import Struct

from skep.spark.lake.rows import lake_rows
from skep.spark.link import link
from skep.spark.options import SourceOptions
from skep.spark.schema import FURTHER, MESSAGES
from skep.spark.source import Portion, messages

LOGGED = pa.schema([*MESSAGES, *FURTHER])


class LogRows(Struct, frozen=True):
    """Messages of some logs. Those of encrypted queues stay sealed, but for the queues that the options name as plain."""

    options: SourceOptions
    portion: Portion
    generations: Mapping[str, int]

    def rows(self) -> Iterator[pa.RecordBatch]:
        server = link(self.options.connection)
        for batch in messages(server, self.options, LOGGED, self.portion):
            yield lake_rows(batch, self.generations)
