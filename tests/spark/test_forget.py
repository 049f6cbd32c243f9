"""What is forgotten is in no file of the lake any more, and everything else is where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skep.spark.lake import tombstones
from skep.spark.lake.forgetting import PENDING, TableFile, forget_in_file, forget_rows
from skep.spark.lake.opening import Format, open_lake
from skep.spark.lake.place import OWN, place_of
from skep.spark.lake.table import append
from skep.spark.lake.tombstones import Seqs
from skep.spark.running import forgetting
from tests.spark.conftest import Lake
from tests.spark.lake_rows import Rows, add, seqs
from tests.spark.test_lake import USUAL_FIRST, KilledError
from tests.spark.test_running import ran

FORGOTTEN = {"orders": [Seqs(1, 3, 4), Seqs(1, 9, 9)]}
KEPT = [1, 2, 5, 6, 7, 8, 10]


def on_disk(root: Path, queue: str = "orders") -> set[int]:
    """The seqs of a queue in all files below a folder, whether a version names them or not."""
    files = root.rglob(f"queue={queue}/**/*.parquet")
    return {seq for file in files for seq in pq.read_table(file, columns=["seq"]).column("seq").to_pylist()}


@pytest.mark.parametrize("kind", USUAL_FIRST)
def test_messages_are_in_no_file_any_more_and_others_stay(spark: SparkSession, tmp_path: Path, kind: Format) -> None:
    with open_lake(str(tmp_path), "default", kind) as lake:
        add(spark, lake, Rows("orders", 1, 5), Rows("others", 1, 4))
        add(spark, lake, Rows("orders", 6, 8))
        add(spark, lake, Rows("orders", 9, 10))
        untouched = {file.uri for file in lake.files() if file.queue == "others" or file.first_seq == 6}

        assert forget_rows(spark, lake, FORGOTTEN) == 3
        assert (seqs(spark, lake), seqs(spark, lake, "others")) == (KEPT, [1, 2, 3, 4])
        assert on_disk(tmp_path) == set(KEPT)
        assert untouched <= {file.uri for file in lake.files()}
        assert lake.through("orders") == 10
        assert forget_rows(spark, lake, FORGOTTEN) == 0
        assert forget_rows(spark, lake, {"orders": [Seqs(1, 9, 10)], "nobody": [Seqs(1, 1, 1)]}) == 1
        assert (seqs(spark, lake), lake.through("orders")) == (KEPT[:-1], 10)


@pytest.mark.parametrize("kind", USUAL_FIRST)
def test_a_run_that_is_killed_after_its_commit_leaves_nothing_to_those_who_look_at_files(
    spark: SparkSession, tmp_path: Path, kind: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(str(tmp_path), "default", kind) as lake:
        add(spark, lake, Rows("orders", 1, 10))
        commit = lake.commit

        def killed_after(change: Any) -> None:
            commit(change)
            raise KilledError

        monkeypatch.setattr(lake, "commit", killed_after)
        with pytest.raises(KilledError):
            forget_rows(spark, lake, FORGOTTEN)
    with open_lake(str(tmp_path), "default") as lake:
        assert seqs(spark, lake) == KEPT
        assert forget_rows(spark, lake, FORGOTTEN) == 0
        assert on_disk(tmp_path) == set(KEPT)
    assert not (tmp_path / OWN / PENDING).exists()


def test_a_generation_that_is_not_meant_keeps_its_messages(spark: SparkSession, tmp_path: Path) -> None:
    with open_lake(str(tmp_path), "default") as lake:
        add(spark, lake, Rows("orders", 1, 4))
        add(spark, lake, Rows("orders", 1, 4, generation=2))
        assert forget_rows(spark, lake, {"orders": [Seqs(2, 2, 3)]}) == 2
        assert seqs(spark, lake) == [1, 1, 2, 3, 4, 4]


def told(lake: Lake) -> set[int]:
    """The numbers of the orders in the lake."""
    files = (lake.folder / "lake" / "messages").rglob("*.parquet")
    payloads = [one for file in files for one in pq.read_table(file, columns=["payload"]).column("payload").to_pylist()]
    return {json.loads(payload)["n"] for payload in payloads}


def test_what_is_chosen_by_its_payload_is_gone_from_lake_log_and_dead_letters(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number, "customer": f"c{number % 3}"} for number in range(6)])
    for one in lake.client.pop("orders", group="billing", batch=6):
        lake.client.reject(one, error=f"no {one.json()['customer']}")
    assert ran(lake, "archive", "journeys", verify=False).run.error is None

    tried = ran(lake, "forget", queues=("orders",), where="message.customer == 'c1'", dry_run=True).run
    assert (tried.error, tried.stages[0].rows_in, told(lake)) == (None, 2, {0, 1, 2, 3, 4, 5})
    done = ran(lake, "forget", queues=("orders",), where="message.customer == 'c1'").run

    assert (done.error, done.stages[0].rows_out) == (None, 2)
    assert told(lake) == {0, 2, 3, 5}
    assert [json.loads(bytes(one.payload))["n"] for one in lake.client.messages("orders")] == [0, 2, 3, 5]
    assert sorted(letter.source_seq for letter in lake.client.dead_letters("orders")) == [1, 3, 4, 6]
    again = ran(lake, "archive", audit=True).run
    assert (again.error, again.failed_checks(), told(lake)) == (None, [], {0, 2, 3, 5})


def test_what_is_not_archived_yet_is_found_by_its_payload_too(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number, "customer": f"c{number % 2}"} for number in range(4)])
    lake.client.push("others", [{"n": 10, "customer": "c1"}])
    assert ran(lake, "archive", queues=("orders",), verify=False).run.error is None
    lake.client.push("orders", [{"n": number, "customer": f"c{number % 2}"} for number in range(4, 8)])

    tried = ran(lake, "forget", where="message.customer == 'c1'", dry_run=True).run
    assert (tried.error, tried.stages[0].rows_in) == (None, 5)
    done = ran(lake, "forget", where="message.customer == 'c1'").run

    assert (done.error, told(lake)) == (None, {0, 2})
    assert [json.loads(bytes(one.payload))["n"] for one in lake.client.messages("orders")] == [0, 2, 4, 6]
    assert list(lake.client.messages("others")) == []
    again = ran(lake, "archive", audit=True).run
    assert (again.error, again.failed_checks(), told(lake)) == (None, [], {0, 2, 4, 6})


def test_what_is_no_json_is_chosen_by_the_rest_of_the_row(lake: Lake) -> None:
    lake.client.push("orders", [{"n": 1, "customer": "c1"}, {"n": 2}], partition="c2")
    lake.client.push("orders", [b"", b"\xff"], content_type="application/octet-stream", partition="c1")
    lake.client.push("orders", [b"text"], content_type="text/plain", partition="c2", headers={"to": "c1"})
    lake.client.push("orders", [b"text"], content_type="text/plain", partition="c2")
    assert ran(lake, "archive", verify=False).run.error is None
    where = "message.customer == 'c1' || partition == 'c1' || ('to' in headers && headers.to == 'c1')"

    assert ran(lake, "forget", queues=("orders",), where=where).run.stages[0].rows_out == 4

    assert [message.seq for message in lake.client.messages("orders")] == [2, 6]
    assert on_disk(lake.folder / "lake") == {2, 6}


@pytest.mark.slow
def test_what_is_forgotten_in_a_queue_made_anew_leaves_the_lake_s_generation_alone(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number, "customer": "c1"} for number in range(2)])
    assert ran(lake, "archive", verify=False).run.error is None
    lake.client.delete_queue("orders")
    lake.client.push("orders", [{"n": number, "customer": f"c{number}"} for number in range(2, 4)])

    assert ran(lake, "forget", queues=("orders",), seqs=[(2, 2)], where="generation == 2").run.error is None

    assert [json.loads(bytes(one.payload))["n"] for one in lake.client.messages("orders")] == [2]
    assert told(lake) == {0, 1}
    assert ran(lake, "archive", verify=False, all_remade=True).run.error is None
    assert told(lake) == {0, 1, 2}


@pytest.mark.slow
def test_what_the_server_forgets_leaves_the_lake_with_the_next_archive(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number} for number in range(4)])
    assert ran(lake, "archive", verify=False).run.error is None
    lake.client.forget("orders", [2, (4, 4)])
    lake.client.push("orders", {"n": 9})

    run = ran(lake, "archive", audit=True).run

    assert (run.error, run.failed_checks()) == (None, [])
    assert told(lake) == {0, 2, 9}


def test_tables_with_a_folder_for_each_queue_lose_the_rows_of_these_messages(tmp_path: Path) -> None:
    import pyarrow as pa

    folder = tmp_path / "commands" / "queue=orders" / "batch=1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"seq": [1, 2, 3, 9], "input": ["a", "b", "c", "d"]}), folder / "one.parquet")

    file = TableFile(place_of(str(folder / "one.parquet")), "orders")
    assert forget_in_file(file, {"others": [Seqs(1, 1, 9)], **FORGOTTEN}) == 2
    assert pq.read_table(folder / "one.parquet").to_pydict() == {"seq": [1, 2], "input": ["a", "b"]}


def test_tables_with_rows_of_many_queues_lose_those_of_these_messages(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "letters.parquet"
    rows = {"queue": ["orders", "others", "orders", "orders"], "seq": [3, 3, 4, 5], "generation": [1, 1, 2, 1]}
    pq.write_table(pa.table({**rows, "generation": pa.array(rows["generation"], pa.int32())}), path)
    assert forget_in_file(TableFile(place_of(str(path)), None), FORGOTTEN) == 1
    assert pq.read_table(path).to_pydict() == {
        "queue": ["others", "orders", "orders"],
        "seq": [3, 4, 5],
        "generation": [1, 2, 1],
    }


@pytest.mark.slow
def test_messages_that_another_run_adds_after_they_were_forgotten_leave_the_lake_again(lake: Lake) -> None:
    lake.client.push("orders", [{"n": 1}, {"n": 2}])
    assert ran(lake, "archive", verify=False).run.error is None
    lake.client.push("orders", [{"n": 3}, {"n": 4}])  # another run reads these now, and is slow
    lake.client.forget("orders", [4])
    assert ran(lake, "forget", queues=("orders",), seqs=[(1, 1)]).run.error is None
    held = lake.client.log_bounds("orders")
    with open_lake(str(lake.folder / "lake"), lake.tenant) as opened:
        append(lake.spark, opened, [Rows("orders", 3, 4)], {"orders": 4}, {"orders": held.log})
    assert told(lake) == {2, 3, 4}

    assert ran(lake, "archive", verify=False).run.error is None
    assert told(lake) == {2, 3}


@pytest.mark.slow
def test_a_driver_holds_few_ranges_however_many_are_forgotten(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def noted(found: dict[str, list[Seqs]]) -> dict[str, list[Seqs]]:
        held.append(sum(map(len, found.values())))
        return found

    portions = tombstones.portions
    monkeypatch.setattr(tombstones, "RANGES_AT_ONCE", 3)
    monkeypatch.setattr(forgetting, "portions", lambda found: map(noted, portions(found)))
    monkeypatch.setattr(forgetting, "RANGES_READ", 2)
    for queue in ("orders", "others"):
        lake.client.push(queue, [{"n": number, "customer": f"c{number % 2}"} for number in range(10)])
    assert ran(lake, "archive", verify=False).run.error is None

    done = ran(lake, "forget", where="message.customer == 'c1'").run
    assert (done.error, done.stages[0].rows_in, done.stages[0].rows_out) == (None, 10, 10)
    [shown] = done.tables
    assert [tuple(row) for row in shown.rows[:2]] == [("orders", 1, 2, 2, 1), ("orders", 1, 4, 4, 1)]
    lake.client.forget("orders", [1, 5, 9])
    lake.client.forget("others", [3, 7])
    tried = ran(lake, "forget", dry_run=True).run
    again = ran(lake, "forget").run

    assert [(run.error, run.stages[0].rows_in) for run in (tried, again)] == [(None, 5)] * 2
    assert {queue: on_disk(lake.folder / "lake", queue) for queue in ("orders", "others")} == {
        "orders": {3, 7},
        "others": {1, 5, 9},
    }
    assert max(held) <= 3
    assert len(held) > 8
    assert not list((lake.folder / "lake" / OWN).glob("forget*-*"))


@pytest.mark.slow
def test_a_run_that_is_killed_between_portions_is_finished_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.client.push("orders", [{"n": number, "customer": f"c{number % 2}"} for number in range(10)])
    assert ran(lake, "archive", verify=False).run.error is None
    forget = forgetting.forget_everywhere
    left = [1]

    def killed(*given: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return forget(*given)

    with monkeypatch.context() as patched:
        patched.setattr(tombstones, "RANGES_AT_ONCE", 2)
        patched.setattr(forgetting, "forget_everywhere", killed)
        assert ran(lake, "forget", where="message.customer == 'c1'").run.error is not None
    assert len(on_disk(lake.folder / "lake")) == 8
    assert ran(lake, "forget", queues=("orders",), partition="nobody").run.error is None
    assert on_disk(lake.folder / "lake") == {1, 3, 5, 7, 9}
    assert [json.loads(bytes(one.payload))["n"] for one in lake.client.messages("orders")] == [0, 2, 4, 6, 8]
