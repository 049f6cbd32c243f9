"""`skep lake`: look at a lake, erase messages for good, and delete files that it no longer needs. Only `forget` starts Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from msgspec import Struct

from skep.cli.connection import ServerOptions
from skep.cli.consent import Consent
from skep.cli.exits import OK, USER, exit_code
from skep.cli.old_messages import Catalog
from skep.cli.output import print_rows, print_said
from skep.cli.when import Since, Until, instant, length
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.spark.lake.files import LakeFile

Several = Annotated[tuple[str, ...], Parameter(consume_multiple=False, negative="")]
"""An option that may be given several times."""
lake_app = App(
    name="lake", help="Look at a lake, erase messages, delete files it no longer needs.", help_format="plaintext"
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhichLake:
    """Which lake is meant."""

    lake: Annotated[str, Parameter(env_var="SKEP_LAKE")] = "lake"
    """The folder of the lake, or its URI in an object store: s3://, gs://, abfss://, hdfs://."""
    catalog: Catalog = None
    """The catalog of a lake of Iceberg, as pyiceberg is configured: NAME or NAME.NAMESPACE."""


class ArchivedQueue(Struct, kw_only=True):
    """A queue in the lake."""

    queue: str
    generation: int
    through: int
    """The last seq that is in the lake."""
    first_date: str
    last_date: str
    messages: int
    files: int
    bytes: int


class LakeVacuum(Struct):
    """What a vacuum deleted."""

    files: int


@lake_app.command
def show(*, which: WhichLake = WhichLake(), to: ServerOptions = ServerOptions()) -> None:
    """Show the queues in the lake: how far each is archived, and its files.

    The server need not run.

    For example:
        skep lake show --lake s3://bucket/lake
    """
    from skep.spark.lake.opening import view_of
    from skep.spark.lake.place import place_of

    _check_packages()
    view = view_of(place_of(which.lake), to.tenant, which.catalog)
    by_queue: dict[str, list[LakeFile]] = defaultdict(list)
    for file in view.files():
        by_queue[file.queue].append(file)
    rows = []
    for queue, files in sorted(by_queue.items()):
        archived = view.archived(queue)
        rows.append(
            ArchivedQueue(
                queue=queue, generation=1 if archived is None else archived.generation,
                through=max(file.last_seq for file in files) if archived is None else archived.through,
                first_date=min(file.date for file in files), last_date=max(file.date for file in files),
                messages=sum(file.rows for file in files), files=len(files), bytes=sum(file.bytes for file in files),
            )
        )  # fmt: skip
    print_rows(
        to, rows, {name: attrgetter(name) for name in ArchivedQueue.__struct_fields__}, empty="the lake has no messages"
    )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The messages that are meant: those that match everything given."""

    queue: Several = ()
    """Only of this queue (all queues by default); may be given several times."""
    partition: str | None = None
    """Only of this partition."""
    seq: str | None = None
    """Only with these seqs (offsets): 5, 9-12."""
    trace: str | None = None
    """Only of this trace."""
    transaction: str | None = None
    """Only with this transaction id (idempotency key)."""
    where: str | None = None
    """Only where an expression (CEL) over message, queue, generation, partition, seq, headers, created_at is true."""
    since: Since = None
    until: Until = None


@lake_app.command
def forget(
    *,
    chosen: Chosen = Chosen(),
    which: WhichLake = WhichLake(),
    master: str = "local[*]",
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Erase messages for good, in the lake and in the log.

    The server forgets them first, with their dead letters and all that
    stems from them. Then the lake's files that have them are written anew
    without them, and so are the computed tables. Without a choice of
    messages, the lake forgets what the server has forgotten before.
    A run that was killed is finished by the next one.

    For example:
        skep lake forget --queue orders --where 'message.customer == "c-17"' --dry-run
        skep lake forget --queue orders --partition customer-17 --yes

    Parameters
    ----------
    master
        Spark's master: this machine, spark://host:7077, yarn, k8s://…
    """
    from skep.cli.pipeline import needs_spark, print_run
    from skep.spark.options import ServerConnection as Link
    from skep.spark.running.context import Wishes
    from skep.spark.running.live import LiveLines
    from skep.spark.running.runner import RunPlan, run_pipelines

    needs_spark()
    wishes = Wishes(
        partition=chosen.partition, seqs=_ranges(chosen.seq), trace=chosen.trace, transaction=chosen.transaction,
        where=chosen.where, since=None if chosen.since is None else instant(chosen.since).isoformat(),
        until=None if chosen.until is None else instant(chosen.until).isoformat(), dry_run=consent.dry_run,
    )  # fmt: skip
    if not consent.dry_run:
        what = "the messages that match" if wishes.chooses else "the messages that the server has forgotten"
        consent.ask(f"this erases {what} from {which.lake} and from the server, for good")
    plan = RunPlan(
        names=("forget",), connection=Link(to.urls, to.tenant, to.token, retry_seconds=60.0), queues=chosen.queue,
        lake=which.lake, catalog=which.catalog, master=master, wishes=wishes,
    )  # fmt: skip
    ended = run_pipelines(plan, LiveLines())
    print_run(to, ended)
    if ended.run.error is not None:
        return USER if ended.run.error_code is None else exit_code(ended.run.error_code)
    return OK


def _ranges(written: str | None) -> list[tuple[int, int]]:
    """Seqs as they are typed: `5, 9-12`."""
    found = []
    for part in (written or "").split(","):
        if not part.strip():
            continue
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise SkepError(Code.INVALID_REQUEST, f"--seq is written 5 or 9-12, with commas between, not {written!r}")
        found.append((int(first), int(last or first)))
    return found


@lake_app.command
def vacuum(*, older: str = "7d", which: WhichLake = WhichLake(), to: ServerOptions = ServerOptions()) -> None:
    """Forget old versions of the lake, and delete the files that only they have.

    Files that killed runs left are deleted, too. Choose no less than the
    longest run or query takes. The server need not run.

    For example:
        skep lake vacuum --lake s3://bucket/lake --older 7d

    Parameters
    ----------
    older
        How old a version must be: 12h, 7d.
    """
    from skep.spark.lake.opening import existing_format, open_lake
    from skep.spark.lake.place import place_of
    from skep.spark.lake.table import MADE_BY

    _check_packages()
    root = place_of(which.lake)
    if which.catalog is None and existing_format(root) is None:
        raise SkepError(Code.INVALID_REQUEST, f"there is no lake in {root} yet; {MADE_BY}")
    with open_lake(root, to.tenant, catalog=which.catalog) as lake:
        deleted = lake.vacuum(length(older).total_seconds())
    print_said(to, LakeVacuum(deleted), f"{deleted:,} files deleted")


def _check_packages() -> None:
    from skep.spark.environment import check

    check()
