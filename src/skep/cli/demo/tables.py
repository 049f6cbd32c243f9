"""The end of the demo: pipelines on Spark archive all messages in a lake, and report on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.demo.checks import lake_check, line
from skep.cli.output import filled_table
from skep.cli.pipeline import missing_for_spark

if TYPE_CHECKING:
    from skep.cli.demo.screen import StoryScreen
    from skep.cli.demo.stage import StoryStage
    from skep.spark.running.record import Run
    from skep.spark.running.record import Stage as Step

PIPELINES = ("archive", "metrics", "journeys", "dead-letters")
SHOWN = ("The lake", "Queues and groups", "Journeys", "Dead letters")
MASTER = "local[2]"


def into_spark(stage: StoryStage, lake: str | None) -> bool:
    """Run the pipelines over the queues of the story, and return whether their checks held. Without Spark, say that it is missing."""
    stage.screen.act("Now Spark: every message goes into a lake, and pipelines say how it went")
    missing = missing_for_spark()
    if missing is not None:
        stage.screen.say(f"this part is left out: {missing}")
        return True
    from skep.spark.options import ServerConnection
    from skep.spark.running.context import Wishes
    from skep.spark.running.runner import RunPlan, run_pipelines
    from skep.spark.running.summary import lines
    from skep.spark.session import SMALL

    root = lake or str(stage.served.folder / "lake")
    scratch = stage.served.folder / "spark"
    scratch.mkdir(exist_ok=True)
    stage.screen.say(
        "Spark starts, which takes some seconds", stage.typed(f"pipeline run {' '.join(PIPELINES)} --lake {root}")
    )
    plan = RunPlan(
        names=PIPELINES, connection=ServerConnection((stage.served.url,), "default", None, 60.0), lake=root, master=MASTER,
        wishes=Wishes(window="5 seconds"), config={**SMALL, "spark.local.dir": str(scratch)},
    )  # fmt: skip
    ended = run_pipelines(plan, _Steps(stage.screen))
    for table in ended.run.tables:
        if table.title in SHOWN and table.rows:
            stage.screen.say("", table.title)
            stage.screen.summary(filled_table(table.columns, table.rows))
    logged = {queue: _count(stage, queue) for queue in ended.run.queues}
    check = lake_check(logged, _kept(ended.run))
    stage.screen.say(*lines(ended.run), "", line(check), f"report: {ended.report}")
    return check.held and ended.run.status != "failed"


def _count(stage: StoryStage, queue: str) -> int:
    return sum(1 for _ in stage.client.messages(queue, preview=0))


def _kept(run: Run) -> dict[str, int]:
    """How many rows of each queue the archive counted in the lake."""
    rows = next((table.rows for table in run.tables if table.title == "The lake"), [])
    return {str(row[0]): int(row[2] or 0) for row in rows}


class _Steps:
    """Shows each stage of the pipelines when it begins."""

    def __init__(self, screen: StoryScreen) -> None:
        self._screen = screen
        self._told: set[str] = set()

    def stage(self, stage: Step) -> None:
        """A stage of a pipeline has progressed."""
        if stage.name not in self._told:
            self._told.add(stage.name)
            self._screen.say(f"{stage.name} …")
