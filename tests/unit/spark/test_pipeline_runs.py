"""What a run says of itself: summary, report, plots, lineage and the doctor, without Spark."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skep
from skep.cli.pipeline import span
from skep.errors import SkepError
from skep.spark.java import NoJavaError
from skep.spark.lake.place import place_of
from skep.spark.running import doctor, lineage, svg
from skep.spark.running.catalogue import PIPELINES, find
from skep.spark.running.columns import columns_in, columns_of
from skep.spark.running.figures import duration
from skep.spark.running.live import LiveLines
from skep.spark.running.record import Dataset, Plot, ReportTable, Run, Stage, StageCheck
from skep.spark.running.report import report
from skep.spark.running.summary import lines
from skep.spark.running.telling import told

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def example() -> Run:
    run = Run(
        id="0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", name="archive metrics", started_at=START, server="http://127.0.0.1:6632",
        tenant="default", master="local[2]", lake="lake", queues=["orders"],
        stages=[
            Stage(name="archive", status="ok", seconds=2.0, rows_in=10, rows_out=10, lag=0),
            Stage(name="metrics", status="ok", seconds=1.0, rows_in=4, rows_out=3),
        ],
        checks=[
            StageCheck(stage="archive", name="every message is in the lake", held=True, figures="10 of 10"),
            StageCheck(stage="metrics", name="no message was given up on", held=False, figures="1", severity="warn"),
        ],
        tables=[ReportTable(title="<Queues>", columns=["queue", "pushed"], rows=[("<b>", 3), ("b", None)])],
        plots=[
            Plot(title="Pushed", kind="lines", unit="messages/s", series={"a&b": [(0.0, 1.0), (60.0, 3.0)]}),
            Plot(title="Time", kind="bars", unit="s", bars=[("orders wait", 2.5)]),
            Plot(title="Nothing", kind="lines", unit="s"),
        ],
        inputs=[Dataset(namespace="skep://127.0.0.1:6632", name="default/orders", rows=10, stage="archive")],
        outputs=[
            Dataset(namespace="file", name="lake/messages", columns={"seq": "bigint"}, rows=10, stage="archive"),
            Dataset(namespace="file", name="lake/metrics", columns={"queue": "string"}, rows=3, stage="metrics"),
        ],
    )  # fmt: skip
    run.settle(START + timedelta(seconds=3))
    return run


def test_a_summary_has_a_line_per_stage_what_did_not_hold_and_a_sentence() -> None:
    assert lines(example()) == [
        "1 of 2 OK     archive ............ 10 in, 10 out, lag 0 [2.0 s]",
        "2 of 2 WARN   metrics ............ 4 in, 3 out [1.0 s]",
        "WARN   no message was given up on: 1",
        "2 stages: 1 ok, 1 warn; 1 of 2 checks held; 3.0 s",
    ]


def test_a_check_that_failed_fails_the_run_and_so_does_an_error() -> None:
    run = example()
    run.checks.append(StageCheck(stage="archive", name="x", held=False))
    run.settle(START)
    assert (run.status, run.stages[0].status) == ("failed", "failed")
    broken = example()
    broken.error = "no server"
    broken.settle(START)
    assert broken.status == "failed"
    assert "ERROR  no server" in lines(broken)


def test_a_run_is_the_same_after_it_was_written_and_read() -> None:
    run = example()
    assert msgspec.json.decode(msgspec.json.encode(run), type=Run).stages == run.stages


def test_a_report_escapes_what_others_wrote_and_needs_nothing_else() -> None:
    page = report(example())
    assert "&lt;Queues&gt;" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert "a&amp;b" in page
    assert "nothing to plot yet" in page
    assert page.count("<svg") == 2
    assert "<script" not in page


@pytest.mark.parametrize(("most", "last"), [(0, 1.0), (3, 3.0), (9, 10.0), (0.07, 0.08), (1234, 1500.0)])
def test_axes_end_at_a_round_number_just_above(most: float, last: float) -> None:
    assert svg.nice_ticks(most)[-1] == pytest.approx(last)


def test_lineage_has_a_job_per_pipeline_below_the_run_and_the_columns_of_every_table() -> None:
    events = [msgspec.json.decode(line) for line in lineage.events(example()).splitlines()]
    assert [(event["job"]["name"], event["eventType"]) for event in events] == [
        ("pipeline", "START"),
        ("pipeline.archive", "START"), ("pipeline.archive", "COMPLETE"),
        ("pipeline.metrics", "START"), ("pipeline.metrics", "COMPLETE"),
        ("pipeline", "COMPLETE"),
    ]  # fmt: skip
    whole, archived, measured = events[0], events[2], events[4]
    for one in (archived, measured):
        assert one["run"]["facets"]["parent"]["run"]["runId"] == whole["run"]["runId"] == example().id
        assert one["run"]["facets"]["parent"]["job"]["name"] == "pipeline"
        assert UUID(one["run"]["runId"]) not in (UUID(example().id), UUID(int=0))
    assert archived["run"]["runId"] == events[1]["run"]["runId"] != measured["run"]["runId"]
    assert [output["name"] for output in measured["outputs"]] == ["lake/metrics"]
    assert archived["outputs"][0]["facets"]["schema"]["fields"] == [{"name": "seq", "type": "bigint"}]
    assert archived["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10
    assert {event["producer"] for event in events} == {f"pkg:pypi/skep@{skep.__version__}"}


def test_lineage_of_a_run_that_failed_says_why() -> None:
    failed = example()
    failed.error = "no"
    failed.stages[1].status = "failed"
    failed.settle(START)
    events = [msgspec.json.decode(line) for line in lineage.events(failed).splitlines()]
    told = {
        event["job"]["name"]: event["run"]["facets"]["errorMessage"]["message"]
        for event in events
        if event["eventType"] == "FAIL"
    }
    assert told == {"pipeline.metrics": "no", "pipeline": "no"}


def test_every_table_that_is_read_or_written_has_columns(tmp_path: Path) -> None:
    assert list(columns_of("orders"))[:3] == ["queue", "partition", "seq"]
    assert columns_of("leases")["settled_at"] == "timestamp"
    assert columns_in(place_of(str(tmp_path)), "messages")["payload_bytes"] == "binary"
    assert columns_in(place_of(str(tmp_path)), "messages")["headers"] == "map<string,string>"
    (tmp_path / "queue=orders").mkdir()
    pq.write_table(pa.table({"seq": [1]}), tmp_path / "queue=orders" / "one.parquet")
    assert columns_in(place_of(str(tmp_path)), "commands") == {"seq": "bigint", "queue": "string"}


def test_windows_without_events_are_gaps_and_not_lines() -> None:
    series = [(0.0, 1.0), (60.0, 2.0), (600.0, 3.0), (900.0, 1.0), (960.0, 2.0)]
    assert [len(part) for part in svg.unbroken(series, 60.0)] == [2, 1, 2]
    drawn = svg.plot(Plot(title="Pushed", kind="lines", unit="messages/s", series={"orders": series}, step=60.0))
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == 5


def test_times_are_in_units_that_people_read() -> None:
    written = {
        0.0: "0 s",
        0.0004: "0.4 ms",
        0.25: "250 ms",
        90.0: "90.0 s",
        600.0: "10.0 min",
        9_000.0: "2.5 h",
        300_000.0: "3.5 d",
    }
    assert {value: duration(value) for value in written} == written
    run = example()
    run.stages[0].seconds = 9_000.0
    run.plots = [Plot(title="Time", kind="bars", unit="s", bars=[("orders wait", 9_000.0)])]
    page = report(run)
    assert page.count("2.5 h") == 2
    assert "<figcaption></figcaption>" in page
    assert "[2.5 h]" in lines(run)[0]


def test_a_report_of_thousands_of_queues_names_some_of_them() -> None:
    run = example()
    run.queues = [f"q{number:04d}" for number in range(2_000)]
    run.tables = [ReportTable(title="Queues", columns=["queue"], rows=[("q0001",)], note="the 1 of 2,000")]
    page = report(run)
    assert "q0019 and 1,980 more" in page
    assert "the 1 of 2,000" in page


def test_the_server_is_told_rows_rate_lag_and_checks() -> None:
    report = told(example(), {"report": "/r"})
    assert (report.rows_in, report.rows_out, report.rows_per_second, report.status) == (14, 13, 4.7, "warn")
    assert [check.status for check in report.checks] == ["ok", "warn"]
    assert report.finished_at is not None


def test_progress_is_lines_where_there_is_no_terminal() -> None:
    to, times = io.StringIO(), iter([0.0, 1.0, 3.0, 3.5])
    watcher = LiveLines(to, lambda: next(times))
    for rows, status in ((0, "running"), (10, "running"), (20, "running"), (30, "ok")):
        watcher.stage(Stage(name="archive", status=status, rows_in=rows, rows_out=rows))  # type: ignore[arg-type]
    assert to.getvalue().splitlines() == [
        "archive        20 rows in, 20 out, 7 rows/s",
        "archive        30 rows in, 30 out, 9 rows/s",
    ]


def test_pipelines_are_found_by_name() -> None:
    assert find("dead_letters").name == "dead-letters"
    assert all(pipeline.load() for pipeline in PIPELINES)
    with pytest.raises(SkepError, match="there are archive"):
        find("nope")


def test_durations_are_read_as_they_are_typed() -> None:
    assert [span(text) for text in ("500ms", "5s", "1.5m", "2h", "1d")] == [0.5, 5, 90, 7200, 86_400]
    with pytest.raises(SkepError, match="5s"):
        span("5")


def test_the_doctor_says_what_to_do_in_plain_words(tmp_path: Path) -> None:
    lake = str(tmp_path / "not" / "yet")
    found = {one.check: one for one in doctor.examine("http://127.0.0.1:9", "default", None, lake)}
    assert found["python"].state == found["pyspark"].state == found["java"].state == "ok"
    assert (found["server"].state, lake in found["lake"].found) == ("fail", True)
    assert "skep serve" in found["server"].hint


def test_the_doctor_finds_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise NoJavaError("install one")

    monkeypatch.setattr(doctor, "java_home", none)
    [finding] = doctor.java()
    assert (finding.state, finding.hint) == ("fail", "install one")
