"""The table of messages as an Iceberg table, committed through `pyiceberg`: in any catalog that it knows (REST, SQL, Glue, Hive).

The last archived seq of each queue is a property of the table, which the commit of a batch changes together with its files. So a batch
is in the table whole or not at all, and once. A lake in a folder has a catalog of its own, an SQLite file, unless another one is named.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field
from msgspec import json as msgspec_json
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue, In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from skep.errors import Code, SkepError
from skep.runtime.private_files import make_folder
from skep.spark.lake.files import FilePlan, LakeFile
from skep.spark.lake.place import Place, s3_endpoint, s3_region
from skep.spark.lake.rows import DATA_KEY, FIRST, KEPT
from skep.spark.lake.table import MESSAGES, OWN, Folder, LakeChange

CATALOG_FILE = "catalog.db"
NAMESPACE = "skep"
STATE = "skep.state"
COLUMNS = ("queue", *KEPT.names)
"""The columns of a file. The day is not one of them: Iceberg has it from `created_at`."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = Schema(
    NestedField(1, "queue", StringType()),
    NestedField(2, "generation", IntegerType()),
    NestedField(3, "partition", StringType()),
    NestedField(4, "seq", LongType()),
    NestedField(5, "message_id", StringType()),
    NestedField(6, "transaction_id", StringType()),
    NestedField(7, "trace_id", StringType()),
    NestedField(8, "payload", StringType()),
    NestedField(9, "payload_bytes", BinaryType()),
    NestedField(10, "headers", MapType(11, StringType(), 12, StringType(), value_required=False)),
    NestedField(13, "created_at", TimestamptzType()),
    NestedField(14, DATA_KEY, StringType()),
)
PARTITIONS = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "queue"), PartitionField(13, 1001, DayTransform(), "date")
)
UNMEASURED = ("message_id", "payload", "payload_bytes", "headers.key", "headers.value")
"""The columns without smallest and largest values."""
PROPERTIES = {
    # Another run's commit must end ours: tried again, it would add the same messages twice.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.metrics.column.queue": "full",
    **{f"write.metadata.metrics.column.{name}": "none" for name in UNMEASURED},
}


class TableState(Struct, kw_only=True):
    """How far the table is."""

    tenant: str
    through: dict[str, int] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)


class IcebergLake:
    """A table of messages that is one Iceberg table."""

    def __init__(self, root: Place, tenant: str, catalog: str | None = None) -> None:
        self.root = root
        self._tenant = tenant
        self._name = f"{_names(catalog)[1]}.{MESSAGES}"
        self._catalog = _catalog(root, catalog)
        self._opened: Table | None = None
        self._state = TableState(tenant=tenant)
        self._look()

    def through(self, queue: str) -> int | None:
        return self._state.through.get(queue)

    def log_of(self, queue: str) -> int | None:
        return self._state.logs.get(queue)

    def generation_of(self, queue: str) -> int:
        return self._state.generations.get(queue, FIRST)

    def plan(self) -> FilePlan:
        return FilePlan(self._data(), "part", COLUMNS)

    def commit(self, change: LakeChange) -> None:
        """Commit files together with the last seqs. Refused when another process has written meanwhile."""
        table = self._opened or self._made()
        state = TableState(
            tenant=self._tenant, through=self._state.through | dict(change.through),
            logs=self._state.logs | dict(change.logs),
            generations=self._state.generations | {q: n for q, n in change.generations.items() if n != FIRST},
        )  # fmt: skip
        told = msgspec_json.encode(state).decode()
        removed = {file.uri for file in change.removed}
        old = [one for one in self._data_files(table) if one.file_path in removed] if removed else []
        try:
            with table.transaction() as transaction:
                if any(name not in table.schema().column_names for name in COLUMNS):  # a table of an earlier version
                    with transaction.update_schema() as evolved:
                        evolved.union_by_name(SCHEMA)
                transaction.set_properties({STATE: told})
                update = transaction.update_snapshot()
                with update.overwrite() if old else update.fast_append() as snapshot:
                    added = iter([file.uri for file in change.added])
                    for one in parquet_files_to_data_files(table.io, transaction.table_metadata, added):
                        snapshot.append_data_file(one)
                    for one in old:
                        snapshot.delete_data_file(one)
        except (CommitFailedException, CommitStateUnknownException) as error:
            table.refresh()
            if table.properties.get(STATE) != told or not self._has(table, change):
                raise self._taken() if isinstance(error, CommitFailedException) else error from None
        self._opened, self._state = table, state

    def _has(self, table: Table, change: LakeChange) -> bool:
        """Whether a commit took effect though its answer was lost."""
        there = {one.file_path for one in self._data_files(table, {file.queue for file in change.added})}
        return all(file.uri in there for file in change.added)

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        if self._opened is None:
            return []
        wanted = queues if folders is None else {queue for queue, _ in folders}
        found = [_file(self._opened, one) for one in self._data_files(self._opened, wanted)]
        return found if folders is None else [file for file in found if file.folder in folders]

    def earlier(self) -> list[LakeFile]:
        """None: there was no table of Iceberg before."""
        return []

    def is_upgraded(self) -> None:
        """There is nothing to note."""

    def vacuum(self, older_seconds: float) -> int:
        """Expire snapshots that are older, and delete the files that no snapshot has."""
        table = self._opened
        if table is None:
            return 0
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - timedelta(seconds=older_seconds)).commit()
        table.refresh()
        kept = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            kept.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                kept.add(manifest.manifest_path)
                kept |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
        oldest = time.time() - older_seconds
        gone = [
            found.place for found in (self.root / MESSAGES).below_it()
            if found.place.uri not in kept and found.written_at < oldest
        ]  # fmt: skip
        for place in gone:
            place.delete()
        return len(gone)

    def _look(self) -> None:
        """Read the table, if there is one."""
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return
        kept = table.properties.get(STATE)
        if kept is None:
            raise SkepError(
                Code.INVALID_REQUEST, f"the Iceberg table {self._name} is not one of Skep's: name another --catalog"
            )
        self._opened, self._state = table, msgspec_json.decode(kept, type=TableState)
        if self._state.tenant != self._tenant:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{self.root} is the lake of tenant {self._state.tenant!r}, not of {self._tenant!r}: name another",
            )

    def _made(self) -> Table:
        """Make the table."""
        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        first = {STATE: msgspec_json.encode(self._state).decode()}
        try:
            table = self._catalog.create_table(
                self._name, SCHEMA, location=(self.root / MESSAGES).uri, partition_spec=PARTITIONS,
                properties=PROPERTIES | first,
            )  # fmt: skip
        except TableAlreadyExistsError:
            raise self._taken() from None
        with table.transaction() as transaction:  # our files have names of columns, and no numbers
            names = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
        return table

    def _data(self) -> Place:
        return self.root / MESSAGES / "data"

    def _data_files(self, table: Table, queues: Iterable[str] | None = None) -> list[DataFile]:
        chosen = (
            AlwaysTrue() if queues is None else In(term=Reference("queue"), values={literal(queue) for queue in queues})
        )
        return [task.file for task in table.scan(row_filter=chosen).plan_files()]

    def _taken(self) -> SkepError:
        return SkepError(Code.INVALID_REQUEST, f"another run is writing to {self.root}; wait for it, or end it")


def _names(catalog: str | None) -> tuple[str, str]:
    """The catalog and the namespace that `NAME.NAMESPACE` means."""
    name, _, namespace = (catalog or NAMESPACE).partition(".")
    return name, namespace or NAMESPACE


def _catalog(root: Place, named: str | None) -> Catalog:
    """The named catalog, as pyiceberg is configured (its file, or PYICEBERG_CATALOG__NAME__URI); else that of the lake's folder."""
    found = {"s3.endpoint": s3_endpoint(), "s3.region": s3_region()}
    options: dict[str, Any] = {name: value for name, value in found.items() if value}
    if named is not None:
        try:
            return load_catalog(_names(named)[0], **options)
        except ValueError as error:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"pyiceberg knows no catalog {_names(named)[0]!r} ({error}); configure it in .pyiceberg.yaml, or in the environment: "
                f"PYICEBERG_CATALOG__{_names(named)[0].upper()}__URI",
            ) from None
    if not root.is_local:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a lake of Iceberg in {root} needs a catalog: name one that pyiceberg knows with --catalog",
        )
    make_folder((root / OWN).local)
    file = (root / OWN / CATALOG_FILE).local
    return load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{file}", warehouse=root.uri, **options)


def _file(table: Table, one: DataFile) -> LakeFile:
    """What the table knows of a file."""
    least, most = (_bounds(table, bounds) for bounds in (one.lower_bounds, one.upper_bounds))
    generation, first_at = least.get("generation", FIRST), least.get("created_at")
    day = "" if first_at is None else (EPOCH + timedelta(microseconds=first_at)).date().isoformat()
    return LakeFile(
        uri=one.file_path, queue=least["queue"], date=day,
        generation=generation if generation == most.get("generation", FIRST) else None,
        first_seq=least.get("seq", 0), last_seq=most.get("seq", 2**63 - 1), first_at=first_at, last_at=most.get("created_at"),
        rows=one.record_count, bytes=one.file_size_in_bytes,
    )  # fmt: skip


def _bounds(table: Table, bounds: Mapping[int, bytes] | None) -> dict[str, Any]:
    found = {}
    for name in ("queue", "generation", "seq", "created_at"):
        column = table.schema().find_field(name)
        if bounds and column.field_id in bounds:
            found[name] = from_bytes(column.field_type, bounds[column.field_id])  # type: ignore[arg-type] # all four are primitive
    return found
