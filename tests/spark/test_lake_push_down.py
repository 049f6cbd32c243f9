"""Filters and columns of a read reach the files of the lake: what cannot have a wanted row is not read. Files and row groups that must not be
read are destroyed first, so that reading them would fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import skep
from skep.spark.lake import files
from skep.spark.lake.opening import open_lake
from skep.spark.options import source_options
from skep.spark.push_down import PushDown
from skep.spark.schema import schema_of
from skep.spark.source import MessageReader
from skep.testing.server import RunningServer
from tests.spark.conftest import TENANTS
from tests.spark.test_united import QUEUE, Both

GROUP_ROWS = 10
TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"
NOTHING = PushDown()


@pytest.fixture
def both(spark_server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    """Two files of 40 messages in 4 row groups each. Message n is in partition c-m, m = n // 10, with the transaction id t-n."""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", GROUP_ROWS)
    tenant = next(TENANTS)
    with skep.Client(spark_server.url, tenant=tenant) as client:
        made = Both(client, spark_server.url, tenant, tmp_path / "lake")
        for last in (40, 80):
            client.push(QUEUE, [message(number) for number in range(last - 39, last + 1)])
            made.archive(last, fetchRows=str(GROUP_ROWS))
        client.clear(QUEUE)
        yield made


def message(number: int) -> skep.NewMessage:
    return skep.NewMessage(
        {"n": number}, partition=f"c-{(number - 1) // 10}", transaction_id=f"t-{number:02}",
        trace_id=TRACE if number == 35 else None,
    )  # fmt: skip


def of(both: Both) -> list[Path]:
    with open_lake(str(both.root), both.tenant) as lake:
        return [file.place.local for file in sorted(lake.files(), key=lambda one: one.first_seq)]


def destroy(file: Path, kept: Collection[int], columns: Collection[str] | None = None) -> None:
    """Overwrite all row groups of a file but some, or only some columns of them."""
    about = pq.read_metadata(file)
    assert about.num_row_groups == 4
    with file.open("r+b") as opened:
        for group in set(range(4)) - set(kept):
            for place in range(about.num_columns):
                column = about.row_group(group).column(place)
                if columns is not None and column.path_in_schema not in columns:
                    continue
                start = column.dictionary_page_offset or column.data_page_offset
                opened.seek(start)
                opened.write(b"\xff" * column.total_compressed_size)


def read(both: Both, pushed: PushDown = NOTHING, columns: Collection[str] = ("seq",), **options: str) -> list[int]:
    given = replace(source_options(both.options(**options)), push_down=pushed)
    reader = MessageReader(given, schema_of(tuple(columns)))
    return [seq for part in reader.partitions() for rows in reader.read(part) for seq in rows.column("seq").to_pylist()]


@pytest.mark.parametrize(
    ("pushed", "options", "wanted", "group"),
    [
        (PushDown(ranges={"seq": (23, 25)}), {}, [23, 24, 25], 2),
        (PushDown(), {"startingOffsets": '{"orders": 10}', "endingOffsets": '{"orders": 20}'}, list(range(11, 21)), 1),
        (PushDown(sets={"partition": ("c-3",)}), {}, list(range(31, 41)), 3),
        (PushDown(), {"partitions": "c-0"}, list(range(1, 11)), 0),
        (PushDown(sets={"transaction_id": ("t-07", "t-08")}), {}, [7, 8], 0),
        (PushDown(sets={"trace_id": (TRACE,)}), {}, [35], 3),
    ],
    ids=["seq", "offsets", "partition", "option", "transaction", "trace"],
)
def test_only_row_groups_with_wanted_rows_are_read(
    both: Both, pushed: PushDown, options: dict[str, str], wanted: list[int], group: int
) -> None:
    first, second = of(both)
    destroy(first, [group])
    destroy(second, [])
    assert read(both, pushed, ("seq", "payload"), **options) == wanted


def test_only_the_wanted_columns_are_read(both: Both) -> None:
    for file in of(both):
        destroy(file, [], columns={"payload", "message_id", "headers.key_value.key", "created_at"})
    assert read(both, PushDown(sets={"partition": ("c-3", "c-7")}), ("seq", "partition")) == [
        *range(31, 41),
        *range(71, 81),
    ]


def test_of_row_groups_without_a_wanted_row_only_the_columns_that_decide_are_read(both: Both) -> None:
    """A value within the ends of a row group need not be in it."""
    plain = PushDown(sets={"transaction_id": ("t-050", "t-33")})
    for file in of(both):
        destroy(file, [3] if file == of(both)[0] else [], columns={"payload"})
    assert read(both, plain, ("seq", "payload")) == [33]


def test_files_without_wanted_seqs_are_not_opened_and_of_earlier_ones_only_the_end(both: Both) -> None:
    first, second = of(both)
    since = pq.read_table(second, partitioning=None).column("created_at")[0].as_py().isoformat()
    destroy(first, [])
    assert read(both, startingTimestamp=since) == list(range(41, 81))
    first.write_bytes(b"")
    assert read(both, PushDown(ranges={"seq": (41, 50)})) == list(range(41, 51))
    assert read(both, startingOffsets='{"orders": 40}') == list(range(41, 81))
