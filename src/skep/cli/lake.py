"""`skep lake`: look at a lake, and delete the files that it no longer needs. These commands start no Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from msgspec import Struct

from skep.cli.connection import ServerOptions
from skep.cli.output import print_rows, print_said
from skep.cli.when import length
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.spark.lake.files import LakeFile

lake_app = App(name="lake", help="Look at a lake, and delete files that it no longer needs.", help_format="plaintext")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhichLake:
    """Which lake is meant."""

    lake: Annotated[str, Parameter(env_var="SKEP_LAKE")] = "lake"
    """The folder of the lake, or its URI in an object store: s3://, gs://, abfss://, hdfs://."""
    catalog: str | None = None
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
