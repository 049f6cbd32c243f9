"""Open the lake at a URI in the format that it has. One process writes to it at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import pyarrow as pa

from skep.errors import Code, SkepError
from skep.runtime.private_files import make_folder
from skep.spark.environment import cure
from skep.spark.lake.files import LakeFile
from skep.spark.lake.parquet import ParquetLake, ParquetView, is_parquet
from skep.spark.lake.place import OWN, Place, place_of
from skep.spark.lake.table import MADE_BY, MESSAGES, Archived, Folder, Lake, LakeView

Format = Literal["parquet", "delta", "iceberg"]


@contextmanager
def open_lake(
    written: str | Place, tenant: str, kind: Format | None = None, catalog: str | None = None
) -> Iterator[Lake]:
    """Open a lake for one writing process; make it if it does not exist.

    Without ``kind`` it has the format that it had before. A new lake is one of Parquet files, in an object store one of Delta.
    """
    root = written if isinstance(written, Place) else place_of(written)
    with _locked(root) if root.is_local else nullcontext():
        yield lake_of(root, tenant, format_of(root, kind, catalog), catalog)


def lake_of(root: Place, tenant: str, kind: Format, catalog: str | None = None) -> Lake:
    """The lake of a format, for reading, or for a process that has locked it."""
    try:
        match kind:
            case "parquet":
                return ParquetLake(root, tenant)
            case "delta":
                from skep.spark.lake.delta import DeltaLake

                return DeltaLake(root, tenant)
            case "iceberg":
                from skep.spark.lake.iceberg import IcebergLake

                return IcebergLake(root, tenant, catalog)
    except ModuleNotFoundError as error:
        name = "deltalake" if kind == "delta" else "pyiceberg"
        raise SkepError(
            Code.INVALID_REQUEST, f"a lake of {kind.capitalize()} needs the package {name} ({error}): {cure([name])}"
        ) from None


class _OpenedLake:
    """A table of Delta or Iceberg as a reader sees it: the version that it opened."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def archived(self, queue: str) -> Archived | None:
        through, log = self._lake.through(queue), self._lake.log_of(queue)
        return None if through is None or log is None else Archived(log, self._lake.generation_of(queue), through)

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        return self._lake.files(folders, queues)


def view_of(root: Place, tenant: str, catalog: str | None = None) -> LakeView:
    """The lake as it is now, for reading, while another process may be writing to it."""
    kind = "iceberg" if catalog is not None else existing_format(root)
    if kind is None:
        raise SkepError(Code.INVALID_REQUEST, f"there is no lake in {root} yet; {MADE_BY}")
    return ParquetView(root, tenant) if kind == "parquet" else _OpenedLake(lake_of(root, tenant, kind, catalog))


def format_of(root: Place, kind: Format | None = None, catalog: str | None = None) -> Format:
    """The format of a lake: that of its table. It is an error when another one is meant."""
    if kind == "parquet" and not root.is_local:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a lake of Parquet files needs a file system, which {root} is not; use --format delta or iceberg",
        )
    found = existing_format(root)
    if found is not None and kind not in (None, found):
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{root} is a lake of {found.capitalize()}; use --format {found}, or another --lake",
        )
    chosen = found or kind or ("iceberg" if catalog is not None else "parquet" if root.is_local else "delta")
    if catalog is not None and chosen != "iceberg":
        raise SkepError(
            Code.INVALID_REQUEST, f"--catalog is for lakes of Iceberg, and {root} is one of {chosen.capitalize()}"
        )
    return chosen


def existing_format(root: Place) -> Format | None:
    """The format of the table of messages that is there."""
    if root.is_local:
        if is_parquet(root):
            return "parquet"
    else:
        _check_reached(root)
    if not root.is_local and (root / "_delta_log").below_it(".json"):
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{root} is a Delta table itself: its messages belong below {root / MESSAGES}. Move it there, or name another --lake",
        )
    if (root / MESSAGES / "_delta_log").below_it(".json"):
        return "delta"
    return "iceberg" if (root / MESSAGES / "metadata").below_it(".json") else None


def _check_reached(root: Place) -> None:
    """Check that the object store answers, and accepts the credentials."""
    try:
        root.folders()
    except FileNotFoundError:
        return  # the lake is not there yet
    except (OSError, pa.ArrowException) as error:
        told = str(error).partition("\n")[0]
        raise SkepError(Code.INVALID_REQUEST, f"{root} cannot be listed: {told}. {root.cure}") from None


@contextmanager
def _locked(root: Place) -> Iterator[None]:
    """Lock a folder for this process alone, with the lake and the tables in it."""
    folder = root.local
    make_folder(folder)
    make_folder(folder / OWN)
    with (folder / OWN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SkepError(
                Code.INVALID_REQUEST, f"another run is writing to {folder}; wait for it, or end it"
            ) from None
        yield
