"""Whose turn it is to write to a computed table in an object store, and which pass wrote it last.

An object store has no lock. A turn is the last commit of a small Delta table without rows, which `deltalake` makes atomic in every
store: who has not seen the newest one is refused. So of two runs that write to a computed table, one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import create_table_with_add_actions
from msgspec import Struct, structs

from skep.spark.lake.delta import storage_options
from skep.spark.lake.table import LakeTakenError

if TYPE_CHECKING:
    from skep.spark.lake.place import Place

SCHEMA = Schema.from_arrow(pa.schema([("turn", pa.string())]))
KEPT = {"delta.logRetentionDuration": "interval 1 hours"}
"""Only the last turn counts."""


class WriteTurn(Struct, frozen=True):
    """The pass that began to write last, and the last one that was committed."""

    began: str = ""
    done: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a pass has begun to write, and is not committed: it is at work, or was killed."""
        return self.began != self.done


class WriteTurns:
    """The turns of one table."""

    def __init__(self, place: Place, table: Place) -> None:
        self._place = place
        self._table = table
        self._opened: DeltaTable | None = None
        self.last = self._newest()

    def take(self, began: str, done: str) -> None:
        """Make a turn the newest. Refused (`LakeTakenError`) when another run took one since the last look."""
        turn = WriteTurn(began, done)
        properties = CommitProperties(custom_metadata=structs.asdict(turn), max_commit_retries=0)
        try:
            if self._opened is None:
                create_table_with_add_actions(
                    self._place.uri, SCHEMA, [], "error", [], configuration=KEPT,
                    storage_options=storage_options(self._place), commit_properties=properties,
                )  # fmt: skip
            else:
                self._opened.create_write_transaction([], "append", SCHEMA, [], commit_properties=properties)
        except (CommitFailedError, DeltaError) as error:
            seen = self.last
            newest = self._newest()
            if newest != turn:  # else its answer was lost, and tried again it met itself
                raise (error if newest == seen else LakeTakenError(self._table)) from None
        self.last = self._newest()
        if self.last != turn:
            raise LakeTakenError(self._table)

    def _newest(self) -> WriteTurn:
        try:
            self._opened = DeltaTable(self._place.uri, storage_options=storage_options(self._place))
        except TableNotFoundError:
            return WriteTurn()
        [told] = self._opened.history(1)
        return WriteTurn(told["began"], told["done"])
