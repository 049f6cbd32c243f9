"""Compute a column once that is used several times: it gets a name in the frame, in a later layer than the columns it needs.

A Spark column has no names for its parts. Without this, a text that is used five times is made five times, and its parts five times
five. Spark shares them by itself only outside of conditions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns.values import ColumnValue

PREFIX = "__skep_"


class Binder:
    """The named parts of all expressions over one frame."""

    def __init__(self, prefix: str = PREFIX) -> None:
        self._prefix = prefix
        self._layers: list[dict[str, Column]] = []
        self._count = 0

    def name(self, column: Column, layer: int) -> Column:
        """The same column under a name, which exists from the next layer on."""
        while len(self._layers) <= layer:
            self._layers.append({})
        self._count += 1
        name = f"{self._prefix}{self._count}"
        self._layers[layer][name] = column
        return F.col(name)

    def bind(self, value: ColumnValue) -> ColumnValue:
        """The same value with named columns."""
        column = self.name(value.column, value.layer)
        null = None if value.null is None else self.name(value.null, value.layer)
        return replace(value, column=column, null=null, base=None, path="", keys=None, layer=value.layer + 1)

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame with all named columns."""
        for layer in self._layers:
            frame = frame.withColumns(layer)
        return frame


@dataclass(frozen=True)
class MessageColumns:
    """The columns of a message that expressions read. ``plain`` is true where no text has a character that JSON escapes."""

    frame: DataFrame
    payload: Column
    fields: dict[str, ColumnValue]
    fits: Column
    plain: Column
    binder: Binder
