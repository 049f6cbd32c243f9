"""Run what a spec declares: its commands as a stream, and the checks of its queues.

The checkpoint of a stream keeps how far it has come.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.runtime.private_files import make_folder
from skep.spark.lake.files import escaped
from skep.spark.lake.frames import replace_rows
from skep.spark.lake.place import OWN, place_of
from skep.spark.pipelines.archive import divided
from skep.spark.pipelines.quality import quality, results
from skep.spark.running.command_batches import NAME, NOTES, CommandBatches, taken_notes
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.past import messages_in, past_time
from skep.spark.running.record import Stage
from skep.spark.running.sealing import check_plain
from skep.spec import App, to_json
from skep.spec.ir import OnFail

WATCH_SECONDS = 1
"""How often the progress of a stream is read."""


def run_commands(context: Context) -> None:
    """Turn the messages of each queue with a `map_to` into commands: in the table `commands`, and in the queue of `--to`."""
    app = _app(context)
    with context.stage("commands") as stage:
        queues = _queues(context, [queue for queue, spec in app.queues.items() if spec.map_to is not None], "a map_to")
        for queue in queues:
            _stream(context, stage, app, queue)
            context.read(server_dataset(context, queue))
        context.wrote(lake_dataset(context, "commands", rows=stage.rows_out))
        context.check(
            stage, "every message became a command", stage.rejected == 0, f"{stage.rejected} were rejected", "warn"
        )


def _stream(context: Context, stage: Stage, app: App, queue: str) -> None:
    root = _checkpoints(context) / f"commands-{queue}"
    batches = CommandBatches(
        app=to_json(app), queue=queue, to=context.wishes.to, connection=context.inputs.connection, root=root,
        name=checkpoint_name(root), lake=context.root,
    )  # fmt: skip
    shutil.rmtree(root / NOTES, ignore_errors=True)  # of a run that was killed
    stream = context.inputs.stream(queue, context.wishes.max_rows)
    query = (
        stream.writeStream.foreachBatch(batches)
        .option("checkpointLocation", f"file://{root / 'offsets'}")
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(WATCH_SECONDS):
            _count(context, stage, root)
    except BaseException:
        query.stop()  # a Spark Connect server would not stop it by itself
        raise
    finally:
        _count(context, stage, root)


def _checkpoints(context: Context) -> Path:
    """The folder of the checkpoints of streams."""
    if context.wishes.checkpoint is not None:
        return Path(context.wishes.checkpoint).absolute()
    if not context.root.is_local:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"Spark cannot keep the checkpoint of a stream in {context.root}: name a folder that the driver and all executors share with "
            "--checkpoint",
        )
    return (context.root / OWN / "checkpoints").local


def _count(context: Context, stage: Stage, root: Path) -> None:
    """Count the outcomes of finished batches."""
    for note in taken_notes(root):
        stage.rows_in += note.rows
        stage.rows_out += note.rows - note.rejected
        stage.rejected += note.rejected
        stage.batches += 1
        if note.lost:
            stage.note = (
                f"{note.lost:,} of the rejected are no dead letters: the queue keeps none, or retention was quicker"
            )
        for written in (context.wishes.to, note.letters_in):
            if written is not None:
                context.wrote(server_dataset(context, written))
        context.tell(stage)


def run_quality(context: Context) -> None:
    """Run the checks of each queue on its messages. Failures are counted, and dropped rows go to the table `quarantine`."""
    app = _app(context)
    with context.stage("quality") as stage:
        queues = _queues(context, [queue for queue, spec in app.queues.items() if spec.checks], "checks")
        shown: list[tuple[str, str, str, int, int]] = []
        bounds, past = context.inputs.bounds(), past_time(context)
        for queue in [queue for queue in queues if queue in bounds]:  # the others were deleted during the run
            counting = Observation()
            end = {queue: bounds[queue].last_seq}
            rows = context.inputs.messages(end=end) if past is None else messages_in(context, past, queue)
            checked = quality(rows, app, queue, observe=counting)
            if past is None:
                target = context.root / "quarantine" / f"queue={escaped(queue)}"
                quarantined = checked.quarantined.withColumns(divided(F.col("payload"))).drop("queue")
                dropped = replace_rows(quarantined, target, context.root / OWN)
            else:  # the table quarantine is that of the present log
                dropped = checked.quarantined.count()
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
        context.show("Checks of the spec", ("queue", "check", "on fail", "rows", "failed"), shown)


def _queues(context: Context, fit: Sequence[str], what: str) -> list[str]:
    """The wanted queues that exist. It is an error when there are none, unless they were deleted during the run."""
    queues = [queue for queue in fit if queue in context.inputs.queues]
    if not queues and context.inputs.gone.isdisjoint(fit):
        raise SkepError(
            Code.INVALID_REQUEST, f"no queue of {_app(context).name} that the server has and that is meant has {what}"
        )
    hidden = context.hidden()
    for queue in queues:
        check_plain(queue, hidden)
    return queues


def checkpoint_name(root: Path) -> str:
    """The unique name of a checkpoint; a new checkpoint gets one."""
    file = root / NAME
    if not file.exists():
        make_folder(root)
        place_of(str(file)).write_whole(uuid4().hex.encode())
    return file.read_text(encoding="ascii")


def _app(context: Context) -> App:
    if context.wishes.app is None:
        raise SkepError(Code.INVALID_REQUEST, "say which spec is meant: --spec orders.skep")
    return context.wishes.app
