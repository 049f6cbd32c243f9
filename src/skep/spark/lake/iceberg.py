"""The table of messages as an Iceberg table, committed through `pyiceberg`: in any catalog that it knows (REST, SQL, Glue, Hive).

The last archived seq of each queue is a property of the table, which the commit of a batch changes together with its files. So a batch
is in the table whole or not at all, and once. A lake in a folder has a catalog of its own, an SQLite file, unless another one is named.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec import DecodeError, Struct, field
from msgspec import json as msgspec_json
from pyarrow.fs import AwsStandardS3RetryStrategy
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
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table, TableProperties, Transaction
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform, VoidTransform, YearTransform
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
from skep.spark.lake.place import CONNECT_SECONDS, OWN, REQUEST_SECONDS, S3_TRIES, Place, s3_endpoint, s3_region
from skep.spark.lake.rows import DATA_KEY, FIRST, KEPT
from skep.spark.lake.table import COMMIT_TRIES, MESSAGES, Folder, LakeChange, LakeTakenError

CATALOG_FILE = "catalog.db"
NAMESPACE = "skep"
STATE, ROOT = "skep.state", "skep.lake"
"""Properties of the table: how far it is, and the lake that it belongs to."""
SNAPSHOTS = "skep.snapshots"
"""Another property: how many snapshots are kept at the least, instead of `SNAPSHOTS_KEPT`."""
SNAPSHOTS_KEPT = 100
"""When there are twice as many, the older ones expire."""
CATALOG_NOTE = "catalog.json"
"""The named catalog that knows the table of a lake."""
FOOTERS_AT_ONCE = 16
"""How many new files are opened at a time, for what the table keeps of each."""
COLUMNS = ("queue", *KEPT.names)
"""The columns of a file. The day is not one of them: Iceberg has it from `created_at`."""
UNREACHED = ("ConnectionError", "OperationalError")
"""The names of what the clients of catalogs raise then, or of what it is derived from: requests and botocore, SQLAlchemy."""
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
FITTING = {"queue": (IdentityTransform,), "created_at": (DayTransform, MonthTransform, YearTransform)}
"""The partitions that a file of a queue and a day is always in one of."""
UNMEASURED = ("message_id", "payload", "payload_bytes", "headers.key", "headers.value")
"""The columns without smallest and largest values."""
PROPERTIES = {
    # Another run's commit must end ours: tried again, it would add the same messages twice.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    # Each commit adds a manifest. Readers would open as many as there were batches.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    "write.metadata.metrics.column.queue": "full",
    **{f"write.metadata.metrics.column.{name}": "none" for name in UNMEASURED},
}


class TableState(Struct, kw_only=True):
    """How far the table is."""

    tenant: str
    through: dict[str, int] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)


class CatalogNote(Struct):
    """The named catalog that has the table of a lake, with its namespace."""

    catalog: str


class S3Retries(AwsStandardS3RetryStrategy):  # type: ignore[misc] # pyarrow has no types
    """How often pyiceberg sends a request to S3. It makes one of these, by its name."""

    def __init__(self) -> None:
        super().__init__(max_attempts=S3_TRIES)


class IcebergLake:
    """A table of messages that is one Iceberg table."""

    def __init__(self, root: Place, tenant: str, catalog: str | None = None) -> None:
        self.root = root
        self._tenant = tenant
        self._named = _chosen(root, catalog)
        self._name = f"{_names(self._named)[1]}.{MESSAGES}"
        with _reaching(root):
            self._catalog = _catalog(root, self._named)
        self._opened: Table | None = None
        self._state = TableState(tenant=tenant)
        self.refresh()

    def through(self, queue: str) -> int | None:
        return self._state.through.get(queue)

    def log_of(self, queue: str) -> int | None:
        return self._state.logs.get(queue)

    def generation_of(self, queue: str) -> int:
        return self._state.generations.get(queue, FIRST)

    def refresh(self) -> None:
        with closing(self._catalog), _reaching(self.root):
            try:
                table = self._catalog.load_table(self._name)
            except NoSuchTableError:
                return
        self._check(table)
        self._opened, self._state = table, _state(table)

    def plan(self) -> FilePlan:
        if self._opened is not None:
            _check_partitions(self._opened)
        return FilePlan(self._data(), "part", COLUMNS)

    def commit(self, change: LakeChange) -> None:
        """Commit files together with the last seqs."""
        with closing(self._catalog):
            for _ in range(COMMIT_TRIES):
                if self._has_committed(table := self._newest(), change):
                    # Where another run has archived other queues, this one has not seen it yet.
                    self._opened, self._state = table, _changed(self._state, change)
                    return
        raise LakeTakenError(self.root)

    def _has_committed(self, table: Table, change: LakeChange) -> bool:
        """Try a commit; false when another process was quicker."""
        transaction, snapshot_id = self._prepared(table, change)
        try:
            transaction.commit_transaction()
        except Exception as error:  # the clients of catalogs have errors of their own
            table.refresh()
            if table.snapshot_by_id(snapshot_id) is None:
                if isinstance(error.__cause__, CommitFailedException):
                    return False
                raise error from None
        return True

    def _newest(self) -> Table:
        """The table as it is now; made if there is none."""
        if self._opened is None:
            return self._made()
        self._opened.refresh()
        return self._opened

    def _prepared(self, table: Table, change: LakeChange) -> tuple[Transaction, int]:
        """A transaction to be committed, and the snapshot that the table has then."""
        removed = {file.uri for file in change.removed}
        queues = {file.queue for file in change.removed}
        old = [one for one in self._data_files(table, queues) if one.file_path in removed] if removed else []
        newest = _state(table)
        moved = any(_position(newest, queue) != _position(self._state, queue) for queue in change.through)
        if moved or len(old) != len(removed):
            raise LakeTakenError(self.root)
        transaction = table.transaction()
        if any(name not in table.schema().column_names for name in COLUMNS):  # a table of an earlier version
            with transaction.update_schema() as evolved:
                evolved.union_by_name(SCHEMA)
        noted = {STATE: msgspec_json.encode(_changed(newest, change)).decode()}
        if TableProperties.DEFAULT_NAME_MAPPING not in table.properties:
            # Our files have names of columns, and no numbers.
            names = transaction.table_metadata.schema().name_mapping
            noted[TableProperties.DEFAULT_NAME_MAPPING] = names.model_dump_json()
        transaction.set_properties(noted)
        _expire_some(table, transaction)
        update = transaction.update_snapshot()
        with update.overwrite() if old else update.merge_append() as snapshot:
            for one in _described(table, transaction, [file.uri for file in change.added]):
                snapshot.append_data_file(one)
            for one in old:
                snapshot.delete_data_file(one)
        return transaction, snapshot.snapshot_id

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
        oldest_kept = datetime.now(UTC) - timedelta(seconds=older_seconds)
        with closing(self._catalog):
            for _ in range(COMMIT_TRIES):
                table.refresh()
                if _has_expired(table, oldest_kept):
                    break
            else:
                raise LakeTakenError(self.root)
            table.refresh()
        kept = _named(table)
        oldest = time.time() - older_seconds
        gone = [
            found.place for found in (self.root / MESSAGES).below_it()
            if found.place.uri not in kept and found.written_at < oldest
        ]  # fmt: skip
        for place in gone:
            place.delete()
        return len(gone)

    def _check(self, table: Table) -> None:
        """Check that the table is that of this lake and tenant."""
        if STATE not in table.properties:
            raise SkepError(
                Code.INVALID_REQUEST, f"the Iceberg table {self._name} is not one of Skep's: name another --catalog"
            )
        lake = Place(table.properties.get(ROOT, Place(table.location()).parent.uri))
        if self._named is not None and lake != self.root:  # the lake's own catalog has no other
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the Iceberg table {self._name} belongs to the lake {lake}, not to {self.root}: name another namespace of the catalog, "
                f"--catalog {_names(self._named)[0]}.NAMESPACE",
            )
        tenant = _state(table).tenant
        if tenant != self._tenant:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{self.root} is the lake of tenant {tenant!r}, not of {self._tenant!r}: name another",
            )

    def _made(self) -> Table:
        """Make the table."""
        if self._named is not None:
            noted = CatalogNote(".".join(_names(self._named)))
            (self.root / OWN / CATALOG_NOTE).write_whole(msgspec_json.encode(noted))
        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        first = {STATE: msgspec_json.encode(self._state).decode(), ROOT: self.root.uri}
        try:
            return self._catalog.create_table(
                self._name, SCHEMA, location=(self.root / MESSAGES).uri, partition_spec=PARTITIONS,
                properties=PROPERTIES | first,
            )  # fmt: skip
        except TableAlreadyExistsError:  # by another run, or by this one, whose request was repeated
            table = self._catalog.load_table(self._name)
            self._check(table)
            return table

    def _data(self) -> Place:
        return self.root / MESSAGES / "data"

    def _data_files(self, table: Table, queues: Iterable[str] | None = None) -> list[DataFile]:
        chosen = (
            AlwaysTrue() if queues is None else In(term=Reference("queue"), values={literal(queue) for queue in queues})
        )
        tasks = list(table.scan(row_filter=chosen).plan_files())
        if any(task.delete_files for task in tasks):
            raise SkepError(
                Code.INVALID_REQUEST,
                f"another program has deleted single rows of {self._name} without rewriting their files, and Skep would bring them back. "
                "Rewrite these files first, for example with Spark's rewrite_data_files, and delete with skep lake forget",
            )
        return [task.file for task in tasks]


def _names(catalog: str | None) -> tuple[str, str]:
    """The catalog and the namespace that `NAME.NAMESPACE` means."""
    name, _, namespace = (catalog or NAMESPACE).partition(".")
    return name, namespace or NAMESPACE


def _chosen(root: Place, named: str | None) -> str | None:
    """The catalog of a lake: that which its table was made in, or else the named one; None is the lake's own."""
    note = root / OWN / CATALOG_NOTE
    try:
        noted = msgspec_json.decode(note.read_bytes(), type=CatalogNote).catalog
    except DecodeError as error:
        raise SkepError(Code.INVALID_REQUEST, f"{note} is damaged ({error}); restore it from a backup") from None
    except FileNotFoundError:
        if named is not None and root.is_local and (root / OWN / CATALOG_FILE).local.exists():
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the lake {root} has a catalog of its own: leave out --catalog, or name another --lake",
            ) from None
        return named
    if named is not None and ".".join(_names(named)) != noted:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the lake {root} is in the catalog {noted}: use --catalog {noted}, or name another --lake",
        )
    return noted


@contextmanager
def _reaching(root: Place) -> Iterator[None]:
    """Say so when a catalog cannot be reached. The client of each kind has errors of its own."""
    try:
        yield
    except Exception as error:
        if not any(kind.__name__ in UNREACHED for kind in type(error).__mro__):
            raise
        raise SkepError(
            Code.LAKE_UNREACHABLE,
            f"the catalog of the lake {root} cannot be reached: {error}. Look at its address: pyiceberg has it from .pyiceberg.yaml, or "
            "from the environment (PYICEBERG_CATALOG__NAME__URI)",
        ) from None


def _careful(catalog: Catalog) -> Catalog:
    """A catalog whose refusals do not count as certain.

    When the answer to a commit is lost, its client may send it again, and it is refused because of itself. pyiceberg would then
    delete the files of the snapshot that the table has. A commit is also refused when another process was quicker to let the same
    snapshots expire.
    """
    commit = catalog.commit_table

    def commit_table(table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        try:
            return commit(table, requirements, updates)
        except CommitFailedException as error:
            raise CommitStateUnknownException(str(error)) from error
        except ValueError as error:  # catalogs that pyiceberg itself writes know no other
            if not _expiring(updates) - {one.snapshot_id for one in catalog.load_table(table.name()).snapshots()}:
                raise
            raise CommitStateUnknownException(str(error)) from CommitFailedException(str(error))

    catalog.commit_table = commit_table  # type: ignore[method-assign]
    return catalog


def _expiring(updates: Iterable[Any]) -> set[int]:
    """The snapshots that a commit lets expire."""
    return {one for update in updates if isinstance(update, RemoveSnapshotsUpdate) for one in update.snapshot_ids}


def _catalog(root: Place, named: str | None) -> Catalog:
    """The named catalog, as pyiceberg is configured (its file, or PYICEBERG_CATALOG__NAME__URI); else that of the lake's folder."""
    found = {
        "s3.endpoint": s3_endpoint(), "s3.region": s3_region(), "s3.connect-timeout": CONNECT_SECONDS,
        "s3.request-timeout": REQUEST_SECONDS, "s3.retry-strategy-impl": f"{__name__}.{S3Retries.__name__}",
    }  # fmt: skip
    options: dict[str, Any] = {name: value for name, value in found.items() if value}
    if named is not None:
        try:
            return _careful(load_catalog(_names(named)[0], **options))
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
    return _careful(load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{file}", warehouse=root.uri, **options))


def _state(table: Table) -> TableState:
    return msgspec_json.decode(table.properties[STATE], type=TableState)


def _position(state: TableState, queue: str) -> tuple[int | None, ...]:
    """How far a queue is."""
    return state.through.get(queue), state.logs.get(queue), state.generations.get(queue)


def _changed(state: TableState, change: LakeChange) -> TableState:
    """How far a table is after a commit."""
    return TableState(
        tenant=state.tenant, through=state.through | dict(change.through), logs=state.logs | dict(change.logs),
        generations=state.generations | {q: n for q, n in change.generations.items() if n != FIRST},
    )  # fmt: skip


def _expire_some(table: Table, transaction: Transaction) -> None:
    """Let the oldest snapshots expire, many at once, with a commit. A commit has all of them in it, and would become slower each time."""
    kept = int(table.properties.get(SNAPSHOTS, SNAPSHOTS_KEPT))
    times = sorted(snapshot.timestamp_ms for snapshot in table.snapshots())
    if kept > 0 and len(times) >= 2 * kept:
        oldest_kept = datetime.fromtimestamp(times[-kept] / 1_000, UTC)
        ExpireSnapshots(transaction).older_than(oldest_kept).commit()


def _has_expired(table: Table, oldest_kept: datetime) -> bool:
    """Let older snapshots expire; false when another process has committed meanwhile."""
    try:
        table.maintenance.expire_snapshots().older_than(oldest_kept).commit()
    except CommitStateUnknownException as error:
        if isinstance(error.__cause__, CommitFailedException):
            return False
        raise
    return True


def _described(table: Table, transaction: Transaction, added: Sequence[str]) -> Iterable[DataFile]:
    """What the table keeps of new files, which is at their ends."""
    describe = partial(parquet_file_to_data_file, table.io, transaction.table_metadata)
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return list(pool.map(describe, added))


def _named(table: Table) -> set[str]:
    """The files that the snapshots of a table name."""
    about = table.metadata
    named = {table.metadata_location, *(one.metadata_file for one in about.metadata_log)}
    named |= {one.statistics_path for one in (*about.statistics, *about.partition_statistics)}
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in named:  # most are those of the snapshot before
                named.add(manifest.manifest_path)
                named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return named


def _check_partitions(table: Table) -> None:
    """Check that a file of a queue and a day can only be in one partition, as Iceberg requires."""
    for one in table.spec().fields:
        column = table.schema().find_column_name(one.source_id)
        if not isinstance(one.transform, (*FITTING.get(column or "", ()), VoidTransform)):
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{'.'.join(table.name())} has partitions by {one.transform}({column}), and a file of Skep, which has messages of a queue and a day, "
                "may be in several of them. Partition it by queue, day(created_at), month(created_at) or year(created_at)",
            )


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
