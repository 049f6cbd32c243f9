"""Messages of some logs as rows of the lake: the input of one task of the archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from msgspec import Struct

from skep.spark.lake.rows import lake_rows
from skep.spark.link import link
from skep.spark.options import SourceOptions
from skep.spark.schema import MESSAGES
from skep.spark.source import Portion, messages


class LogRows(Struct, frozen=True):
    """Messages of some logs."""

    options: SourceOptions
    portion: Portion
    generations: Mapping[str, int]

    def rows(self) -> Iterator[pa.RecordBatch]:
        server = link(self.options.connection)
        for batch in messages(server, self.options, MESSAGES, self.portion):
            yield lake_rows(batch, self.generations)
