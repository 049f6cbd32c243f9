"""Batches of commands. The name of a batch is the checkpoint's name and the batch's number.

Over Spark Connect the Spark server calls this, in another process, with nothing of the run but its pickled fields. So the outcome of
a batch goes into a file beside the checkpoint, and the run reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.lake.files import escaped
from skep.spark.lake.frames import replace_rows
from skep.spark.lake.place import OWN, Place, place_of
from skep.spark.link import link
from skep.spark.options import ServerConnection
from skep.spark.pipelines.commands import commands
from skep.spark.running.inputs import options_of
from skep.spec import from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME, NOTES = "name", "notes"
TOLD = ("field", "expression", "value")
"""The fields of an error that a dead letter shows besides its text."""
TOLD_CHARACTERS = 500
LETTER_SEQS = 1_000
"""Rejected messages are buried in calls of so many seqs, so that the same calls are made when a batch is repeated."""


class BatchNote(Struct, frozen=True):
    """The outcome of a batch."""

    rows: int
    rejected: int
    letters_in: str | None = None
    """The dead-letter queue, if there are dead letters."""
    lost: int = 0
    """How many rejected messages did not become dead letters."""


class CommandBatches(Struct, frozen=True, kw_only=True):
    """Writes the messages of a queue as commands, batch by batch."""

    app: str
    """The spec, as JSON."""
    queue: str
    to: str | None
    connection: ServerConnection
    root: Path
    """The folder of the checkpoint."""
    name: str
    """The name of the checkpoint."""
    lake: Place

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a batch. When it is written again, it replaces or repeats its output and adds nothing."""
        self._check_seen()
        made = commands(batch, from_json(self.app), self.queue)
        outcomes = made.outcomes.persist()
        rows, rejected = outcomes.agg(F.count(F.lit(1)), F.count("error")).collect()[0]
        target = self.lake / "commands" / f"queue={escaped(self.queue)}" / f"batch={self.name}-{number:010d}"
        replace_rows(made.commands.drop("queue"), target, self.lake / OWN)
        if self.to is not None:
            self._push(_as_messages(made.commands), self.to, f"{self.name}-{number}-commands")
        note = BatchNote(rows, rejected)
        if rejected:
            note = self._bury(made.rejects, note, f"{self.name}-{number}")
        outcomes.unpersist()
        notes = self.root / NOTES
        notes.mkdir(exist_ok=True)
        place_of(str(notes / f"{number}.json")).write_whole(msgspec.json.encode(note))

    def _check_seen(self) -> None:
        file = self.root / NAME
        if not file.exists() or file.read_text(encoding="ascii") != self.name:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the Spark Connect server does not see {self.root} as this machine does: put --lake, and --checkpoint if it is "
                "given, on a file system that both share under the same path",
            )

    def _push(self, frame: DataFrame, to: str, write_id: str) -> None:
        writer = frame.write.format("skep").options(**options_of(self.connection))
        try:
            writer.option("queue", to).option("writeId", write_id).mode("append").save()
        except Exception as error:
            # Spark turns an error of the writer's Python code into text.
            if f"{Code.EPOCH_PUBLISHED}: " not in str(error):
                raise
            raise SkepError(
                Code.EPOCH_PUBLISHED,
                f"the next batch of {self.queue} was pushed before, by a run that was killed then, and has other commands now: the spec "
                "or --to has changed since. Run it once more with the spec and the --to of then, and change them after that; or let "
                f"another --checkpoint begin with the first message of {self.queue}, whose commands are then pushed again.",
            ) from error

    def _bury(self, rejects: DataFrame, note: BatchNote, name: str) -> BatchNote:
        """Put rejected messages among the dead letters of their queue, portion by portion, each portion once."""
        rows = rejects.select("seq", _why().alias("error")).orderBy("seq").toLocalIterator(prefetchPartitions=True)
        server, lost, letters_in = link(self.connection), 0, None
        for portion, letters in groupby(rows, key=lambda row: row["seq"] // LETTER_SEQS):
            errors = {row["seq"]: row["error"] for row in letters}
            told = server.patiently(partial(server.client.bury, self.queue, errors, name=f"{name}-{portion}"))
            lost += len(errors) - told.buried
            letters_in = told.dead_letter_queue or letters_in
        return msgspec.structs.replace(note, letters_in=letters_in, lost=lost)


def taken_notes(root: Path) -> Iterator[BatchNote]:
    """The outcomes of the batches since the last call; their files are deleted."""
    for file in sorted((root / NOTES).glob("*.json")):
        yield msgspec.json.decode(file.read_bytes(), type=BatchNote)
        file.unlink()


def _as_messages(made: DataFrame) -> DataFrame:
    headers = F.create_map(F.lit("skep-entity"), F.col("entity"), F.lit("skep-command"), F.col("command"))
    origin = F.concat_ws("/", F.lit("command"), F.col("queue"), F.col("seq").cast("string"))
    return made.select(
        "partition",
        F.col("input").alias("payload"),
        origin.alias("transaction_id"),
        "trace_id",
        headers.alias("headers"),
    )


def _why() -> Column:
    """The error of a dead letter: the code and the text, then the field, expression and value."""
    said = [F.concat(F.lit(f"{name} "), F.substring(name, 1, TOLD_CHARACTERS)) for name in TOLD]
    rest = F.concat_ws(
        ", ", *[F.when(F.coalesce(name, F.lit("")) != "", part) for name, part in zip(TOLD, said, strict=True)]
    )
    return F.concat(
        F.concat_ws(": ", "code", "error"), F.when(rest != "", F.concat(F.lit(" ("), rest, F.lit(")"))).otherwise("")
    )
