"""Encrypted queues stay sealed in the lake, and are opened for who may read them, until their keys are destroyed. It is driven as Spark
drives it, without a Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import skep
from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.errors import Code, SkepError
from skep.model import SEALED_TYPE
from skep.model.key import Verb
from skep.spark.lake.files import LakeFile, write_files
from skep.spark.lake.opening import open_lake
from skep.spark.lake.reading import rows_of_file
from skep.spark.lake.table import LakeChange
from skep.spark.offsets import QueueStretch
from skep.spark.options import source_options
from skep.spark.portions import encoded
from skep.spark.running.log_rows import LogRows
from skep.spark.schema import id_texts
from skep.spark.source import Portion, QueuePart
from skep.testing.server import running_server
from tests.access.driver import Door
from tests.access.requests import ALL
from tests.cli.command import Command
from tests.spark.conftest import TENANTS
from tests.spark.test_lake import USUAL_FIRST
from tests.spark.test_united import Both, numbers

CARD = "4242424242424242"
LENIENT = {"failOnShredded": "false"}


@pytest.fixture(scope="module")
def sealing() -> Iterator[str]:
    """The URL of a server with a master key."""
    with running_server(masters=MasterKeys(new_master_line("one"))) as server:
        yield server.url


@pytest.fixture(params=USUAL_FIRST)
def both(request: pytest.FixtureRequest, sealing: str, tmp_path: Path) -> Iterator[Both]:
    tenant = next(TENANTS)
    with skep.Client(sealing, tenant=tenant) as client:
        yield Both(client, sealing, tenant, tmp_path / "lake", request.param)


def push(both: Both, queue: str, *numbers: int) -> None:
    both.client.push(queue, [skep.NewMessage({"n": n, "card": CARD}, partition=f"p{n % 2}") for n in numbers])


def archive(both: Both, queue: str, plain: Sequence[str] = ()) -> None:
    """Bring a queue into the lake, as a run of the archive does."""
    options = replace(source_options({**both.options(), "lake": ""}), plain=frozenset(plain))
    bounds = both.client.log_bounds(queue)
    with open_lake(str(both.root), both.tenant, both.kind) as lake:
        stretch = QueueStretch(queue, (lake.through(queue) or 0) + 1, bounds.last_seq)
        rows = LogRows(options, Portion([QueuePart(stretch, bounds.log)]), {}).rows()
        added = list(write_files(rows, lake.plan()))
        lake.commit(LakeChange(added=added, through={queue: bounds.last_seq}, logs={queue: bounds.log}))


def lies_plain(both: Both) -> bool:
    return any(CARD.encode() in one for one in raw(both))


def raw(both: Both) -> list[bytes]:
    """The content of all files of the lake, unpacked where it is packed."""
    files = [path for path in both.root.rglob("*") if path.is_file()]
    tables = [pq.read_table(path, partitioning=None) for path in files if path.suffix == ".parquet"]
    columns = [column.to_pylist() for table in tables for column in table.columns]
    return [*(path.read_bytes() for path in files), repr(columns).encode()]


def test_an_encrypted_queue_is_sealed_in_the_lake_and_read_with_its_key_until_that_is_destroyed(both: Both) -> None:
    push(both, "orders", 1, 2)
    both.client.configure("orders", encryption_enabled=True)
    push(both, "orders", 3, 4)
    archive(both, "orders")
    both.client.clear("orders")
    push(both, "orders", 5)

    assert numbers(both.reader()) == [1, 2, 3, 4, 5]
    assert numbers(both.reader(partitions="p0")) == [2, 4]
    with open_lake(str(both.root), both.tenant, both.kind) as lake:
        [file] = lake.files()
        rows = [row for batch in rows_of_file(file) for row in batch.to_pylist()]
    assert [row["payload"] is None for row in rows] == [False, False, True, True]
    [key] = both.client.data_keys()
    assert [row["data_key"] for row in rows] == [None, None, key.id, key.id]
    assert not any(CARD.encode() in row["payload_bytes"] for row in rows[2:])

    both.client.shred_data_keys("orders")
    with pytest.raises(SkepError, match=r"seq 3 cannot be opened: its key was destroyed .*failOnShredded") as refused:
        numbers(both.reader())
    assert refused.value.code is Code.CANNOT_DECRYPT
    found = [
        (seq, None if payload is None else json.loads(payload)["n"])
        for reader in [both.reader(**LENIENT)]
        for portion in reader.partitions()
        for table in reader.read(portion)
        for seq, payload in zip(table.column("seq").to_pylist(), table.column("payload").to_pylist(), strict=True)
    ]
    assert found == [(1, 1), (2, 2), (3, None), (4, None), (5, None)]  # the last one comes from the log
    both.compact()
    assert [row["data_key"] for batch in rows_of_file(files_of(both)[0]) for row in batch.to_pylist()][2:] == [
        key.id
    ] * 2


def files_of(both: Both) -> list[LakeFile]:
    with open_lake(str(both.root), both.tenant, both.kind) as lake:
        return lake.files()


def test_no_file_of_the_lake_has_a_secret_unless_its_queue_is_named_as_plain(both: Both) -> None:
    both.client.configure("orders", encryption_enabled=True)
    push(both, "orders", 1, 2)
    archive(both, "orders")
    assert not lies_plain(both)
    push(both, "orders", 3)
    archive(both, "orders", plain=["orders"])
    assert lies_plain(both)
    assert both.read() == [1, 2, 3]


def test_other_bytes_than_text_come_back_as_they_were_pushed(both: Both) -> None:
    image = skep.NewMessage(b"\xff\x00", content_type="image/png")
    both.client.configure("orders", encryption_enabled=True)
    both.client.push("orders", [image, skep.NewMessage({"ü": 1})])
    archive(both, "orders")
    both.client.clear("orders")
    reader = both.reader()
    [table] = [table for portion in reader.partitions() for table in reader.read(portion)]
    assert table.column("payload").cast("binary", safe=False).to_pylist() == [b"\xff\x00", '{"ü":1}'.encode()]


def test_dead_letters_are_opened_for_who_may_read_the_queue_that_they_are_of(both: Both) -> None:
    both.client.configure("orders", encryption_enabled=True)
    push(both, "orders", 7)
    [message] = both.client.pop("orders")
    both.client.reject(message, error="declined")
    archive(both, "orders.dead")
    both.client.clear("orders.dead")
    assert not lies_plain(both)
    assert numbers(both.reader(subscribe="orders.dead")) == [7]


def test_who_may_not_read_the_queue_of_a_key_opens_nothing_that_it_sealed(tmp_path: Path) -> None:
    masters = MasterKeys(new_master_line("one"))
    with running_server(masters=masters, access=AccessSettings(required=True)) as server:
        door = Door(server, "default")
        with skep.Client(server.url, token=door.key(*ALL).text) as client:
            own = Both(client, server.url, "default", tmp_path / "lake")
            client.configure("orders", encryption_enabled=True)
            push(own, "orders", 7)
            [message] = client.pop("orders")
            client.reject(message, error="declined")
            bounds = client.log_bounds("orders.dead")
            letters = pa.ipc.open_stream(client.read_log("orders.dead", sealed="keep")).read_all().to_batches()[0]
            assert bounds.last_seq == len(letters) == 1
            assert client.read_log("orders.dead", columns=["payload"]).find(CARD.encode()) > 0
        ids = {name: id_texts(letters.column(name)) for name in ("message_id", "trace_id")}
        sent = encoded(
            [pa.RecordBatch.from_pydict({**ids, **{n: letters.column(n) for n in ("partition", "payload")}})]
        )
        for queues, may in ((("orders*",), True), (("orders.dead",), False)):
            with skep.Client(server.url, token=door.key(Verb.READ, queues=queues).text, attempts=1) as reader:
                if may:
                    assert CARD.encode() in reader.open_sealed("orders.dead", sent)
                else:
                    with pytest.raises(SkepError, match="FORBIDDEN"):
                        reader.open_sealed("orders.dead", sent)


def test_a_payload_of_another_message_is_not_opened(sealing: str) -> None:
    with skep.Client(sealing, tenant=next(TENANTS)) as client:
        client.configure("orders", encryption_enabled=True)
        client.push("orders", [{"n": 1}, {"n": 2}])
        [rows] = pa.ipc.open_stream(client.read_log("orders", sealed="keep")).read_all().to_batches()
        ids = {name: id_texts(rows.column(name)) for name in ("message_id", "trace_id")}
        kept = {"partition": rows.column("partition"), "payload": rows.column("payload").take([1, 0])}
        answer = client.open_sealed("orders", encoded([pa.RecordBatch.from_pydict({**ids, **kept})]))
        assert pa.ipc.open_stream(answer).read_all().column("payload").to_pylist() == [None, None]


@pytest.mark.slow
def test_commands_open_sealed_messages_until_their_keys_are_destroyed(both: Both) -> None:
    both.client.configure("orders", encryption_enabled=True)
    push(both, "orders", 1, 2)
    archive(both, "orders")
    both.client.clear("orders")
    run = Command(both.url, both.tenant)
    lake = {"SKEP_LAKE": str(both.root)}

    assert run("message", "show", "orders", "1", **lake).json()["payload"]["card"] == CARD
    assert run("message", "replay", "orders", "1", "--yes", **lake).json()["pushed"] == 1
    [again] = both.client.messages("orders")
    assert again.json()["card"] == CARD
    assert not lies_plain(both)

    both.client.shred_data_keys("orders")
    shown = run("message", "show", "orders", "2", **lake)
    assert (shown.code, "cannot be opened: its key was destroyed" in shown.err) == (1, True)
    refused = run("message", "replay", "orders", "2", "--yes", **lake)
    assert (refused.code, "cannot be opened: its key was destroyed" in refused.err) == (1, True)
    listed = run("message", "list", "orders", "--limit", "2", **lake).json()
    assert [(one["seq"], one["payload"], one["contentType"]) for one in listed] == [
        (1, None, SEALED_TYPE), (2, None, SEALED_TYPE),
    ]  # fmt: skip
