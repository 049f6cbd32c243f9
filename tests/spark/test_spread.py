"""Two servers of one store: both get their share of what Spark reads, looks up and writes; one may be killed in the middle of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

import skep
from skep.client.servers import ranked
from skep.spark import link as links
from skep.spark.link import Link, Log
from skep.spark.options import ServerConnection, sink_options, source_options
from skep.spark.schema import schema_of
from skep.spark.sink import TableWriter
from skep.spark.source import MessageReader
from skep.spark.stream import MessageStream
from skep.spark.tables import TABLES, TableReader
from skep.testing.postgres import free_port
from tests.spark.conftest import TENANTS
from tests.spark.test_losses import batch, begin
from tests.support.serving import ServeProcess

LOG = "/api/v1/log/{queue}"
STAGE = "/api/v1/staging/{query}/{epoch}/{partition}/{attempt}"
ROWS, PAYLOAD_BYTES = 20_000, 1_000
"""So much that a stream is longer than what a client reads ahead."""
RETRY_SECONDS = 60.0


class Pair:
    """Two servers as processes of their own, on one store."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._dsn = dsn
        self._folder = folder
        ports = [free_port(), free_port()]
        self.urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
        self._processes = {url: self._started(port) for url, port in zip(self.urls, ports, strict=True)}
        for process in self._processes.values():
            process.listening()

    def _started(self, port: int) -> ServeProcess:
        return ServeProcess("--store", self._dsn, "--port", str(port), folder=self._folder)

    def kill(self, url: str) -> None:
        serve = self._processes.pop(url)
        serve.process.kill()
        serve.ended()
        assert serve.process.stderr is not None
        serve.process.stderr.close()

    def revive(self) -> None:
        for url in set(self.urls) - self._processes.keys():
            self._processes[url] = self._started(int(url.rpartition(":")[2]))
            self._processes[url].listening()

    def close(self) -> None:
        for url in list(self._processes):
            self.kill(url)

    def answered(self, method: str, route: str) -> list[int]:
        """How many requests of a route each server has answered well."""
        return [_answered(url, method, route) for url in self.urls]


def _answered(url: str, method: str, route: str) -> int:
    with urlopen(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found: Counter[tuple[str, str]] = Counter()
    for family in families:
        if family.name == "skep_http_requests":
            for sample in family.samples:
                if sample.labels["status"].startswith("2"):
                    found[sample.labels["method"], sample.labels["route"]] += int(sample.value)
    return found[method, route]


class Shared:
    """The two servers with a tenant of the test's own."""

    def __init__(self, pair: Pair, client: skep.Client, tenant: str) -> None:
        self.pair = pair
        self.client = client
        self.tenant = tenant
        self.options = {"url": ",".join(pair.urls), "tenant": tenant, "retrySeconds": str(RETRY_SECONDS)}

    def reader(self, **options: str) -> MessageReader:
        return MessageReader(source_options({**self.options, **options}), schema_of(("queue", "seq")))

    def writer(self, **options: str) -> TableWriter:
        return TableWriter(sink_options({**self.options, "queue": "copies", **options}))

    def first_server(self, *about: object) -> str:
        """The server that is asked first about something."""
        return self.pair.urls[ranked(self.pair.urls, " ".join(map(str, (self.tenant, *about))))[0]]


@pytest.fixture(scope="module")
def pair(database_with_tables: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    running = Pair(database_with_tables, tmp_path_factory.mktemp("servers"))
    yield running
    running.close()


@pytest.fixture
def shared(pair: Pair) -> Iterator[Shared]:
    pair.revive()
    tenant = next(TENANTS)
    with skep.Client(pair.urls, tenant=tenant) as client:
        yield Shared(pair, client, tenant)


def seqs(reader: MessageReader, partitions: list[InputPartition]) -> list[int]:
    batches = [batch for portion in partitions for batch in reader.read(portion)]
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def fill(client: skep.Client, queue: str, rows: int, payload: str) -> None:
    for first in range(0, rows, 1_000):
        client.push(queue, [payload] * min(1_000, rows - first))


def difference(after: list[int], before: list[int]) -> list[int]:
    return [new - old for new, old in zip(after, before, strict=True)]


def test_both_servers_get_their_share_of_a_read_and_every_reader_asks_the_same_one_for_the_same_part(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SPREAD_SEQS", 100)
    fill(shared.client, "orders", 3_000, "x")
    expected = Counter(shared.first_server("orders", part) for part in range(30))
    assert min(expected.values()) > 3

    before = shared.pair.answered("GET", LOG)
    reader = shared.reader(subscribe="orders", minPartitions="1")
    assert seqs(reader, reader.partitions()) == list(range(1, 3_001))
    first = difference(shared.pair.answered("GET", LOG), before)
    reader = shared.reader(subscribe="orders", minPartitions="4", startingOffsets='{"orders": 100}')
    assert seqs(reader, reader.partitions()) == list(range(101, 3_001))
    second = difference(shared.pair.answered("GET", LOG), [*map(sum, zip(before, first, strict=True))])

    assert first == [expected[url] for url in shared.pair.urls]
    # The other reader has one part less, and asks twice for parts that two of its tasks share.
    assert all(new >= old - 1 for new, old in zip(second, first, strict=True))
    assert sum(second) <= 29 + 3


def test_both_servers_get_their_share_of_many_queues_of_tables_and_of_what_is_written(shared: Shared) -> None:
    queues = [f"queue-{number:02d}" for number in range(40)]
    with shared.client.transaction() as tx:
        for queue in queues:
            tx.push(queue, 1)
    routes = [("GET", LOG), ("GET", "/api/v1/tables/{table}"), ("POST", STAGE)]
    before = {route: shared.pair.answered(*route) for route in routes}

    reader = shared.reader(subscribePattern="queue-.*")
    assert len(seqs(reader, reader.partitions())) == 40
    leases = TableReader("leases", source_options({**shared.options, "subscribePattern": "queue-.*"}), TABLES["leases"])
    assert [row for task in leases.partitions() for row in leases.read(task)] == []
    one = pa.record_batch({"payload": ["1"]})
    writers = [shared.writer(stageRows="1") for _ in range(40)]
    told = [writer.write(iter([one, one])) for writer in writers]
    writers[0].commit([told[0]])

    shares = {route: difference(shared.pair.answered(*route), before[route]) for route in routes}
    assert {route: sum(share) for route, share in shares.items()} == dict(zip(routes, (40, 40, 80), strict=True))
    assert all(min(share) > 3 for share in shares.values()), shares
    assert shared.client.log_bounds("copies").last_seq == 2


def test_a_server_that_is_killed_in_the_middle_of_a_read_costs_no_row(shared: Shared) -> None:
    fill(shared.client, "orders", ROWS, "x" * (PAYLOAD_BYTES - 2))
    link = Link(ServerConnection(shared.pair.urls, shared.tenant, None, RETRY_SECONDS))
    found: list[int] = []
    killed = shared.first_server("orders", 0)
    [other] = set(shared.pair.urls) - {killed}
    before = _answered(other, "GET", LOG)

    for number, rows in enumerate(link.read(Log(queue="orders", first=1, last=ROWS, columns=("seq", "payload")))):
        found += rows.column("seq").to_pylist()
        if number == 0:
            shared.pair.kill(killed)

    assert _answered(other, "GET", LOG) == before + 1
    assert found == list(range(1, ROWS + 1))
    assert link.bounds_of(["orders"])["orders"].last_seq == ROWS


@pytest.mark.slow
def test_a_server_that_is_killed_while_rows_are_staged_loses_and_doubles_none(shared: Shared) -> None:
    writer = shared.writer(stageRows="2", writeId="once")

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            if number == 20:
                shared.pair.kill(shared.first_server("write-once", 0, 0))
            yield pa.record_batch({"payload": [str(number)]})

    told = writer.write(batches())
    writer.commit([told])
    writer.commit([told])  # Spark may have heard of no answer

    assert [message.json() for message in shared.client.messages("copies")] == list(range(40))


@pytest.mark.slow
def test_a_stream_goes_on_with_the_other_server_and_reports_its_progress_there(shared: Shared) -> None:
    queues = ["a", "b", "c", "d"]
    for queue in queues:
        shared.client.push(queue, [1, 2, 3])
    given = {**shared.options, "subscribe": ",".join(queues), "groupId": "lake", "waitSeconds": "0.2"}
    stream = MessageStream(source_options(given), schema_of(()))
    limit = ReadMaxRows(4)
    end, found = batch(stream, begin(stream), limit)

    shared.pair.kill(shared.first_server("a"))
    for _ in range(3):
        end, more = batch(stream, end, limit)
        found += more
    stream.commit(end)

    assert sorted(found) == sorted(["1", "2", "3"] * 4)
    assert {one.queue: one.progress_seq for one in shared.client.group("lake").queues} == dict.fromkeys(queues, 3)
