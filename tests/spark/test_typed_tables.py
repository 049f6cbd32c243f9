"""Typed tables of the lake: each message once, as a row or as a reject, in files that DuckDB reads, whatever became of queue and type."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

import skep
from skep.spark.lake.opening import open_lake
from skep.spark.lake.place import place_of
from skep.spark.lake.table import append
from skep.spark.running import typed_table
from skep.spark.running.runner import Ended
from skep.spark.running.typed_table import noted
from skep.spec import App, load
from tests.spark.conftest import Lake
from tests.spark.frames import message
from tests.spark.lake_rows import Given
from tests.spark.test_running import ran
from tests.support.waiting import let_run

ROOT = Path(__file__).parents[2]
SPEC = "app Shop {{ queue orders {{ message_type {{ {} }} {} }} }}"
MESSAGES = int(os.environ.get("SKEP_TYPED_MESSAGES", "1000000"))
KILLS = int(os.environ.get("SKEP_TYPED_KILLS", "10"))
PUSHED_AT_ONCE = 1_000
LONGEST_LIFE = 1.5
RUN_SECONDS = 900.0


def shop(fields: str = "total: float, at: time, lines: list<json>", checks: str = "") -> App:
    return load(SPEC.format(fields, checks), "shop.skep")


def order(total: object) -> dict[str, Any]:
    return {"total": total, "at": "2026-01-31T12:00:00.5Z", "lines": [{"sku": "a"}, 2]}


def files(lake: Lake, table: str) -> str:
    return f"{lake.folder}/lake/{table}/orders/**/*.parquet"


def asked(query: str) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
    """The types of DuckDB's answer, and its rows."""
    answer = duckdb.sql(query)
    assert answer is not None
    return dict(zip(answer.columns, map(str, answer.types), strict=True)), answer.fetchall()


def found(lake: Lake, columns: str, table: str = "typed") -> list[tuple[Any, ...]]:
    """The rows of a table as DuckDB reads them, in order."""
    if not list((lake.folder / "lake" / table).rglob("*.parquet")):
        return []
    return asked(f"select {columns} from read_parquet('{files(lake, table)}') order by generation, seq")[1]


def brought_up(lake: Lake, app: App, **wishes: Any) -> Ended:
    ended = ran(lake, "archive", "typed", app=app, verify=False, **wishes)
    assert ended.run.error is None
    return ended


def test_a_table_grows_by_what_is_new_is_read_by_duckdb_with_real_types_and_is_made_anew_for_a_new_type(
    lake: Lake,
) -> None:
    lake.client.push("orders", [order(1), order(2.5), order("3")])
    run = brought_up(lake, shop()).run
    stage = run.stages[1]
    assert (stage.rows_in, stage.rows_out, stage.rejected, run.status) == (3, 2, 1, "warn")
    assert found(lake, "seq, total") == [(1, 1.0), (2, 2.5)]
    [(seq, payload, error)] = found(lake, "seq, payload, error", "rejects")
    assert (seq, error) == (3, "field 'total' does not fit: expected float, not \"3\"")
    assert '"total":"3"' in payload
    types, _ = asked(f"select * from read_parquet('{files(lake, 'typed')}')")
    assert {name: types[name] for name in ("total", "at", "lines", "created_at", "headers", "seq")} == {
        "total": "DOUBLE", "at": "TIMESTAMP WITH TIME ZONE", "lines": "VARCHAR[]", "created_at": "TIMESTAMP WITH TIME ZONE",
        "headers": "MAP(VARCHAR, VARCHAR)", "seq": "BIGINT",
    }  # fmt: skip

    lake.client.push("orders", [order(4), order("5")])
    stage = brought_up(lake, shop()).run.stages[1]
    assert (stage.rows_in, stage.rows_out, stage.rejected) == (2, 1, 1)
    assert found(lake, "seq, total") == [(1, 1.0), (2, 2.5), (4, 4.0)]
    assert [row[0] for row in found(lake, "seq", "rejects")] == [3, 5]
    written = {file: file.stat().st_mtime_ns for file in (lake.folder / "lake" / "typed").rglob("*.*")}
    assert len(written) == 2, "a small batch was written anew with what came since: a note and a file"
    assert ran(lake, "typed", app=shop()).run.stages[0].rows_in == 0
    assert {file: file.stat().st_mtime_ns for file in (lake.folder / "lake" / "typed").rglob("*.*")} == written

    run = ran(lake, "typed", app=shop("total: json, note: string?")).run
    assert found(lake, "seq, total, note") == [
        (1, "1", None), (2, "2.5", None), (3, '"3"', None), (4, "4", None), (5, '"5"', None),
    ]  # fmt: skip
    assert found(lake, "seq", "rejects") == []
    [table] = [table for table in run.tables if table.title == "Typed tables"]
    assert [tuple(row) for row in table.rows] == [("orders", 5, 0, "made anew: its type has changed")]


@pytest.mark.slow
def test_each_message_is_there_once_in_batches_of_any_size_over_generations_and_days(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_table, "SMALL_SEQS", 3)
    for number in range(1, 6):
        lake.client.push("orders", order(number))
        if number % 2:
            brought_up(lake, shop(), max_rows=2)
    lake.client.delete_queue("orders")
    lake.client.push("orders", [order(10), order("x"), order(12)])
    ran(lake, "archive", verify=False)
    lake.client.push("orders", order(13))
    brought_up(lake, shop(), max_rows=2)
    assert found(lake, "generation, seq, total") == [
        *((1, number, float(number)) for number in range(1, 6)), (2, 1, 10.0), (2, 3, 12.0), (2, 4, 13.0),
    ]  # fmt: skip
    assert found(lake, "generation, seq", "rejects") == [(2, 2)]


@pytest.mark.slow
def test_days_that_fall_and_messages_that_are_gone_are_no_reason_to_miss_one(lake: Lake) -> None:
    """A clock that was years ahead has left its day in the lake; later messages are of earlier days."""
    lake.client.push("orders", order(0))
    times = {1: 0.0, 2: 3e8, 3: 60.0, 4: 120.0, 6: 180.0}
    for batch in ((1, 2), (3, 4, 6)):
        rows = [message("orders", seq, times[seq], payload=f'{{"total": {seq}}}') for seq in batch]
        with open_lake(str(lake.folder / "lake"), lake.tenant) as opened:
            append(lake.spark, opened, [Given(rows)], {"orders": batch[-1]})
        assert ran(lake, "typed", app=shop("total: float"), max_rows=2).run.error is None
    assert found(lake, "seq, total") == [(seq, float(seq)) for seq in times]


def test_without_a_lake_or_a_type_the_run_says_what_is_missing(lake: Lake) -> None:
    lake.client.push("orders", order(0))
    run = ran(lake, "typed", app=shop()).run
    assert (run.error, run.tables[0].rows) == (
        None,
        [("orders", 0, 0, "nothing of it is in the lake yet: run archive first")],
    )
    assert "no applied spec gives a message_type" in (ran(lake, "typed").run.error or "")


@pytest.mark.usefixtures("usual_settings")
def test_a_batch_may_be_all_rejects(lake: Lake) -> None:
    lake.client.push("orders", [order("1"), order("2")])
    stage = brought_up(lake, shop()).run.stages[1]
    assert (stage.rows_in, stage.rows_out, stage.rejected) == (2, 0, 2)
    lake.client.push("orders", [order(3)])
    brought_up(lake, shop())
    assert (found(lake, "seq"), found(lake, "seq", "rejects")) == ([(3,)], [(1,), (2,)])


@pytest.mark.slow
def test_applied_specs_are_taken_where_no_file_is_named(lake: Lake) -> None:
    """The app is of the tenant `default`, so the server is asked as this one."""
    name = f"applied-{lake.tenant}"
    with skep.Client(lake.url) as client:
        client.apply(
            load(
                f'app tables_{lake.tenant.partition("-")[2]} {{ queue "{name}" {{ message_type {{ total: float }} }} }}',
                "t.skep",
            )
        )
        client.push(name, [{"total": 1}, {"total": 2}])
    mine = msgspec.structs.replace(lake, tenant="default")
    assert ran(mine, "archive", "typed", queues=(name,), verify=False).run.error is None
    assert (
        lake.spark.read.parquet(str(lake.folder / "lake" / "typed" / name)).agg(F.sum("total")).collect()[0][0] == 3.0
    )


def started(lake: Lake, spec: Path, log: Path) -> subprocess.Popen[bytes]:
    arguments = [
        "--url", lake.url, "--tenant", lake.tenant, "--queue", "orders", "--lake", str(lake.folder / "lake"), "--spec", str(spec),
        "--master", "local[2]", "--max-rows", str(MESSAGES // (5 * KILLS)),
    ]  # fmt: skip
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "skep", "pipeline", "run", "typed", *arguments], stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True,
        )  # fmt: skip


def progress(lake: Lake) -> list[object]:
    """The notes of the table and of the one that is made anew."""
    tables = place_of(str(lake.folder / "lake"))
    return [noted(tables / "typed" / "orders"), noted(tables / "_skep" / "typed" / "orders" / "typed")]


def killed_amid_writing(lake: Lake, spec: Path, log: Path, chance: random.Random) -> bool:
    """Start a run, and kill it at some time after it has written something; whether it was not done then."""
    process, before = started(lake, spec, log), progress(lake)
    deadline = time.monotonic() + RUN_SECONDS
    while process.poll() is None and progress(lake) == before and time.monotonic() < deadline:
        let_run(0.05)
    let_run(chance.uniform(0, LONGEST_LIFE))
    was_running = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return was_running


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_has_each_message_once_also_while_the_type_changes(
    lake: Lake, tmp_path: Path
) -> None:
    chance, log, spec = random.Random(7), tmp_path / "runs.log", tmp_path / "shop.skep"
    for first in range(0, MESSAGES, PUSHED_AT_ONCE):
        totals = [f"{number}" if number % 100 == 0 else number for number in range(first, first + PUSHED_AT_ONCE)]
        lake.client.push("orders", [{"total": total} for total in totals])
    assert ran(lake, "archive", verify=False).run.error is None
    hits = []
    for fields in ("total: int", "total: float, note: string?"):
        spec.write_text(SPEC.format(fields, ""), encoding="utf-8")
        hits += [killed_amid_writing(lake, spec, log, chance) for _ in range(KILLS // 2)]
    process = started(lake, spec, log)
    assert process.wait(timeout=RUN_SECONDS) == 0, log.read_text(encoding="utf-8")[-3000:]
    assert hits == [True] * len(hits), log.read_text(encoding="utf-8")[-3000:]
    query = "select count(*), count(distinct seq) from read_parquet('{}')"
    rejects = MESSAGES // 100
    assert asked(query.format(files(lake, "typed")))[1] == [(MESSAGES - rejects, MESSAGES - rejects)]
    assert asked(query.format(files(lake, "rejects")))[1] == [(rejects, rejects)]
    both = f"(select seq from read_parquet('{files(lake, 'typed')}') union select seq from read_parquet('{files(lake, 'rejects')}'))"
    assert asked(f"select count(*), min(seq), max(seq) from {both}")[1] == [(MESSAGES, 1, MESSAGES)]
