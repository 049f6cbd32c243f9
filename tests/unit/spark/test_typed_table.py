"""A typed table has each message once, wherever a run is killed, and so has one that takes the place of another."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep.spark.lake.place import place_of
from skep.spark.running import typed_table
from skep.spark.running.typed_table import REJECTS, ROWS, Position, folder_of, noted, open_table

LAST = 8
OLD, NEW = "old type", "new type"


class KilledError(Exception):
    """Stands for kill -9: nothing after it happens."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let so many steps on the disk pass, then kill."""
    steps = itertools.count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            if next(steps) == step:
                raise KilledError
            return function(*arguments, **named)

        return called

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "unlink", "mkdir"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        yield


def is_reject(seq: int, made_with: str) -> bool:
    return seq % 5 == 0 if made_with == OLD else seq % 4 == 0


def brought_up(tables: Path, made_with: str, last: int, most: int) -> None:
    """Write what a table lacks up to a seq, as the pipeline does."""
    opened = open_table(place_of(str(tables)), "orders", made_with, (1, last))
    table = opened.table
    while table.note.through.seq < last:
        number, begin = table.next_batch(most)
        end = min(last, begin.seq + most)
        counts = {name: staged(tables, name, made_with, range(begin.seq + 1, end + 1)) for name in (ROWS, REJECTS)}
        rows, rejects = begin.rows + counts[ROWS], begin.rejects + counts[REJECTS]
        table.commit(number, begin, Position(seq=end, rows=rows, rejects=rejects))
    opened.close()


def staged(tables: Path, name: str, made_with: str, seqs: range) -> int:
    """The rows of a batch, written aside, by the day that they are of."""
    folder = tables / "_skep" / "typed" / "staging" / name
    for file in folder.rglob("*.parquet"):
        file.unlink()
    meant = [seq for seq in seqs if is_reject(seq, made_with) is (name == REJECTS)]
    for day, some in itertools.groupby(meant, key=lambda seq: seq // 3):
        target = folder / f"date=2026-01-{day + 1:02}"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"seq": list(some)}), target / "part.parquet")
    return len(meant)


def seqs(tables: Path, name: str) -> list[int]:
    found = (pq.ParquetFile(file).read()["seq"].to_pylist() for file in (tables / name / "orders").rglob("*.parquet"))
    return sorted(itertools.chain.from_iterable(found))


def is_whole(tables: Path, made_with: str, last: int) -> bool:
    expected = {
        name: [seq for seq in range(1, last + 1) if is_reject(seq, made_with) is (name == REJECTS)]
        for name in (ROWS, REJECTS)
    }
    note = noted(place_of(str(tables / ROWS / "orders")))
    assert note is not None
    assert (note.through.rows, note.through.rejects) == (len(expected[ROWS]), len(expected[REJECTS]))
    return {name: seqs(tables, name) for name in expected} == expected


@pytest.mark.parametrize("small", [4, *(pytest.param(small, marks=pytest.mark.slow) for small in (1, 100))])
def test_a_run_that_is_killed_at_any_step_leaves_a_table_that_the_next_one_makes_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(typed_table, "SMALL_SEQS", small)
    tables = tmp_path
    for step in itertools.count():
        tables = tmp_path / str(step)
        brought_up(tables, OLD, last=3, most=4)
        try:
            with killed_at(step, monkeypatch):
                brought_up(tables, OLD, last=7, most=4)
            break
        except KilledError:
            brought_up(tables, OLD, last=LAST, most=2)  # the batch ends earlier now
            assert is_whole(tables, OLD, LAST), step
    assert step > 8
    assert is_whole(tables, OLD, 7)


def test_a_table_of_a_new_type_takes_the_place_of_the_old_one_whole_wherever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path
    for step in itertools.count():
        tables = tmp_path / str(step)
        brought_up(tables, OLD, last=5, most=8)
        try:
            with killed_at(step, monkeypatch):
                brought_up(tables, NEW, last=LAST, most=4)
            break
        except KilledError:
            brought_up(tables, NEW, last=LAST + 2, most=4)
            assert is_whole(tables, NEW, LAST + 2), step
    assert step > 20
    assert is_whole(tables, NEW, LAST)
    assert not list((tables / "_skep" / "typed").glob("orders/**/*.parquet"))


def test_until_the_new_table_is_whole_the_old_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought_up(tmp_path, OLD, last=7, most=4)
    with pytest.raises(KilledError), killed_at(12, monkeypatch):
        brought_up(tmp_path, NEW, last=LAST, most=4)
    assert is_whole(tmp_path, OLD, 7)
    brought_up(tmp_path, OLD, last=LAST, most=4)
    assert is_whole(tmp_path, OLD, LAST), "the type changed back before"


def test_a_table_that_is_ahead_of_its_lake_is_made_anew(tmp_path: Path) -> None:
    brought_up(tmp_path, OLD, last=9, most=4)
    brought_up(tmp_path, OLD, last=6, most=4)
    assert is_whole(tmp_path, OLD, 6)


def test_a_small_batch_is_written_anew_and_a_large_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_table, "SMALL_SEQS", 4)
    numbers = []
    for last in (2, 3, 5, 6):
        brought_up(tmp_path, OLD, last=last, most=100)
        note = noted(place_of(str(tmp_path / ROWS / "orders")))
        assert note is not None
        numbers.append((note.batch, note.begun.seq))
    assert numbers == [(1, 0), (1, 0), (1, 0), (2, 5)]


@pytest.mark.parametrize(
    ("queue", "folder"),
    [
        ("orders", "orders"),
        ("orders, old", "orders%2C%20old"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("_own", "%5Fown"),
        (".", "%2E"),
        ("ü", "%C3%BC"),
    ],
)
def test_a_queue_of_any_name_has_a_folder_that_readers_see(queue: str, folder: str) -> None:
    assert folder_of(queue) == folder


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "_typed.json").write_bytes(msgspec.json.encode({"made_with": 1}))
    assert noted(place_of(str(tmp_path))) is None
