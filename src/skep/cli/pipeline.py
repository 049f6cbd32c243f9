"""`skep pipeline`: run the ready pipelines on Spark. Only commands that need Spark load it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Group, Parameter

from skep.cli.connection import Flag, ServerOptions
from skep.cli.exits import OK, USER, exit_code
from skep.cli.interrupts import ending_in_order
from skep.cli.old_messages import Catalog
from skep.cli.output import chosen, console, filled_table, print_json, print_lines, print_rows
from skep.cli.spec_files import read_text
from skep.cli.when import instant
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.spark.running.context import Wishes
    from skep.spark.running.record import Run
    from skep.spark.running.runner import Ended

pipeline_app = App(name="pipeline", help="Run the ready pipelines on Spark.")

Several = Annotated[tuple[str, ...], Parameter(consume_multiple=False, negative="")]
"""An option that may be given several times."""
_ARCHIVE = Group("Of archive", sort_key=30)
_METRICS = Group("Of metrics", sort_key=40)
_REPLAY = Group("Of replay", sort_key=50)
_SPARK = Group("Spark", sort_key=60)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@Parameter(name="*", group=_SPARK)
@dataclass(frozen=True, kw_only=True)
class Where:
    """Where Spark runs."""

    master: str = "local[*]"
    """Spark's master: this machine, spark://host:7077, yarn, k8s://…"""
    remote: str | None = None
    """A Spark Connect server instead: sc://host:15002."""
    checkpoint: str | None = None
    """The folder where streams keep their progress; in the lake by default. The archive needs none."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The input of pipelines, and the folder of the results."""

    queue: Several = ()
    """Only this queue (all queues by default); may be given several times."""
    skip: Several = ()
    """Leave this queue out; may be given several times."""
    lake: Annotated[str, Parameter(env_var="SKEP_LAKE")] = "lake"
    """The folder of the lake, or its URI in an object store: s3://, gs://, abfss://, hdfs://."""
    spec: str | None = None
    """The spec file of commands, quality and typed. Without it typed takes the specs that are applied on the server."""


@Parameter(name="*", group=_ARCHIVE)
@dataclass(frozen=True, kw_only=True)
class Archiving:
    """How the archive is written and checked."""

    format: Literal["parquet", "delta", "iceberg"] | None = None
    """The format of the archive (default: the one it has; parquet for a new one in a folder, delta in an object store)."""
    catalog: Catalog = None
    """The catalog of an archive of Iceberg, as pyiceberg is configured: NAME or NAME.NAMESPACE."""
    plain: Several = ()
    """An encrypted queue whose payloads may go into the lake as plain text; may be given several times."""
    group: str | None = None
    """A group on the server that follows the archive; retention waits for it."""
    max_rows: int = 1_000_000
    """The largest number of messages in a batch of the archive."""
    compact: bool = True
    """Merge many small files into few large files."""
    verify: bool = True
    """At the end, compare the messages that this run archived with the logs."""
    audit: Flag = False
    """Compare all messages of the lake with the logs, not only the new ones."""
    allow_loss: Flag = False
    """Go on when retention has deleted messages before they were archived."""
    all_remade: Flag = False
    """Go on when every queue of the lake was deleted and made anew."""


@Parameter(name="*", group=_METRICS)
@dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows of the metrics."""

    window: str = "1 minute"
    """The length of a window of the metrics."""
    late: str = "1m"
    """How long a window is computed again for late data."""
    buckets: int = 1
    """Into how many parts the partitions of a queue are divided in the metrics."""


@Parameter(name="*", group=_REPLAY)
@dataclass(frozen=True, kw_only=True)
class Replaying:
    """The messages to replay, and how."""

    where: str | None = None
    """An expression (CEL) over message, queue, generation, partition, seq, headers, created_at."""
    map: str | None = None
    """An expression for the new payload, such as {"total": message.amount}."""
    to: str | None = None
    """The target queue instead of the messages' own queue; also the queue of commands."""
    label: str = "replay"
    """A label of this replay. With another label, messages of an earlier replay are pushed again and are no duplicates."""
    rate: float | None = None
    """The largest number of messages per second."""
    since: str | None = None
    """Only messages pushed from this time on; metrics, journeys and quality compute this time again, from the lake."""
    until: str | None = None
    """Only messages pushed before this time; for metrics, journeys and quality as with --since."""
    dry_run: Flag = False
    """Only count and show the messages."""


@pipeline_app.command
def run(
    *names: str,
    once: Flag = False,
    every: str | None = None,
    scope: PipelineOptions = PipelineOptions(),
    archiving: Archiving = Archiving(),
    windows: Windows = Windows(),
    replaying: Replaying = Replaying(),
    where: Where = Where(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Run pipelines on Spark, one after the other: once, or again and again (--every).

    Tables, run.json, the report and the lineage are written into the lake.
    The exit code is 1 when a check or a queue failed, 2 when the server
    cannot be reached, 3 when the token is refused, 4 when a queue is
    missing.

    For example:
        skep pipeline run archive metrics journeys dead-letters
        skep pipeline run archive --every 5s --group archive --lake /data/lake
        skep pipeline run commands quality --spec shop.skep
        skep pipeline run archive typed
        skep pipeline run replay --queue orders --where 'message.total > 100' --dry-run

    Parameters
    ----------
    names
        The names of the pipelines, as skep pipeline list shows them.
    once
        Process everything there is, then end (the default without --every).
    every
        Run again and again, at this interval: 5s, 1m.
    """
    if not names:
        raise SkepError(Code.INVALID_REQUEST, "name a pipeline; skep pipeline list has them")
    if once and every is not None:
        raise SkepError(Code.INVALID_REQUEST, "--once and --every exclude each other")
    pause = None if every is None else span(every)
    _check_positive(max_rows=archiving.max_rows, buckets=windows.buckets, rate=replaying.rate, every=pause)
    checkpoint = _folder(where.checkpoint)
    needs_spark(where.remote)
    from skep.spark.options import ServerConnection as Link
    from skep.spark.running.live import LiveLines
    from skep.spark.running.runner import RunPlan, run_pipelines

    wishes = _wishes(archiving, windows, replaying, scope.spec, pause, checkpoint)
    plan = RunPlan(
        names=names, connection=Link(to.urls, to.tenant, to.token, retry_seconds=60.0), queues=scope.queue, skip=scope.skip,
        lake=scope.lake, format=archiving.format, catalog=archiving.catalog, master=where.master, remote=where.remote, wishes=wishes, quick_start=False,
    )  # fmt: skip
    with ending_in_order():
        ended = run_pipelines(plan, LiveLines())
    print_run(to, ended)
    if ended.run.error is not None:
        return USER if ended.run.error_code is None else exit_code(ended.run.error_code)
    return USER if ended.run.status == "failed" else OK


def _wishes(
    archiving: Archiving,
    windows: Windows,
    replaying: Replaying,
    spec: str | None,
    pause: float | None,
    checkpoint: str | None,
) -> Wishes:
    """The options of the command as the pipelines take them; ``pause`` is the interval of the runs in seconds."""
    from skep.spark.running.context import Wishes
    from skep.spec import load

    return Wishes(
        every_seconds=pause, max_rows=archiving.max_rows, group=archiving.group, compact=archiving.compact,
        verify=archiving.verify, audit=archiving.audit, plain=archiving.plain, allow_loss=archiving.allow_loss,
        all_remade=archiving.all_remade, window=windows.window, late_seconds=span(windows.late), buckets=windows.buckets,
        checkpoint=checkpoint, where=replaying.where, mapping=replaying.map, to=replaying.to, label=replaying.label,
        rate=replaying.rate, dry_run=replaying.dry_run, since=_moment(replaying.since), until=_moment(replaying.until),
        app=None if spec is None else load(read_text(spec), spec),
    )  # fmt: skip


def _folder(checkpoint: str | None) -> str | None:
    """The folder of the checkpoint. Refuse a URL: this process keeps its part of the checkpoint in the file system."""
    folder = None if checkpoint is None else checkpoint.removeprefix("file://")
    if folder is not None and "://" in folder:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"--checkpoint is a folder, which {checkpoint} is not; on a cluster it is one that this machine and all of Spark's see",
        )
    return folder


def _check_positive(**options: float | None) -> None:
    for name, value in options.items():
        if value is not None and value <= 0:
            raise SkepError(Code.INVALID_REQUEST, f"--{name.replace('_', '-')} is more than 0")


@pipeline_app.command(name="list")
def list_pipelines(*, to: ServerOptions = ServerOptions()) -> None:
    """List the pipelines, and the tables that they write.

    For example:
        skep pipeline list
    """
    from skep.spark.running.catalogue import PIPELINES

    columns = {
        "pipeline": lambda one: one.name, "writes": lambda one: ", ".join(one.writes) or "-", "about": lambda one: one.about,
    }  # fmt: skip
    print_rows(to, PIPELINES, columns)


@pipeline_app.command
def doctor(*, lake: str = "lake", to: ServerOptions = ServerOptions()) -> int:
    """Check whether this machine is fit to run pipelines: Java, Python, memory, the server.

    The exit code is 2 when a check failed, else 0.

    For example:
        skep pipeline doctor

    Parameters
    ----------
    lake
        The folder of the lake to check.
    """
    from skep.cli.doctor import tell
    from skep.spark.running.doctor import examine

    return tell(examine(to.url, to.tenant, to.token, lake), chosen(to.output))


def needs_spark(remote: str | None = None) -> None:
    """Raise before the run begins when Spark or Java is missing."""
    missing = missing_for_spark(remote)
    if missing is not None:
        raise SkepError(Code.INVALID_REQUEST, missing)


def missing_for_spark(remote: str | None = None) -> str | None:
    """The reason why pipelines cannot run here; None when they can."""
    from skep.spark.environment import cure, missing

    if lacking := missing():
        return f"pipelines need Spark: {cure(lacking)}"
    if remote is not None:
        return None  # the Spark Connect server has Java
    from skep.spark.java import NoJavaError, java_home

    try:
        java_home()
    except NoJavaError as error:
        return str(error)
    return None


def print_run(to: ServerOptions, ended: Ended) -> None:
    """Print a run: JSON for programs, with the summary on stderr; the tables and the summary for people."""
    from skep.spark.running.summary import lines

    is_kept = ended.run.error_code is not Code.LAKE_UNREACHABLE
    summary = [*lines(ended.run), *(["", f"report: {ended.report}"] if is_kept else [])]
    if chosen(to.output) != "table":
        print_json(ended.run)
        # The mail of a nightly run has to say what failed.
        sys.stderr.write("".join(f"{line}\n" for line in summary))
        return
    print_tables(ended.run)
    print_lines(["", *summary])


def print_tables(run: Run) -> None:
    """Print the tables of a run."""
    for table in run.tables:
        print_lines(["", table.title, *([f"  {table.note}"] if table.note else [])])
        if table.rows:
            console().print(filled_table(table.columns, table.rows))
        else:
            print_lines(["  none"])


def span(written: str) -> float:
    """A duration such as 5s or 1m, in seconds."""
    found = _SPAN.fullmatch(written)
    if found is None:
        raise SkepError(Code.INVALID_TIME, f"a duration is written 500ms, 5s, 1m, 2h or 1d, not {written!r}")
    return float(found[1]) * _UNITS[found[2]]


def _moment(written: str | None) -> str | None:
    return None if written is None else instant(written).isoformat()
