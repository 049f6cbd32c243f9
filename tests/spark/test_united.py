"""One table over lake and log: each message once, whatever the archive, compaction and retention do. It is driven as Spark drives it,
without a Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from msgspec import Struct

import skep
from skep.errors import SkepError
from skep.spark.lake.files import write_files
from skep.spark.lake.opening import Format, open_lake
from skep.spark.lake.table import LakeChange
from skep.spark.lake.tasks import FileRows
from skep.spark.link import link
from skep.spark.offsets import QueueStretch
from skep.spark.options import source_options
from skep.spark.running.log_rows import LogRows
from skep.spark.schema import schema_of
from skep.spark.source import MessageReader, Portion, QueuePart, lake_index, widened
from skep.spark.stream import MessageStream
from skep.testing.server import RunningServer, running_server
from tests.spark.conftest import TENANTS
from tests.spark.test_lake import FORMATS
from tests.spark.test_losses import batch, begin, rows

QUEUE = "orders"
GOES_ON = {"failOnDataLoss": "false"}


class Both(Struct, frozen=True):
    """A queue on a server, and a lake."""

    client: skep.Client
    url: str
    tenant: str
    root: Path
    kind: Format = "parquet"

    def push(self, first: int, last: int) -> None:
        self.client.push(QUEUE, [skep.NewMessage({"n": n}, partition=f"p{n % 2}") for n in range(first, last + 1)])

    def options(self, **more: str) -> dict[str, str]:
        own = {"url": self.url, "tenant": self.tenant, "retrySeconds": "20", "waitSeconds": "0.1", "subscribe": QUEUE}
        return {**own, "lake": str(self.root), **more}

    def archive(self, through: int, **more: str) -> None:
        """Bring messages up to a seq into the lake, as a run of the archive does."""
        options = source_options({**self.options(), "lake": "", **more})
        log = self.client.log_bounds(QUEUE).log
        with open_lake(str(self.root), self.tenant, self.kind) as lake:
            is_new = lake.log_of(QUEUE) not in (None, log)
            generation = lake.generation_of(QUEUE) + is_new
            start = 0 if is_new else lake.through(QUEUE) or 0
            source = LogRows(
                options, Portion([QueuePart(QueueStretch(QUEUE, start + 1, through), log)]), {QUEUE: generation}
            )
            files = list(write_files(source.rows(), lake.plan()))
            change = LakeChange(
                added=files, through={QUEUE: through}, logs={QUEUE: log}, generations={QUEUE: generation}
            )
            lake.commit(change)

    def compact(self) -> None:
        with open_lake(str(self.root), self.tenant, self.kind) as lake:
            old = lake.files()
            lake.commit(LakeChange(added=list(write_files(FileRows(old).rows(), lake.plan())), removed=old))
            lake.vacuum(0)

    def reader(self, **more: str) -> MessageReader:
        return MessageReader(source_options(self.options(**more)), schema_of(()))

    def stream(self, **more: str) -> MessageStream:
        return MessageStream(source_options(self.options(**more)), schema_of(()))

    def read(self, **more: str) -> list[int]:
        return numbers(self.reader(**more))


def numbers(reader: MessageReader) -> list[int]:
    return seen(reader, reader.partitions())


def seen(reader: MessageReader, planned: Any) -> list[int]:
    found = [table for portion in planned for table in reader.read(portion)]
    return [json.loads(payload)["n"] for table in found for payload in table.column("payload").to_pylist()]


@pytest.fixture(params=FORMATS)
def both(request: pytest.FixtureRequest, spark_server: RunningServer, tmp_path: Path) -> Iterator[Both]:
    tenant = next(TENANTS)
    with skep.Client(spark_server.url, tenant=tenant) as client:
        yield Both(client, spark_server.url, tenant, tmp_path / "lake", request.param)


@pytest.fixture
def plain(spark_server: RunningServer, tmp_path: Path) -> Iterator[Both]:
    tenant = next(TENANTS)
    with skep.Client(spark_server.url, tenant=tenant) as client:
        yield Both(client, spark_server.url, tenant, tmp_path / "lake")


def test_each_message_comes_once_from_the_lake_or_the_log(both: Both) -> None:
    both.push(1, 6)
    both.archive(4)
    assert both.read() == [1, 2, 3, 4, 5, 6]
    both.archive(6)
    both.client.clear(QUEUE)
    both.push(7, 8)
    assert both.read() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert both.read(startingOffsets='{"orders": 2}', endingOffsets='{"orders": 7}') == [3, 4, 5, 6, 7]
    assert both.read(partitions="p1") == [1, 3, 5, 7]
    both.compact()
    assert both.read(minPartitions="3") == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_stream_begins_in_the_lake_and_goes_on_in_the_log(both: Both) -> None:
    both.push(1, 4)
    both.archive(4)
    both.client.clear(QUEUE)
    both.push(5, 6)
    stream = both.stream()
    start = begin(stream)
    end, found = batch(stream, start)
    assert [json.loads(one)["n"] for one in found] == [1, 2, 3, 4, 5, 6]
    both.archive(6)
    both.client.clear(QUEUE)
    assert rows(both.stream(), start, end) == found  # the same batch after a restart
    both.push(7, 7)
    _, after = batch(both.stream(), end)
    assert [json.loads(one)["n"] for one in after] == [7]


def test_time_is_found_in_the_lake_too(both: Both) -> None:
    both.push(1, 3)
    times = [message.created_at for message in both.client.messages(QUEUE)]
    both.archive(3)
    both.client.clear(QUEUE)
    both.push(4, 4)
    assert both.read(startingTimestamp=times[0].isoformat())[-1] == 4
    assert both.read(startingTimestamp=times[0].isoformat())[0] == 1
    assert both.read(startingTimestamp="2001-01-01T00:00:00Z", endingTimestamp=times[0].isoformat()) == []


@pytest.mark.slow
def test_time_and_seq_travel_ends_where_it_says_also_in_the_lake(both: Both) -> None:
    times = []
    for number in range(1, 7):
        both.push(number, number)
        times.append(next(iter(both.client.messages(QUEUE, descending=True))).created_at.isoformat())
    both.archive(4)
    for first in range(6):
        for last in range(first, 6):
            wanted = list(range(first + 1, last + 1))
            assert both.read(startingTimestamp=times[first], endingTimestamp=times[last]) == wanted
            seqs = {"startingOffsets": f'{{"orders": {first}}}', "endingOffsets": f'{{"orders": {last}}}'}
            assert both.read(**seqs) == wanted


def test_the_lake_of_another_tenant_is_refused(both: Both) -> None:
    both.push(1, 3)
    both.archive(3)
    with skep.Client(both.url, tenant=f"{both.tenant}-2") as client:
        other = Both(client, both.url, f"{both.tenant}-2", both.root, both.kind)
        other.push(1, 2)
        with pytest.raises(SkepError, match=r"the lake of (tenant|another tenant)"):
            other.read()


def test_what_was_forgotten_is_not_read_before_the_lake_obeys(both: Both) -> None:
    both.push(1, 6)
    both.archive(4)
    both.client.forget(QUEUE, [2, 5])
    assert both.read() == [1, 3, 4, 6]
    both.archive(6)
    both.client.clear(QUEUE)
    both.client.forget(QUEUE, [(3, 4)])
    assert both.read() == [1, 6]


def test_files_that_compaction_deletes_after_the_plan_are_found_again(plain: Both) -> None:
    for number in range(1, 5):
        plain.push(number, number)
        plain.archive(number)
    reader = plain.reader()
    planned = reader.partitions()
    plain.compact()
    assert seen(reader, planned) == [1, 2, 3, 4]


def test_what_retention_takes_after_the_plan_comes_from_the_lake(plain: Both) -> None:
    plain.push(1, 6)
    plain.archive(2)
    reader = plain.reader()
    planned = reader.partitions()
    plain.archive(6)
    plain.client.clear(QUEUE)
    assert seen(reader, planned) == [1, 2, 3, 4, 5, 6]


def test_what_was_gone_before_it_was_archived_is_a_loss(plain: Both) -> None:
    plain.push(1, 4)
    plain.archive(2)
    plain.client.clear(QUEUE)
    plain.push(5, 5)
    reader, planned = plain.stream(), begin(plain.stream())
    with pytest.raises(SkepError, match=r"messages 1 to 4 of orders have been removed|messages 3 to 4"):
        batch(reader, {**planned, QUEUE: 0})
    with pytest.raises(SkepError, match="messages 3 to 4"):
        plain.read()
    assert plain.read(**GOES_ON) == [1, 2, 5]
    plain.client.clear(QUEUE)
    with pytest.raises(SkepError, match="messages 3 to 5"):
        plain.read()
    assert plain.read(**GOES_ON) == [1, 2]


def test_of_a_queue_made_anew_only_the_present_log_is_meant(plain: Both) -> None:
    plain.push(1, 3)
    plain.archive(3)
    plain.client.delete_queue(QUEUE)
    plain.push(11, 12)
    assert plain.read() == [11, 12]
    plain.archive(2)
    plain.client.clear(QUEUE)
    plain.push(13, 13)
    assert plain.read() == [11, 12, 13]


def test_bytes_and_columns_are_the_same_from_both(plain: Both) -> None:
    image = skep.NewMessage(b"\xff\x00", content_type="image/png")
    plain.client.push(QUEUE, [skep.NewMessage({"a": 1}, transaction_id="t", headers={"h": "v"}), image])
    log = [row for table in _tables(plain) for row in table.drop_columns(["payload"]).to_pylist()]
    payloads = [bytes(one.as_buffer()) for table in _tables(plain) for one in table.column("payload")]
    plain.archive(2)
    both = [row for table in _tables(plain) for row in table.drop_columns(["payload"]).to_pylist()]
    assert both == log
    assert [bytes(one.as_buffer()) for table in _tables(plain) for one in table.column("payload")] == payloads


def _tables(both: Both) -> list[Any]:
    more = {"lake": str(both.root)} if both.root.exists() else {"lake": ""}
    reader = both.reader(**more)
    return [table for portion in reader.partitions() for table in reader.read(portion)]


def test_a_lake_that_is_not_there_is_told_with_the_cure(plain: Both) -> None:
    plain.push(1, 1)
    with pytest.raises(SkepError, match=r"there is no lake in .* yet; skep pipeline run archive makes one"):
        plain.read()
    with pytest.raises(SkepError, match="the option catalog is that of a lake of Iceberg"):
        plain.read(lake="", catalog="prod")


def test_a_lake_that_is_ahead_of_a_server_restored_from_a_backup_is_refused(tmp_path: Path) -> None:
    store, backup, lake = tmp_path / "store.db", tmp_path / "backup.db", tmp_path / "lake"
    with running_server(str(store)) as server, skep.Client(server.url) as client:
        Both(client, server.url, "default", lake).push(1, 3)
    copy(store, backup)
    with running_server(str(store)) as server, skep.Client(server.url) as client:
        both = Both(client, server.url, "default", lake)
        both.push(4, 5)
        both.archive(5)
        assert both.read() == [1, 2, 3, 4, 5]
    with running_server(str(backup)) as server, skep.Client(server.url) as client:
        both = Both(client, server.url, "default", lake)
        both.push(6, 6)
        refused = "the lake .* has orders up to seq 5, but the server's log ends at 4: it was restored from a backup"
        with pytest.raises(SkepError, match=refused):
            both.read()
        with pytest.raises(SkepError, match=refused):
            begin(both.stream(startingOffsets="earliest", **GOES_ON))
        assert numbers(both.reader(lake="")) == [1, 2, 3, 6]


def test_messages_that_are_archived_between_the_looks_at_log_and_lake_are_no_restored_backup(both: Both) -> None:
    both.push(1, 3)
    both.archive(3)
    bounds = both.client.log_bounds(QUEUE)
    both.push(4, 5)
    both.archive(5)
    options = source_options(both.options())
    found = widened(link(options.connection), {QUEUE: bounds}, lake_index(options))
    assert found[QUEUE].last_seq == 3
