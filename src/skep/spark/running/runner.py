"""A run from start to end: session, lake, pipelines, then `run.json`, report and lineage, also after a failure."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from skep.client import Client
from skep.client.failures import UnreachableError
from skep.clock import SystemClock
from skep.errors import Code, SkepError
from skep.ids import IdMint, id_text
from skep.runtime.private_files import make_folder
from skep.spark.lake.opening import Format, open_lake
from skep.spark.lake.place import Place, place_of
from skep.spark.options import ServerConnection
from skep.spark.running import lineage
from skep.spark.running.catalogue import find
from skep.spark.running.context import Context, Watcher, Wishes
from skep.spark.running.inputs import Inputs
from skep.spark.running.quiet import output_to, unsaid
from skep.spark.running.record import Run
from skep.spark.running.report import report
from skep.spark.running.said import code_of, told, write_whole_error
from skep.spark.running.telling import Teller

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = "runs"
SPARK_LOG = "spark.log"
GREETING_SECONDS = 10.0

log = logging.getLogger("skep.spark")


class RunPlan(Struct, frozen=True, kw_only=True):
    """What to run, and where."""

    names: Sequence[str]
    connection: ServerConnection
    queues: Sequence[str] = ()
    skip: Sequence[str] = ()
    lake: str = "lake"
    format: Format | None = None
    """The format of the table of messages; None: the one that it has, or the usual one."""
    catalog: str | None = None
    """The catalog of a lake of Iceberg, as pyiceberg knows it."""
    master: str = "local[*]"
    remote: str | None = None
    wishes: Wishes = field(default_factory=Wishes)
    quick_start: bool = True
    config: dict[str, str] = {}
    """Spark's own settings."""


class Ended(Struct, frozen=True):
    """An ended run, and the folder of its record."""

    run: Run
    folder: Place

    @property
    def report(self) -> Place:
        return self.folder / "report.html"


def run_pipelines(plan: RunPlan, watcher: Watcher | None = None, spark: SparkSession | None = None) -> Ended:
    """Run pipelines one after the other, once or again and again. Ctrl-C ends repeated passes in order.

    A given session is used and left open; otherwise one is started and stopped.
    """
    pipelines = [find(name) for name in plan.names]
    run = _new_run(plan)
    root = place_of(plan.lake)
    folder = root / RUNS / run.id
    if root.is_local:
        make_folder(root.local)  # private, since it will hold payloads; an existing folder keeps its mode
        folder.local.mkdir(parents=True, exist_ok=True)
    teller: Teller | None = None
    try:
        with ExitStack() as stack:
            output = stack.enter_context(_spark_log(folder))
            lake = stack.enter_context(open_lake(root, plan.connection.tenant, plan.format, plan.catalog))
            if plan.wishes.every_seconds is None:  # repeated passes may be started before their server
                _greet(plan.connection)
            spark = spark or _session(plan, stack, output)
            inputs = Inputs(
                spark, plan.connection, plan.queues, skip=plan.skip, fail_on_data_loss=not plan.wishes.allow_loss
            )
            run.queues = inputs.queues
            teller = Teller(inputs.link.client, run)
            context = Context(
                spark=spark, inputs=inputs, lake=lake, root=root, wishes=plan.wishes, run=run,
                watchers=[teller] if watcher is None else [watcher, teller],
            )  # fmt: skip
            steps = [pipeline.load() for pipeline in pipelines]
            while True:
                began = time.monotonic()
                for step in steps:
                    _do(step, context, plan)
                if plan.wishes.every_seconds is None:
                    break
                write_down(run, folder)
                time.sleep(max(0.0, plan.wishes.every_seconds - (time.monotonic() - began)))
                _miss(context, inputs.refresh(plan.queues))
    except KeyboardInterrupt:
        if plan.wishes.every_seconds is None:
            run.error = "interrupted"
            _end(run, folder, teller)
            raise
    except SkepError as error:
        run.error, run.error_code = error.message, error.code
    except Exception as error:
        run.error, run.error_code = told(error), code_of(error) or _away(root)
        _note_error(error, folder / SPARK_LOG)
    _end(run, folder, teller)
    return Ended(run, folder)


def _do(step: Callable[[Context], None], context: Context, plan: RunPlan) -> None:
    """Run a pipeline. In repeated passes, it starts again without a queue that was deleted meanwhile."""
    while True:
        try:
            step(context)
            _miss(context, context.inputs.take_missed())
            return
        except Exception:
            lost = [] if plan.wishes.every_seconds is None else context.inputs.refresh(plan.queues)
            if not lost:
                raise
            _miss(context, lost)


def _miss(context: Context, lost: Sequence[str]) -> None:
    """Warn of deleted queues; raise when none is left."""
    for queue in lost:
        log.warning("the queue %s was deleted; going on without it", queue)
        for stage in context.run.stages[:1]:
            said = "deleted while the run went on; what the lake has of it stays"
            context.check(stage, f"{queue}: it is still there", False, said, "warn")
    if lost and not context.inputs.queues:
        raise SkepError(Code.QUEUE_NOT_FOUND, f"no queue is left to read: {', '.join(lost)} was deleted")


def _away(root: Place) -> Code | None:
    """The code of a lake that cannot be reached any more: whatever has failed, that is why."""
    try:
        root.check_reached()
    except SkepError as error:
        return error.code
    return None


def _end(run: Run, folder: Place, teller: Teller | None) -> None:
    run.settle(datetime.now(UTC))
    if run.error_code is not Code.LAKE_UNREACHABLE:
        try:
            write_down(run, folder)
        except OSError as error:
            log.warning("%s", _no_record(folder, error))
            run.error = run.error or _no_record(folder, error)
            run.settle(datetime.now(UTC))
    if teller is not None:
        teller.tell({"report": str(folder / "report.html"), "run": str(folder / "run.json")})


def _no_record(folder: Place, error: Exception) -> str:
    return f"the record of the run cannot be written to {folder}: {told(error)}"


def write_down(run: Run, folder: Place) -> None:
    """Write `run.json`, the report and the lineage."""
    (folder / "run.json").write_whole(msgspec.json.format(msgspec.json.encode(run)))
    (folder / "report.html").write_whole(report(run).encode())
    (folder / "lineage.ndjson").write_whole(lineage.events(run))


@contextmanager
def _spark_log(folder: Place) -> Iterator[Path]:
    """The file for the output of Java. In an object store it comes when the run has ended."""
    if folder.is_local:
        yield (folder / SPARK_LOG).local
        return
    with TemporaryDirectory(prefix="skep-run-") as aside:
        log_file = Path(aside) / SPARK_LOG
        try:
            yield log_file
        finally:
            if log_file.exists():
                _append(folder / SPARK_LOG, log_file.read_bytes())


def _note_error(error: Exception, file: Place) -> None:
    """Add the whole error to the output of Java."""
    if file.is_local:
        write_whole_error(error, file.local)
        return
    _append(file, "".join(traceback.format_exception(error)).encode())


def _append(file: Place, more: bytes) -> None:
    """Write more to a file of an object store. Where that fails, it must not hide how the run ended."""
    try:
        file.check_reached()
        file.write_whole((file.read_bytes() if file.exists() else b"") + more)
    except (OSError, SkepError) as error:
        log.warning("%s", _no_record(file, error))


def _new_run(plan: RunPlan) -> Run:
    return Run(
        id=id_text(IdMint(SystemClock()).mint()), name=" ".join(plan.names), started_at=datetime.now(UTC),
        server=plan.connection.urls[0], tenant=plan.connection.tenant, master=plan.remote or plan.master, lake=plan.lake,
    )  # fmt: skip


def _greet(connection: ServerConnection) -> None:
    """Check that the server answers and accepts the token, before Spark starts: that takes much longer."""
    asked = Client(
        connection.urls, tenant=connection.tenant, token=connection.token, attempts=1, timeout_seconds=GREETING_SECONDS
    )
    with asked as client:
        try:
            next(client.queues(stats=False), None)
        except UnreachableError as error:
            cure = "Start one with skep serve, or name the right one with --url; skep pipeline doctor looks at the rest"
            raise SkepError(error.code, f"{error.sentence} {cure}.") from None


def _session(plan: RunPlan, stack: ExitStack, output: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    from skep.spark.session import start_session

    mine = plan.remote is not None or SparkSession.getActiveSession() is None
    with output_to(output):
        session = start_session(
            f"skep {' '.join(plan.names)}", master=plan.master, remote=plan.remote, quick_start=plan.quick_start,
            config=plan.config,
        )  # fmt: skip
    if mine:  # the session of a notebook outlives the run
        stack.callback(_stop, session)
    return session


def _stop(session: SparkSession) -> None:
    """Stop Spark. When all processes are killed at once, Java may be gone already; that does not make the run fail."""
    try:
        with unsaid():  # py4j logs what it raises
            session.stop()
    except Exception:
        log.debug("Spark was not stopped in order", exc_info=True)
