"""Run `typed`: the messages of the lake become a table per queue, with a column for each field of its message type.

The lake has every message once, also those that the log no longer has. So what a table lacks is what the lake has after the table's
last seq, and a table can be made anew at any time.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.lake.reading import frame_of
from skep.spark.pipelines.typed import typed
from skep.spark.running.context import Context, lake_dataset
from skep.spark.running.failing import FailedQueues
from skep.spark.running.record import Stage
from skep.spark.running.sealing import check_plain
from skep.spark.running.typed_table import REJECTS, ROWS, Position, TypedTable, folder_of, open_table
from skep.spark.typed.declared import TypedQueue, applied_apps, typed_queue
from skep.spec import to_document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MADE_WITH = 1
"""Another number when the columns of a table, or what they hold, change with a new version of Skep: then all tables are made anew."""
FAILED = "Queues without an up-to-date typed table"


class LakeMessages:
    """The messages of the lake. Its folders are listed once in a pass, and not at all when there is nothing new."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def _messages(self) -> DataFrame:
        return frame_of(self._context.spark, self._context.lake.files(), opening=self._context.opening())

    def end(self, queue: str) -> tuple[int, int] | None:
        """The last generation and seq of a queue; None when the lake has nothing of it."""
        lake = self._context.lake
        seq = lake.through(queue)
        return None if seq is None else (lake.generation_of(queue), seq)

    def end_of(self, queue: str, generation: int) -> int:
        """The last seq of a generation."""
        held = self.end(queue)
        if held is not None and held[0] == generation:
            return held[1]
        last = self._of(queue, generation).agg(F.max("seq")).collect()[0][0]
        return 0 if last is None else int(last)

    def after(self, queue: str, begin: Position, seq: int, *, all_days: bool = False) -> DataFrame:
        """The messages after a place, up to a seq of its generation. Folders of earlier days are not opened, unless all are wanted."""
        rows = self._of(queue, begin.generation).where(F.col("seq").between(begin.seq + 1, seq))
        return rows if all_days or begin.day is None else rows.where(F.col("date") >= F.lit(begin.day))

    def _of(self, queue: str, generation: int) -> DataFrame:
        return self._messages.where((F.col("queue") == queue) & (F.col("generation") == generation))


def run_typed(context: Context) -> None:
    """Bring the typed table of each queue with a message type up to what the lake has."""
    with context.stage("typed") as stage:
        stage.note = ""
        failed, archived = FailedQueues(context, stage, FAILED, "typed"), LakeMessages(context)
        hidden = context.hidden()
        shown: list[tuple[str, int, int, str]] = []
        for queue, declared in sorted(_types(context).items()):
            with failed.alone(queue):
                check_plain(queue, hidden)
                if (held := archived.end(queue)) is None:
                    shown.append((queue, 0, 0, "nothing of it is in the lake yet: run archive first"))
                    continue
                end, note = _brought_up(context, stage, archived, declared, held)
                shown.append((queue, end.rows, end.rejects, note))
        rejects = sum(row[2] for row in shown)
        context.show("Typed tables", ("queue", "rows", "rejects", "note"), shown)
        context.check(stage, "every message fits its type", rejects == 0, f"{rejects:,} are rejected", "warn")
        failed.settle()


def _types(context: Context) -> dict[str, TypedQueue]:
    """The queues with a message type: of the spec that was named, else of the applied ones."""
    there = context.inputs.queues
    if context.wishes.app is not None:
        apps = dict.fromkeys(filter(there.__contains__, context.wishes.app.queues), context.wishes.app)
    else:
        apps = applied_apps(context.inputs.link, context.run.tenant, there.__contains__)
    found = {queue: typed_queue(app, queue) for queue, app in apps.items() if app.queues[queue].message_type}
    if not found and not context.inputs.gone:
        what = "applied spec" if context.wishes.app is None else f"queue of {context.wishes.app.name}"
        raise SkepError(
            Code.INVALID_REQUEST,
            f"no {what} gives a message_type to a queue that the server has and that is meant: apply one (skep spec apply), or name "
            "a spec file with --spec",
        )
    return found


def _brought_up(
    context: Context, stage: Stage, archived: LakeMessages, declared: TypedQueue, held: tuple[int, int]
) -> tuple[Position, str]:
    """Write what a table lacks, batch by batch; return its end, and what is to be said of it."""
    queue, most = declared.name, context.wishes.max_rows
    made_with = msgspec.json.encode([MADE_WITH, to_document(declared.app)]).decode()
    opened = open_table(context.root, queue, made_with, held)
    table = opened.table
    while table.note.through.place < held:
        last = archived.end_of(queue, table.note.through.generation)
        if table.note.through.seq >= last:
            table.begin_generation(table.note.through.generation + 1)
            continue
        number, begin = table.next_batch(most)
        _write(context, stage, archived, declared, table, number, begin, min(last, begin.seq + most))
    opened.close()
    end = table.note.through
    context.read(lake_dataset(context, "messages"))
    for name, rows in ((ROWS, end.rows), (REJECTS, end.rejects)):
        if rows:
            context.wrote(lake_dataset(context, f"{name}/{folder_of(queue)}", rows=rows))
    return end, "" if opened.old is None else "made anew: its type has changed"


def _write(
    context: Context, stage: Stage, archived: LakeMessages, declared: TypedQueue, table: TypedTable, number: int,
    begin: Position, seq: int,
) -> None:  # fmt: skip
    """Write one batch."""

    def staged(all_days: bool) -> Position:
        messages = archived.after(declared.name, begin, seq, all_days=all_days)
        return table.stage(typed(messages, declared.app, declared.name), number, begin, seq)

    end, before = staged(all_days=False), table.note.through
    # Days rise with seqs, unless a clock was ahead for a time. Then, and where messages were deleted one by one, all days are looked at.
    if begin.day is not None and end.messages - begin.messages < seq - begin.seq:
        end = staged(all_days=True)
    table.commit(number, begin, end)
    stage.rows_in += end.messages - before.messages
    stage.rows_out += end.rows - before.rows
    stage.rejected += end.rejects - before.rejects
    stage.batches += 1
    context.tell(stage)
