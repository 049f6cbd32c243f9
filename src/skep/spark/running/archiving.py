"""Run `archive`: new messages go into the lake, batch by batch, each once. A queue that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import Folder, LakeTakenError, append, compact, undisturbed, upgrade
from skep.spark.pipelines.archive import COMPARED, compared
from skep.spark.running.context import MOST_ROWS_SHOWN, Context, lake_dataset, server_dataset
from skep.spark.running.failing import FailedQueues, is_of_a_queue
from skep.spark.running.forgetting import forget_as_the_log
from skep.spark.running.record import Stage
from skep.wire.log import LogBoundsResponse as Bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

ONCE = "every message is in the lake, once"
SEVERAL_QUEUES = 2
"""When so many queues are all other queues than before, that is no accident."""
VERIFY_TRIES = 5
"""How often the files are looked up anew when another run has replaced some of them."""
RANGES = "queue string, generation int, after bigint, through bigint"


class PassWork(Struct):
    """The work of a pass, by queue: the bounds of the log, the last seq in the lake, and the generation of the queue."""

    bounds: dict[str, Bounds]
    start: dict[str, int]
    generations: dict[str, int]
    touched: set[Folder] = msgspec.field(default_factory=set)
    """The folders that got messages."""

    def leave_out(self, failed: FailedQueues) -> None:
        """Go on without the queues that failed."""
        self.bounds = {queue: held for queue, held in self.bounds.items() if queue not in failed.errors}


def run_archive(context: Context) -> None:
    """Archive the logs up to their present ends, then compact the lake and verify the new messages."""
    with context.stage("archive") as stage:
        context.lake.refresh()
        rewritten = upgrade(context.spark, context.lake)
        stage.note = f"{rewritten} files brought into the present format" if rewritten else ""
        failed = FailedQueues(context, stage)
        work = _work(context, stage, failed)
        before = dict(work.start)
        while end := next_end(work.start, work.bounds, context.wishes.max_rows):
            done = _append(context, stage, work, end, failed)
            work.start |= done
            work.leave_out(failed)
            _report_progress(context, done)
            context.run.lag = {queue: max(0, one.last_seq - work.start[queue]) for queue, one in work.bounds.items()}
            stage.lag = sum(context.run.lag.values())
            context.tell(stage)
        stage.lag = stage.lag or 0
        forget_as_the_log(context, work.bounds)
        # Only folders with new messages have changed. An audit looks at all folders, also at those that earlier runs did not compact.
        looked_at = None if context.wishes.audit else work.touched
        if context.wishes.compact and (looked_at is None or looked_at):
            fewer = compact(context.spark, context.lake, looked_at)
            stage.note = f"{fewer} small files fewer" if fewer else stage.note
        context.read(*(server_dataset(context, queue) for queue, seq in work.start.items() if seq > before[queue]))
        context.wrote(lake_dataset(context, "messages", rows=stage.rows_out))
        if context.wishes.verify or context.wishes.audit:
            verify(context, stage, work, {} if context.wishes.audit else before, looked_at)
        failed.settle()


def _work(context: Context, stage: Stage, failed: FailedQueues) -> PassWork:
    """The work of this pass. A queue that cannot be archived fails alone."""
    work = PassWork({}, {}, {})
    together = context.inputs.looked_at_together()
    check_same_server(context, together)
    for queue in list(context.inputs.queues):
        with failed.alone(queue):
            held = together.get(queue) or context.inputs.bounds_of(queue)
            if held is None:
                continue
            generation = context.lake.generation_of(queue)
            if context.lake.log_of(queue) in (None, held.log):
                start = starting(context, stage, queue, held)
            else:
                _tell_anew(context, stage, queue, generation)
                generation, start = generation + 1, held.first_seq - 1
            work.bounds[queue], work.start[queue], work.generations[queue] = held, start, generation
    return work


def check_same_server(context: Context, there: Mapping[str, Bounds]) -> None:
    """Refuse a server on which several queues of the lake exist, and each is another queue of the same name: probably it is another server.

    A single such queue was deleted and made anew. If all of them were, the user has to say so (--all-remade).
    """
    known = [queue for queue in there if context.lake.log_of(queue) is not None]
    same = [queue for queue in known if context.lake.log_of(queue) == there[queue].log]
    if len(known) < SEVERAL_QUEUES or same or context.wishes.all_remade:
        return
    raise SkepError(
        Code.INVALID_REQUEST,
        f"the lake {context.run.lake} has {len(known)} queues of {context.run.server}, and every one of them is another queue there now: "
        "this is the lake of another server. Name the right --url, or another --lake. If all of them were deleted and made anew, "
        "say so once with --all-remade: the lake keeps what it has, and goes on with a new generation of each",
    )


def starting(context: Context, stage: Stage, queue: str, held: Bounds) -> int:
    """The last seq of a queue that is in the lake, or was deleted before it could be; an error when the two do not fit together."""
    through = context.lake.through(queue)
    if through is not None and through > held.last_seq:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the lake {context.run.lake} has {queue} up to seq {through}, but the server's log ends at {held.last_seq}: it was restored "
            "from a backup; name another --lake",
        )
    oldest = held.first_seq - 1
    if through is not None and through < oldest:
        context.check(
            stage, f"{queue}: nothing was deleted before it was archived", False,
            f"seqs {through + 1} to {oldest} are gone by retention; let it wait with --group", "warn",
        )  # fmt: skip
        if not context.wishes.allow_loss:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{oldest - through} messages of {queue} (seqs {through + 1} to {oldest}) were deleted by retention before they were "
                "archived; go on without them with --allow-loss, and let retention wait from now on with --group archive",
            )
    return oldest if through is None else max(through, oldest)


def _tell_anew(context: Context, stage: Stage, queue: str, generation: int) -> None:
    context.check(
        stage, f"{queue}: it is the queue that was archived before", False,
        f"it was deleted and made anew; the lake keeps generation {generation}, which ends with seq {context.lake.through(queue)}, "
        f"and goes on with generation {generation + 1}", "warn",
    )  # fmt: skip


def next_end(start: Mapping[str, int], bounds: Mapping[str, Bounds], most: int) -> dict[str, int]:
    """The last seq of each queue in the next batch; queues without new messages are left out."""
    left, end = most, {}
    for queue, held in bounds.items():
        count = min(left, held.last_seq - start[queue])
        if count > 0:
            end[queue] = start[queue] + count
            left -= count
    return end


def _append(
    context: Context, stage: Stage, work: PassWork, end: Mapping[str, int], failed: FailedQueues
) -> dict[str, int]:
    """Archive a batch up to these seqs; return the seqs that were reached. When a queue makes it fail, the batch is halved again and
    again until that queue is found. The other queues go on without it.
    """
    start = {queue: work.start[queue] for queue in end}
    logs = {queue: work.bounds[queue].log for queue in end}
    generations = {queue: work.generations[queue] for queue in end}
    try:
        sources = context.inputs.log_rows(start, end, logs, generations, context.wishes.plain)
        files = append(context.spark, context.lake, sources, end, logs, generations)
    except Exception as error:
        if not is_of_a_queue(error):
            raise
        queues = list(end)
        if len(queues) == 1:
            failed.note(queues[0], error)
            work.bounds.pop(queues[0])
            return {}
        halves = queues[: len(queues) // 2], queues[len(queues) // 2 :]
        done: dict[str, int] = {}
        for half in halves:
            done |= _append(context, stage, work, {queue: end[queue] for queue in half}, failed)
        return done
    rows = sum(file.rows for file in files)
    work.touched |= {file.folder for file in files}
    stage.rows_in += rows
    stage.rows_out += rows
    stage.batches += 1
    return dict(end)


def verify(
    context: Context, stage: Stage, work: PassWork, after: Mapping[str, int], folders: Collection[Folder] | None
) -> None:
    """Check that the lake has every message after some seqs exactly once.

    A message is in the folder of its queue and of the day of its push. So a new message, and a duplicate of it, can only be in the
    folders that this pass has written to. Other folders are not opened.
    """
    start = {queue: max(after.get(queue, 0), held.first_seq - 1) for queue, held in work.bounds.items()}
    end = {queue: held.last_seq for queue, held in work.bounds.items() if held.last_seq > start[queue]}
    if not end:
        return
    start = {queue: start[queue] for queue in end}
    # Messages that retention removes meanwhile are not compared.
    logged = context.inputs.messages(COMPARED, start, end, fails=False)
    ranges = [(queue, work.generations[queue], start[queue], seq) for queue, seq in end.items()]
    meant = context.spark.createDataFrame(ranges, RANGES)
    rows = _compared(context, logged, meant, folders)
    wrong = [row for row in rows if row["missing"] or row["doubled"]]
    shown = [*wrong, *(row for row in rows if not row["missing"] and not row["doubled"])][:MOST_ROWS_SHOWN]
    columns = ("queue", "in the log", "in the lake", "missing", "doubled")
    context.show("The lake", columns, [tuple(row) for row in shown])
    for row in wrong:
        context.check(
            stage, f"{row['queue']}: {ONCE}", False,
            f"{row['log']} in the log, {row['lake']} in the lake, {row['missing']} missing, {row['doubled']} doubled",
        )  # fmt: skip
    if any(check.name == ONCE and not check.held for check in context.run.checks):  # found by an earlier pass
        return
    figures = f"{sum(row['log'] for row in rows):,} messages of {len(rows):,} queues were compared"
    context.check(stage, ONCE, not wrong, figures)


def _compared(
    context: Context, logged: DataFrame, meant: DataFrame, folders: Collection[Folder] | None, tries: int = VERIFY_TRIES
) -> list[Row]:
    """What `compared` finds in some folders of the lake, by queue."""
    files = context.lake.files(folders)
    kept = frame_of(context.spark, files, ("queue", "generation", "seq", "message_id"))
    try:
        with undisturbed(context.lake, files):
            return compared(logged, kept, meant).orderBy("queue").collect()
    except LakeTakenError:  # who forgets messages has deleted some of these files
        if not tries:
            raise
    return _compared(context, logged, meant, folders, tries - 1)


def _report_progress(context: Context, end: Mapping[str, int]) -> None:
    """Move the group on the server; retention waits for it."""
    if context.wishes.group is not None:
        context.inputs.link.report_progress(context.wishes.group, end, archived=True)
