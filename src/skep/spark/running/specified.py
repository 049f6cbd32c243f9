"""Running what a spec declares: commands as a stream, and the checks of queues.

A stream of commands keeps how far it is in its checkpoint, and each batch of it is written under a name made of the checkpoint's own name
and the batch's number: a batch that is run again after a kill replaces or repeats what it wrote, and adds nothing.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.pipelines.commands import commands
from skep.spark.pipelines.quality import quality, results
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.files import replace_folder, write_rows, write_whole
from skep.spark.running.lake import OWN
from skep.spark.running.record import Stage
from skep.spec import App
from skep.spec.ir import OnFail

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOLD = ("field", "expression", "value")
"""What the error of a dead letter names beside what went wrong."""
TOLD_CHARACTERS = 500
LETTER_SEQS = 1_000
"""Rejected messages of so many seqs are buried in one call: where it begins and ends does not depend on which these are."""


def run_commands(context: Context) -> None:
    """The messages of each queue with a `map_to` as commands: into the table `commands`, and a queue where `--to` names one."""
    app = _app(context)
    queues = [queue for queue, spec in app.queues.items() if spec.map_to is not None and queue in context.inputs.queues]
    with context.stage("commands") as stage:
        if not queues:
            raise SkepError(
                Code.INVALID_REQUEST, f"no queue of {app.name} that the server has and that is meant has a map_to"
            )
        for queue in queues:
            _stream(context, stage, app, queue)
            context.read(server_dataset(context, queue))
        context.wrote(lake_dataset(context, "commands", rows=stage.rows_out))
        context.check(
            stage, "every message became a command", stage.rejected == 0, f"{stage.rejected} were rejected", "warn"
        )


def _stream(context: Context, stage: Stage, app: App, queue: str) -> None:
    root = Path(context.wishes.checkpoint or context.tables / OWN / "checkpoints") / f"commands-{queue}"
    name = checkpoint_name(root)

    def write(batch: DataFrame, number: int) -> None:
        made = commands(batch, app, queue)
        outcomes = made.outcomes.persist()
        counted = outcomes.agg(F.count(F.lit(1)), F.count("error")).collect()[0]
        target = context.tables / "commands" / f"queue={queue}" / f"batch={name}-{number:010d}"
        _write_table(context, made.commands.drop("queue"), target)
        if context.wishes.to is not None:
            _push(context, _as_messages(made.commands), queue, context.wishes.to, f"{name}-{number}-commands")
        if counted[1]:
            _bury(context, stage, made.rejects, queue, f"{name}-{number}")
        outcomes.unpersist()
        stage.rows_in += counted[0]
        stage.rows_out += counted[0] - counted[1]
        stage.rejected += counted[1]
        stage.batches += 1
        context.watcher.stage(stage)

    stream = context.inputs.stream(queue, context.wishes.max_rows)
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(root / "offsets"))
        .trigger(availableNow=True)
    )
    query.start().awaitTermination()


def run_quality(context: Context) -> None:
    """The checks of each queue on the messages it holds: counted, and those to be dropped into the table `quarantine`."""
    app = _app(context)
    queues = [queue for queue, spec in app.queues.items() if spec.checks and queue in context.inputs.queues]
    with context.stage("quality") as stage:
        if not queues:
            raise SkepError(
                Code.INVALID_REQUEST, f"no queue of {app.name} that the server has and that is meant has checks"
            )
        shown: list[tuple[str, str, str, int, int]] = []
        for queue in queues:
            counting = Observation()
            checked = quality(context.inputs.messages(end=_ends(context, queue)), app, queue, observe=counting)
            target = context.tables / "quarantine" / f"queue={queue}"
            dropped = _write_table(context, checked.quarantined.drop("queue"), target)
            found = results(app, queue, counting.get)
            for one in found:
                severity = "fail" if one.on_fail is OnFail.FAIL else "warn"
                figures = f"{one.failed:,} of {one.rows:,} rows failed"
                context.check(stage, f"{queue}.{one.check}", one.failed == 0, figures, severity)  # type: ignore[arg-type] # one of two words
                shown.append((queue, one.check, str(one.on_fail), one.rows, one.failed))
            stage.rows_in += found[0].rows
            stage.rejected += dropped
            stage.rows_out += found[0].rows - dropped
            context.read(server_dataset(context, queue, found[0].rows))
        context.wrote(lake_dataset(context, "quarantine", rows=stage.rejected))
        context.show("Checks of the spec", None, ("queue", "check", "on fail", "rows", "failed"), shown)


def checkpoint_name(root: Path) -> str:
    """The name of a checkpoint, which it got when it was made: another one, also for the same queue, has another."""
    file = root / "name"
    if not file.exists():
        root.mkdir(parents=True, exist_ok=True)
        write_whole(file, uuid4().hex.encode())
    return file.read_text(encoding="ascii")


def _app(context: Context) -> App:
    if context.wishes.app is None:
        raise SkepError(Code.INVALID_REQUEST, "say which spec is meant: --spec orders.skep")
    return context.wishes.app


def _ends(context: Context, queue: str) -> dict[str, int]:
    return {queue: context.inputs.link.bounds(queue).last_seq}


def _write_table(context: Context, frame: DataFrame, target: Path) -> int:
    """Write a folder whole, in the place of what an earlier try may have left there; how many rows it has."""
    fresh = context.tables / OWN / "fresh-part"
    rows = write_rows(frame, fresh)
    replace_folder(fresh, target)
    return rows


def _push(context: Context, frame: DataFrame, queue: str, to: str, write_id: str) -> None:
    try:
        context.inputs.writer(frame).option("queue", to).option("writeId", write_id).mode("append").save()
    except Exception as error:
        # What is raised on the driver's Python side of a write comes back from Spark as text.
        if f"{Code.EPOCH_PUBLISHED}: " not in str(error):
            raise
        raise SkepError(
            Code.EPOCH_PUBLISHED,
            f"the next batch of {queue} was pushed before, by a run that was killed then, and has other commands now: the spec or --to "
            "has changed since. Run it once more with the spec and the --to of then, and change them after that; or let another "
            f"--checkpoint begin with the first message of {queue}, whose commands are then pushed again.",
        ) from error
    context.wrote(server_dataset(context, to))


def _as_messages(made: DataFrame) -> DataFrame:
    headers = F.create_map(F.lit("skep-entity"), F.col("entity"), F.lit("skep-command"), F.col("command"))
    return made.select(
        "partition", F.col("input").alias("payload"), _origin("command"), "trace_id", headers.alias("headers")
    )


def _bury(context: Context, stage: Stage, rejects: DataFrame, queue: str, name: str) -> None:
    """Put rejected messages among the dead letters of their queue, portion by portion, each portion once."""
    rows = rejects.select("seq", _why().alias("error")).orderBy("seq").toLocalIterator(prefetchPartitions=True)
    server, lost = context.inputs.link, 0
    for portion, letters in groupby(rows, key=lambda row: row["seq"] // LETTER_SEQS):
        errors = {row["seq"]: row["error"] for row in letters}
        told = server.patiently(partial(server.client.bury, queue, errors, name=f"{name}-{portion}"))
        lost += len(errors) - told.buried
        if told.dead_letter_queue is not None:
            context.wrote(server_dataset(context, told.dead_letter_queue))
    if lost:
        stage.note = f"{lost:,} of the rejected are no dead letters: the queue keeps none, or retention was quicker"


def _why() -> Column:
    """What went wrong, and with what: for people, and to be searched for."""
    said = [F.concat(F.lit(f"{name} "), F.substring(name, 1, TOLD_CHARACTERS)) for name in TOLD]
    rest = F.concat_ws(
        ", ", *[F.when(F.coalesce(name, F.lit("")) != "", part) for name, part in zip(TOLD, said, strict=True)]
    )
    return F.concat(
        F.concat_ws(": ", "code", "error"), F.when(rest != "", F.concat(F.lit(" ("), rest, F.lit(")"))).otherwise("")
    )


def _origin(label: str) -> Column:
    return F.concat_ws("/", F.lit(label), F.col("queue"), F.col("seq").cast("string")).alias("transaction_id")
