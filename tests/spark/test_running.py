"""Pipelines from a real server to tables, reports and back."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

import skep
from skep.cli.app import run as command
from skep.spark.lake.opening import Format, open_lake
from skep.spark.lake.reading import frame_of
from skep.spark.options import ServerConnection
from skep.spark.running import replaying
from skep.spark.running.context import Wishes
from skep.spark.running.record import Run
from skep.spark.running.runner import Ended, RunPlan, run_pipelines
from skep.spec import load
from tests.spark.conftest import Lake
from tests.spark.frames import shop_spec

ORDERS = 12
BAD = 3
SPEC = shop_spec(
    "check Positive { holds: cents > 0\n on_fail: drop }", "check Small { holds: cents < 100000\n on_fail: fail }"
)
SHOP = load(SPEC, "shop.skep")


def ran(
    lake: Lake,
    *names: str,
    queues: tuple[str, ...] = (),
    skip: tuple[str, ...] = (),
    kind: Format | None = None,
    **wishes: Any,
) -> Ended:
    plan = RunPlan(
        names=names, connection=ServerConnection((lake.url,), lake.tenant, None, 20.0), queues=queues, skip=skip,
        lake=str(lake.folder / "lake"), format=kind, master="local[2]", wishes=Wishes(**wishes),
    )  # fmt: skip
    return run_pipelines(plan, spark=lake.spark)


def order(number: int) -> dict[str, Any]:
    return {"number": number, "amount": f"{number},50" if number <= BAD else f"{number}.50"}


def trade(lake: Lake) -> None:
    """Orders go to invoices, but for the bad ones, which are rejected."""
    client = lake.client
    client.push(
        "orders", [skep.NewMessage(order(number), partition=f"p{number % 3}") for number in range(1, ORDERS + 1)]
    )
    done = 0
    while done < ORDERS:
        for message in client.pop("orders", group="billing", batch=5):
            done += 1
            if message.json()["number"] <= BAD:
                client.reject(message, error=f"cannot read the amount {message.json()['amount']!r}")
                continue
            with client.transaction() as tx:
                tx.push("invoices", message.json(), partition=message.partition, trace_id=message.trace_id)
                tx.ack(message)


def test_a_story_goes_all_the_way_to_tables_and_a_report(lake: Lake) -> None:
    trade(lake)
    ended = ran(lake, "archive", "metrics", "dead-letters")
    run = ended.run
    assert run.error is None
    assert [(stage.name, stage.status) for stage in run.stages] == [
        ("archive", "ok"), ("metrics", "ok"), ("dead-letters", "warn"),
    ]  # fmt: skip
    assert run.status == "warn"
    assert not run.failed_checks()
    dead_queue = next(queue for queue in run.queues if queue not in ("orders", "invoices"))
    logged = {"orders": ORDERS, "invoices": ORDERS - BAD, dead_queue: BAD}
    root = lake.folder / "lake"
    counted = lake.spark.read.parquet(str(root / "messages")).groupBy("queue").count().collect()
    assert {row["queue"]: row["count"] for row in counted} == logged

    totals = (
        lake.spark.read.parquet(str(root / "metrics"))
        .groupBy("queue", "group")
        .agg(*[F.sum(name).alias(name) for name in ("pushed", "delivered", "settled", "retried", "dead")])
    )
    [orders] = totals.where(F.col("queue") == "orders").collect()
    assert tuple(orders) == ("orders", "billing", ORDERS, ORDERS, ORDERS - BAD, 0, BAD)

    [group] = lake.spark.read.parquet(str(root / "dead_letters")).collect()
    assert (group["source_queue"], group["letters"], group["pattern"]) == (
        "orders",
        BAD,
        "cannot read the amount <text>",
    )
    assert [(field["field"], field["kind"], field["value"]) for field in group["fields"]] == [
        ("amount", "shape", "9,9")
    ]

    written_down(ended)


def written_down(ended: Ended) -> None:
    """run.json, report and lineage are whole, and the report needs nothing from elsewhere."""
    read = msgspec.json.decode((ended.folder / "run.json").read_bytes(), type=Run)
    assert (read.id, read.status, len(read.stages)) == (ended.run.id, "warn", 3)
    page = ended.report.read_text(encoding="utf-8")
    assert "<svg" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"<script|<link|src=|href=|@import|url\(", page)
    events = [json.loads(line) for line in (ended.folder / "lineage.ndjson").read_text(encoding="utf-8").splitlines()]
    assert [event["eventType"] for event in events] == ["START", *["START", "COMPLETE"] * 3, "COMPLETE"]
    outputs = [output for event in events for output in event["outputs"]]
    assert [Path(output["name"]).name for output in outputs] == ["messages", "metrics", "dead_letters"]
    datasets = [*outputs, *(one for event in events for one in event["inputs"])]
    assert all(one["facets"]["schema"]["fields"] for one in datasets)


def test_the_archive_goes_on_where_it_was_and_a_group_follows_it_and_the_server_knows_of_the_run(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number} for number in range(5)])
    assert ran(lake, "archive", max_rows=2, verify=False).run.stages[0].batches == 3
    lake.client.push("orders", [{"n": number} for number in range(2)])
    run = ran(lake, "archive", group="lake").run
    assert (run.stages[0].rows_in, run.stages[0].rows_out, run.status) == (2, 2, "ok")
    assert [(one.queue, one.lag) for one in lake.client.group("lake").queues] == [("orders", 0)]
    seen = lake.client.pipeline_run(run.id).report
    assert (seen.name, seen.status, seen.rows_out, seen.lag) == ("archive", "ok", 2, {"orders": 0})
    assert seen.links["report"].endswith("report.html")
    assert ran(lake, "archive").run.stages[0].rows_in == 0


def test_delta_takes_the_same(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number} for number in range(5)])
    run = ran(lake, "archive", kind="delta", max_rows=3).run
    assert (run.status, run.error, run.stages[0].rows_out) == ("ok", None, 5)
    assert "a lake of Delta" in (ran(lake, "archive", kind="parquet").run.error or "")
    assert ran(lake, "archive").run.error is None  # the format is known


def test_a_lake_of_parquet_is_not_taken_for_delta(lake: Lake) -> None:
    lake.client.push("orders", {"n": 1})
    ran(lake, "archive", verify=False)
    assert "a lake of Parquet" in (ran(lake, "archive", kind="delta").run.error or "")


def test_the_command_line_runs_a_pipeline_and_fails_when_a_check_does(
    lake: Lake, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake.client.push("Placed", [{"number": 1, "cents": cents} for cents in (5, 100_000)])
    to = ["--url", lake.url, "--tenant", lake.tenant, "--lake", str(tmp_path / "lake"), "--queue", "Placed"]
    assert command(["pipeline", "run", "archive", *to, "-o", "table"]) == 0
    printed = capsys.readouterr()
    assert "1 stage: 1 ok; 1 of 1 checks held" in printed.out
    assert "2 rows in, 2 out" in printed.err
    spec = tmp_path / "shop.skep"
    spec.write_text(SPEC, encoding="utf-8")
    assert command(["pipeline", "run", "quality", *to, "--spec", str(spec)]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "failed"
    assert command(["pipeline", "run", "nope", *to]) == 1
    assert "There is no pipeline 'nope'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_replay_goes_back_in_order_once_and_can_be_tried_first(lake: Lake) -> None:
    lake.client.push("orders", [skep.NewMessage({"n": number}, partition=f"p{number % 2}") for number in range(6)])
    ran(lake, "archive")
    wishes: dict[str, Any] = {
        "where": "message.n >= 2", "mapping": '{"twice": message.n * 2, "from": queue}', "to": "again",
    }  # fmt: skip
    dry = ran(lake, "replay", queues=("orders",), dry_run=True, **wishes).run
    assert (dry.error, dry.stages[0].rows_in, dry.stages[0].rows_out) == (None, 6, 0)
    assert "4 would be pushed" in dry.stages[0].note

    assert ran(lake, "replay", queues=("orders",), rate=2, **wishes).run.stages[0].rows_out == 4
    at = [one.created_at for one in lake.client.messages("again")]
    assert at[1] < at[0] + timedelta(seconds=0.5) <= at[2], "two in a second"
    second = ran(lake, "replay", queues=("orders",), **wishes).run.stages[0]
    assert (second.rows_out, second.note) == (0, "4 were there already")
    found = [(one.partition, bytes(one.payload)) for one in lake.client.messages("again")]
    assert [json.loads(payload) for _, payload in found] == [{"twice": 2 * n, "from": "orders"} for n in range(2, 6)]
    assert [partition for partition, _ in found] == ["p0", "p1", "p0", "p1"]


@pytest.mark.slow
def test_a_replay_in_many_portions_over_queues_keeps_the_order_of_each_partition(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PUSH_ROWS", 7)
    for queue in ("orders", "invoices"):
        lake.client.push(queue, [skep.NewMessage({"n": number}, partition=f"p{number % 3}") for number in range(20)])
    ran(lake, "archive", max_rows=9)
    lake.client.delete_queue("orders")
    lake.client.delete_queue("invoices")
    for queue in ("orders", "invoices"):
        lake.client.configure(queue)
    stage = ran(lake, "replay", queues=("orders", "invoices")).run.stages[0]
    assert (stage.rows_out, stage.note, stage.batches >= 6) == (40, "", True)
    for queue in ("orders", "invoices"):
        found = [(one.partition, json.loads(bytes(one.payload))["n"]) for one in lake.client.messages(queue)]
        for partition in ("p0", "p1", "p2"):
            assert [number for key, number in found if key == partition] == list(range(int(partition[1]), 20, 3))
    assert not list((lake.folder / "lake" / "_skep").glob("replay-*"))


def test_rows_that_an_expression_has_no_value_for_are_counted_and_left_out(lake: Lake) -> None:
    lake.client.push("orders", [{"n": 1}, {"other": 1}])
    ran(lake, "archive")
    run = ran(lake, "replay", queues=("orders",), mapping="message.n + 1", to="again").run
    assert (run.status, run.stages[0].rejected, run.stages[0].rows_out) == ("warn", 1, 1)


@pytest.mark.parametrize("where", [None, pytest.param("message != null", marks=pytest.mark.slow)])
def test_a_payload_that_is_no_json_is_not_replayed_and_never_becomes_another_message(
    lake: Lake, where: str | None
) -> None:
    sly = b'1},{"queue":"elsewhere","payload":2'
    texts = [skep.NewMessage(sly, content_type="text/plain"), skep.NewMessage(b"\xff\x00", content_type="image/png")]
    lake.client.push("orders", [{"n": 1}, *texts, {"n": 2}])
    ran(lake, "archive", verify=False)
    run = ran(lake, "replay", queues=("orders",), to="again", where=where).run
    assert (run.error, run.status, run.stages[0].rejected, run.stages[0].rows_out) == (None, "warn", 2, 2)
    assert [json.loads(bytes(one.payload)) for one in lake.client.messages("again")] == [{"n": 1}, {"n": 2}]
    assert "elsewhere" not in [queue.name for queue in lake.client.queues()]


@pytest.mark.slow
def test_large_payloads_are_replayed_in_portions_that_the_server_takes(lake: Lake) -> None:
    large = "x" * 3_000_000
    for number in range(4):
        lake.client.push("orders", {"n": number, "text": large})
    ran(lake, "archive")
    assert ran(lake, "replay", queues=("orders",), to="again").run.stages[0].rows_out == 4
    found = []
    while messages := lake.client.pop("again"):
        found += [message.json()["n"] for message in messages]
        lake.client.ack(*messages)
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("names", "wishes", "told"),
    [
        (("archive",), {"queues": ("nope",)}, "nope"),
        (("replay",), {}, "there is no lake"),
        (("replay",), {"where": "message.n >"}, ""),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    lake: Lake, names: tuple[str, ...], wishes: dict[str, Any], told: str
) -> None:
    lake.client.push("orders", {"n": 1})
    run = ran(lake, *names, **wishes).run
    assert run.status == "failed"
    assert told in (run.error or "")
    assert "\n" not in (run.error or "")


def test_commands_of_a_spec_go_to_a_table_and_a_queue_and_rejects_to_the_dead_letters(lake: Lake) -> None:
    lake.client.push("Placed", [{"number": number, "cents": 100 * number} for number in range(1, 5)])
    lake.client.push("Placed", {"number": 5, "cents": "many"}, partition="p")
    run = ran(lake, "commands", queues=("Placed",), app=SHOP, to="Orders", max_rows=3).run
    stage = run.stages[0]
    assert (run.error, stage.rows_in, stage.rows_out, stage.rejected, stage.batches) == (None, 5, 4, 1, 2)
    table = lake.spark.read.parquet(str(lake.folder / "lake" / "commands"))
    assert [json.loads(row["input"]) for row in table.orderBy("seq").collect()] == [
        {"id": str(number), "euros": number} for number in range(1, 5)
    ]
    assert [json.loads(bytes(one.payload)) for one in lake.client.messages("Orders")] == [
        {"id": str(number), "euros": number} for number in range(1, 5)
    ]
    [letter] = lake.client.dead_letters("Placed")
    assert (letter.source_queue, letter.source_seq, letter.partition, letter.reason) == ("Placed", 5, "p", "invalid")
    assert (letter.error or "").startswith("MESSAGE_INVALID: ")
    assert "field cents, " in (letter.error or "")
    assert 'value "many"' in (letter.error or "")
    assert json.loads(bytes(letter.payload)) == {"number": 5, "cents": "many"}

    lake.client.push("Placed", {"number": 9, "cents": 900})
    assert lake.client.replay("Placed").count == 1
    again = ran(lake, "commands", queues=("Placed",), app=SHOP, to="Orders").run.stages[0]
    assert (again.rows_in, again.rows_out, again.rejected, again.note) == (2, 1, 1, "")
    assert sum(1 for _ in lake.client.messages("Orders")) == 5
    assert [one.source_seq for one in lake.client.dead_letters("Placed")] == [7]


@pytest.mark.slow
def test_a_batch_of_commands_that_is_done_again_buries_its_rejects_once(lake: Lake) -> None:
    lake.client.push("Placed", [{"number": number, "cents": "many"} for number in range(3)])
    ran(lake, "commands", queues=("Placed",), app=SHOP)
    [commits] = (lake.folder / "lake" / "_skep" / "checkpoints").glob("commands-Placed/offsets/commits")
    for file in commits.iterdir():  # as if it had been killed when all was written and nothing noted
        file.unlink()
    stage = ran(lake, "commands", queues=("Placed",), app=SHOP).run.stages[0]
    assert (stage.rows_in, stage.rejected) == (3, 3)
    assert [one.source_seq for one in lake.client.dead_letters("Placed")] == [1, 2, 3]


@pytest.mark.slow
def test_a_spec_that_changed_before_a_batch_is_done_again_is_told_with_the_cure(lake: Lake) -> None:
    lake.client.push("Placed", [{"number": number, "cents": number} for number in range(3)])
    assert ran(lake, "commands", queues=("Placed",), app=SHOP, to="Orders").run.error is None
    [commits] = (lake.folder / "lake" / "_skep" / "checkpoints").glob("commands-Placed/offsets/commits")
    for file in commits.iterdir():
        file.unlink()
    stricter = load(SPEC.replace("cents / 100", "100 / cents"), "shop.skep")
    error = ran(lake, "commands", queues=("Placed",), app=stricter, to="Orders").run.error or ""
    assert "the next batch of Placed was pushed before" in error
    assert "--checkpoint" in error
    assert ran(lake, "commands", queues=("Placed",), app=SHOP, to="Orders").run.error is None


def test_checks_of_a_spec_are_counted_and_what_is_to_be_dropped_is_quarantined(lake: Lake) -> None:
    lake.client.push("Placed", [{"number": 1, "cents": cents} for cents in (5, -5, 100_000)])
    run = ran(lake, "quality", queues=("Placed",), app=SHOP).run
    assert {check.name: (check.held, check.severity) for check in run.checks} == {
        "Placed.Positive": (False, "warn"), "Placed.Small": (False, "fail"),
    }  # fmt: skip
    assert (run.status, run.error, run.stages[0].rejected) == ("failed", None, 1)
    [row] = lake.spark.read.parquet(str(lake.folder / "lake" / "quarantine" / "queue=Placed")).collect()
    assert json.loads(row["payload"])["cents"] == -5


def test_a_spec_has_to_be_named_and_to_fit(lake: Lake) -> None:
    lake.client.push("orders", {"n": 1})
    assert "--spec" in (ran(lake, "commands").run.error or "")
    assert "map_to" in (ran(lake, "commands", app=SHOP).run.error or "")


def test_messages_that_were_deleted_from_the_log_before_and_after_their_archive_are_no_fault(lake: Lake) -> None:
    lake.client.push("orders", [{"n": number} for number in range(1, 6)])
    lake.client.delete_message("orders", 2)
    first = ran(lake, "archive").run
    assert (first.error, first.status, first.stages[0].rows_out) == (None, "ok", 4)
    lake.client.delete_message("orders", 4)
    lake.client.push("orders", {"n": 6})

    audited = ran(lake, "archive", audit=True).run

    assert (audited.error, audited.status, audited.stages[0].rows_out) == (None, "ok", 1)
    with open_lake(str(lake.folder / "lake"), lake.tenant, "parquet") as opened:
        rows = frame_of(lake.spark, opened.files()).select("seq").collect()
    assert sorted(row["seq"] for row in rows) == [1, 3, 4, 5, 6]
