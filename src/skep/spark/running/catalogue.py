"""The pipelines that can be run by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.spark.running.context import Context


class Pipeline(Struct, frozen=True):
    """A pipeline: its name, what it does, the place of its function, and the tables it writes. This loads nothing of Spark."""

    name: str
    about: str
    home: str
    writes: Sequence[str]

    def load(self) -> Callable[[Context], None]:
        """The function that runs it."""
        module, _, name = self.home.partition(":")
        run: Callable[[Context], None] = getattr(import_module(f"skep.spark.running.{module}"), name)
        return run


PIPELINES = (
    Pipeline("archive", "Queues into the lake, each message once.", "archiving:run_archive", ("messages",)),
    Pipeline("history", "How leases ended, and dead letters, into the lake.", "history:run_history", ("leases", "letters")),
    Pipeline("metrics", "Counts and latencies per window, queue and group.", "measuring:run_metrics", ("metrics",)),
    Pipeline("journeys", "Traces across queues, their critical path, the slowest and the broken.", "following:run_journeys", ("journeys",)),
    Pipeline("dead-letters", "What messages were given up for, and what sets them apart.", "deriving:run_dead_letters", ("dead_letters",)),
    Pipeline("replay", "Messages of the lake back into a queue, each once.", "replaying:run_replay", ()),
    Pipeline("forget", "Chosen messages out of the lake and the log, for good; skep lake forget runs it.", "forgetting:run_forget", ()),
    Pipeline("commands", "What a spec's map_to makes of messages: typed, checked, rejects apart.", "specified:run_commands", ("commands",)),
    Pipeline("quality", "The checks of a spec on the messages of its queues.", "specified:run_quality", ("quarantine",)),
    Pipeline("typed", "The lake's messages as tables with typed columns, rejects apart.", "parsing:run_typed", ("typed", "rejects")),
)  # fmt: skip


def find(name: str) -> Pipeline:
    for pipeline in PIPELINES:
        if pipeline.name == name.replace("_", "-"):
            return pipeline
    known = ", ".join(pipeline.name for pipeline in PIPELINES)
    raise SkepError(Code.INVALID_REQUEST, f"there is no pipeline {name!r}; there are {known}")
