"""The context of a running pipeline: its input and output, its options, and its progress reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from skep.spark.lake.place import Place
from skep.spark.lake.sealed import Opening
from skep.spark.lake.table import Lake
from skep.spark.running.columns import columns_in, columns_of
from skep.spark.running.inputs import Inputs
from skep.spark.running.record import Cell, Dataset, ReportTable, Run, Severity, Stage, StageCheck
from skep.spark.running.said import told
from skep.spark.running.sealing import SealedReason, hidden
from skep.spec import App

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_ROWS_SHOWN = 50
"""The most rows of one table in the report."""


class Wishes(Struct, frozen=True, kw_only=True):
    """The options of a run."""

    every_seconds: float | None = None
    """The seconds from one pass to the next; None: one pass, then end."""
    max_rows: int = 1_000_000
    """The most rows of a batch."""
    group: str | None = None
    compact: bool = True
    verify: bool = True
    """Whether the newly archived messages are compared with the logs."""
    audit: bool = False
    """Whether all archived messages are compared with the logs."""
    plain: Sequence[str] = ()
    """Encrypted queues whose payloads may be written to the lake as plain text."""
    window: str = "1 minute"
    late_seconds: float = 60.0
    buckets: int = 1
    allow_loss: bool = False
    all_remade: bool = False
    """The user knows that all queues of the lake were deleted and made anew."""
    checkpoint: str | None = None
    where: str | None = None
    mapping: str | None = None
    to: str | None = None
    label: str = "replay"
    rate: float | None = None
    dry_run: bool = False
    since: str | None = None
    until: str | None = None
    partition: str | None = None
    trace: str | None = None
    transaction: str | None = None
    seqs: Sequence[tuple[int, int]] = ()
    """Ranges of seqs, both ends inclusive."""
    app: App | None = None
    """The spec, for the pipelines `commands`, `quality` and `typed`."""

    @property
    def chooses(self) -> bool:
        """Whether messages are chosen by anything but their queue."""
        return any((self.where, self.since, self.until, self.partition, self.trace, self.transaction, self.seqs))


class Watcher(Protocol):
    """Hears of the progress of a run."""

    def stage(self, stage: Stage) -> None:
        """Something of a stage has changed."""


class Context(Struct, kw_only=True):
    """A run under way."""

    spark: SparkSession
    inputs: Inputs
    lake: Lake
    root: Place
    """The folder or URI of the lake, below which all tables are."""
    wishes: Wishes
    run: Run
    watchers: Sequence[Watcher]
    now: Callable[[], float] = time.monotonic
    at: str = ""
    """The name of the running stage."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Run a stage: time it, show it, and mark it as failed when it raises. In later passes the same stage goes on."""
        found = [stage for stage in self.run.stages if stage.name == name]
        stage = found[0] if found else Stage(name=name)
        if not found:
            self.run.stages.append(stage)
        if stage.status == "failed":  # it starts again: the reason of the failure is told elsewhere
            stage.note = ""
        stage.status = "running"
        stage.began_at, self.at = stage.began_at or datetime.now(UTC), name
        started, before = self.now(), stage.seconds
        try:
            self.tell(stage)
            yield stage
            stage.status = "ok"
        except KeyboardInterrupt:
            # Ctrl-C is how repeated passes end: the next run does what this pass left undone.
            stage.status = "failed" if self.wishes.every_seconds is None else "ok"
            stage.note = "interrupted"
            raise
        except BaseException as error:
            stage.status = "failed"
            stage.note = stage.note or told(error)[:300]
            raise
        finally:
            stage.seconds = before + self.now() - started
            stage.ended_at = datetime.now(UTC)
            self.tell(stage)

    def tell(self, stage: Stage) -> None:
        """Tell those who watch that something of a stage has changed."""
        for watcher in self.watchers:
            watcher.stage(stage)

    def hidden(self) -> dict[str, SealedReason]:
        """The encrypted queues whose payloads must not be written to the lake."""
        return hidden(self.inputs.sealed(), self.wishes.plain)

    def opening(self) -> Opening:
        """How this run opens messages that are sealed in the lake. What cannot be opened has no payload."""
        return Opening(self.inputs.connection, fails=False, queues=frozenset(self.inputs.sealed()))

    def check(self, stage: Stage, name: str, held: bool, figures: str = "", severity: Severity = "fail") -> None:
        """Note the result of a check; it replaces the result of an earlier pass."""
        made = StageCheck(stage=stage.name, name=name, held=held, figures=figures, severity=severity)
        self.run.checks = [one for one in self.run.checks if (one.stage, one.name) != (stage.name, name)] + [made]

    def show(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]] | DataFrame, note: str = ""
    ) -> None:
        """Put rows, or the first rows of a frame, into the report, and on the screen at the end."""
        if not isinstance(rows, Sequence):
            rows = [tuple(row) for row in rows.select(*columns).limit(MOST_ROWS_SHOWN).collect()]
        self.run.tables = [one for one in self.run.tables if one.title != title]
        self.run.tables.append(ReportTable(title=title, columns=list(columns), rows=rows, note=note))

    def read(self, *datasets: Dataset) -> None:
        """Note the datasets that were read, for the lineage."""
        self.run.inputs = _with(self.run.inputs, datasets, self.at)

    def wrote(self, *datasets: Dataset) -> None:
        """Note the datasets that were written, for the lineage."""
        self.run.outputs = _with(self.run.outputs, datasets, self.at)


def _with(datasets: Sequence[Dataset], more: Sequence[Dataset], stage: str) -> list[Dataset]:
    """The datasets with some more added; they replace earlier notes of the same stage."""
    mine = [msgspec.structs.replace(dataset, stage=stage) for dataset in more]
    same = {(one.stage, one.namespace, one.name) for one in mine}
    return [*(one for one in datasets if (one.stage, one.namespace, one.name) not in same), *mine]


def server_dataset(context: Context, name: str, rows: int | None = None) -> Dataset:
    """A queue, or a table of the server, as lineage names it."""
    return Dataset(
        namespace=context.run.server.replace("http", "skep", 1), name=f"{context.run.tenant}/{name}", rows=rows,
        columns=columns_of(name),
    )  # fmt: skip


def lake_dataset(context: Context, name: str, frame: DataFrame | None = None, rows: int | None = None) -> Dataset:
    """A table of the lake, as lineage names it."""
    columns = columns_in(context.root / name, name) if frame is None else dict(frame.dtypes)
    where = "file" if context.root.is_local else context.root.uri.partition("://")[0]
    return Dataset(namespace=where, name=f"{context.run.lake}/{name}", columns=columns, rows=rows)
