"""Messages that retention took from the log are shown, listed and pushed again by commands, from the lake and without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skep
from skep.errors import SkepError
from skep.spark.lake import pushing_again
from skep.spark.lake.old_messages import OldMessages, Wanted
from skep.spark.lake.opening import Format
from skep.spark.lake.pushing_again import PushingAgain, ReplayWish
from skep.spark.options import LakeOptions, ServerConnection
from skep.testing.server import RunningServer
from tests.cli.command import Command, Ended
from tests.spark.conftest import TENANTS
from tests.spark.test_lake import USUAL_FIRST
from tests.spark.test_united import QUEUE, Both

NO_SPARK = (
    "import sys; sys.modules['pyspark'] = None; sys.argv[0] = 'skep'; from skep.cli import main; sys.exit(main())"
)
TRACE = "0199a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b"


@pytest.fixture(params=USUAL_FIRST)
def both(request: pytest.FixtureRequest, spark_server: RunningServer, tmp_path: Path) -> Iterator[Both]:
    yield from filled(spark_server.url, tmp_path / "lake", request.param)


@pytest.fixture
def plain(spark_server: RunningServer, tmp_path: Path) -> Iterator[Both]:
    yield from filled(spark_server.url, tmp_path / "lake", "parquet")


def filled(url: str, root: Path, kind: Format) -> Iterator[Both]:
    """A queue whose messages 1 to 4 are only in the lake, 5 and 6 in both, 7 only in the log."""
    tenant = next(TENANTS)
    with skep.Client(url, tenant=tenant) as client:
        made = Both(client, url, tenant, root, kind)
        made.push(1, 4)
        made.archive(4)
        client.clear(QUEUE)
        made.push(5, 6)
        made.archive(6)
        made.push(7, 7)
        yield made


def run(both: Both, *arguments: str, **environ: str) -> Ended:
    """A command whose lake the environment names."""
    return Command(both.url, both.tenant)(*arguments, **{"SKEP_LAKE": str(both.root), **environ})


def listed(both: Both, *options: str) -> list[int]:
    return [
        json.loads(one["payload"]) if isinstance(one["payload"], str) else one["payload"]["n"]
        for one in run(both, "message", "list", QUEUE, *options).json()
    ]


@pytest.mark.slow
def test_a_message_of_the_lake_is_shown_by_its_seq_or_transaction_id(both: Both) -> None:
    found = run(both, "message", "show", QUEUE, "3").json()
    assert (found["seq"], found["partition"], found["payload"], found["attempts"]) == (3, "p1", {"n": 3}, [])
    assert run(both, "message", "show", QUEUE, "7").json()["payload"] == {"n": 7}
    missing = run(both, "message", "show", QUEUE, "99")
    assert (missing.code, "The lake has its seqs 1 to 4" in missing.err) == (4, True)
    unnamed = run(both, "message", "show", QUEUE, "3", SKEP_LAKE="")
    assert (unnamed.code, "name a lake that has it: --lake" in unnamed.err) == (4, True)


@pytest.mark.slow
def test_lists_go_from_the_lake_to_the_log_and_back(both: Both) -> None:
    assert listed(both) == [1, 2, 3, 4, 5, 6, 7]
    assert listed(both, "--newest-first", "--limit", "5") == [7, 6, 5, 4, 3]
    assert listed(both, "--partition", "p0") == [2, 4, 6]
    assert listed(both, "--limit", "2") == [1, 2]


def test_old_messages_come_again_once_for_one_group_alone(both: Both) -> None:
    both.client.seek(QUEUE, "billing", "end")
    both.client.seek(QUEUE, "others", "end")
    told = run(both, "message", "replay", QUEUE, "2-5", "--group", "billing", "--yes").json()
    assert (told["found"], told["inLake"], told["pushed"]) == (4, 3, 4)
    again = run(both, "message", "replay", QUEUE, "2-5", "--group", "billing", "--yes").json()
    assert (again["found"], again["pushed"]) == (4, 0)

    messages = both.client.pop(QUEUE, group="billing", batch=99)
    assert sorted(message.json()["n"] for message in messages) == [2, 3, 4, 5]
    assert both.client.pop(QUEUE, group="others", batch=99) == []


@pytest.mark.slow
def test_to_all_groups_they_come_as_new_messages_with_their_origin(plain: Both) -> None:
    """The transaction id is that of a replay by the pipeline, so the two never push a message twice."""
    told = run(plain, "message", "replay", QUEUE, "2", "4-5", "--yes").json()
    assert (told["pushed"], told["consumerGroup"]) == (3, None)
    [*_, second, fourth, fifth] = plain.client.messages(QUEUE)
    assert [one.transaction_id for one in (second, fourth, fifth)] == [f"replay/orders/{n}" for n in (2, 4, 5)]
    assert [(one.partition, one.json()) for one in (second, fourth)] == [("p0", {"n": 2}), ("p0", {"n": 4})]
    overlap = run(plain, "message", "replay", QUEUE, "4", "--yes").json()
    assert (overlap["found"], overlap["pushed"]) == (1, 0)
    elsewhere = run(plain, "message", "replay", QUEUE, "4", "--to", "again", "--label", "b", "--yes").json()
    assert elsewhere["pushed"] == 1
    assert [one.transaction_id for one in plain.client.messages("again")] == ["b/orders/4"]


@pytest.mark.slow
def test_a_replay_says_what_it_would_do_and_what_is_wrong(plain: Both) -> None:
    told = run(plain, "message", "replay", QUEUE, "1-7", "--dry-run").json()
    assert (told["found"], told["inLake"], told["firstSeq"], told["lastSeq"]) == (7, 4, 1, 7)
    assert plain.client.log_bounds(QUEUE).last_seq == 7
    for arguments, told in (
        ((), "say which messages"),
        (("2",), "say --yes or --dry-run"),
        (("2", "--group", "nobody", "--yes"), "no group 'nobody'"),
        (("2", "--group", "a", "--to", "b", "--yes"), "all groups of the other queue"),
        (("9-2", "--yes"), "ends before it begins"),
    ):
        ended = run(plain, "message", "replay", QUEUE, *arguments)
        assert ended.code != 0
        assert told.lower() in ended.err.lower()
    assert run(plain, "message", "replay", QUEUE, "99", "--yes").code == 4


@pytest.mark.slow
def test_payloads_that_are_no_json_need_a_content_type(plain: Both) -> None:
    plain.client.push(QUEUE, skep.NewMessage(b"\xff\x00", content_type="image/png"))
    plain.archive(8)
    plain.client.clear(QUEUE)
    shown = run(plain, "message", "show", QUEUE, "8").json()
    assert (shown["contentType"], shown["payload"], shown["payloadBytes"]) == ("application/octet-stream", "/wA=", 2)
    refused = run(plain, "message", "replay", QUEUE, "8", "--yes")
    assert (refused.code, "--content-type" in refused.err) == (1, True)
    assert run(plain, "message", "replay", QUEUE, "8", "--content-type", "image/png", "--yes").json()["pushed"] == 1
    [message] = plain.client.messages(QUEUE)
    assert (message.content(), message.content_type) == (b"\xff\x00", "image/png")


@pytest.mark.slow
def test_a_tail_begins_in_the_lake(both: Both) -> None:
    assert [one["payload"]["n"] for one in run(both, "tail", QUEUE, "--from", "beginning", "--no-follow", "-o", "ndjson").lines()] == [
        1, 2, 3, 4, 5, 6, 7,
    ]  # fmt: skip
    assert [one["seq"] for one in run(both, "tail", QUEUE, "--from", "3", "--no-follow", "-o", "ndjson").lines()] == [
        3, 4, 5, 6, 7,
    ]  # fmt: skip
    ago = run(both, "tail", QUEUE, "--from", "1h", "--no-follow", "-o", "ndjson").lines()
    assert [one["seq"] for one in ago] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.slow
def test_a_seek_before_the_log_says_what_the_lake_has(both: Both) -> None:
    moved = run(both, "group", "seek", QUEUE, "billing", "2", "--yes")
    assert (moved.code, json.loads(moved.out)["toSeq"]) == (0, 4)
    assert "skep message replay orders 2-4 --group billing" in moved.err
    for place in ("beginning", "1h"):
        assert "replay orders 1-4 --group" in run(both, "group", "seek", QUEUE, "billing", place, "--yes").err
    assert "replay" not in run(both, "group", "seek", QUEUE, "billing", "6", "--yes").err
    unnamed = run(both, "group", "seek", QUEUE, "billing", "2", "--yes", SKEP_LAKE="")
    assert "begins at seq 5" in unnamed.err


@pytest.mark.slow
def test_a_trace_goes_back_into_the_lake(plain: Both) -> None:
    plain.client.push(QUEUE, {"n": 8}, trace_id=TRACE)
    plain.archive(8)
    plain.client.clear(QUEUE)
    plain.client.push("shipped", {"n": 9}, trace_id=TRACE)
    found = run(plain, "trace", TRACE).json()
    assert [(one["queue"], one["payload"]["n"]) for one in found] == [(QUEUE, 8), ("shipped", 9)]
    assert listed(plain, "--trace-id", TRACE.upper()) == [8]
    assert "no id" in run(plain, "message", "list", QUEUE, "--trace-id", "no id").err
    missing = run(plain, "message", "replay", "nowhere", "1", "--yes")
    assert (missing.code, "QUEUE_NOT_FOUND" in missing.err) == (4, True)


@pytest.mark.slow
def test_what_was_forgotten_is_not_shown_nor_replayed_before_the_lake_obeys(both: Both) -> None:
    both.client.forget(QUEUE, [3])
    assert listed(both) == [1, 2, 4, 5, 6, 7]
    assert run(both, "message", "show", QUEUE, "3").code == 4
    assert run(both, "message", "replay", QUEUE, "2-4", "--dry-run").json()["found"] == 2
    assert both.read() == [1, 2, 4, 5, 6, 7]


@pytest.mark.slow
def test_what_is_wrong_with_a_lake_is_told(plain: Both, tmp_path: Path) -> None:
    for uri, told in (
        (str(tmp_path / "none"), "no lake in"),
        ("https://example.com/lake", "is neither"),
    ):
        ended = run(plain, "message", "show", QUEUE, "3", SKEP_LAKE=uri)
        assert (ended.code, told in ended.err) == (1, True), ended
        assert run(plain, "message", "show", QUEUE, "7", SKEP_LAKE=uri).code == 0  # the log has it
    other = Command(plain.url, f"{plain.tenant}-2")
    other("push", QUEUE, "1")
    refused = other("message", "list", QUEUE, "--lake", str(plain.root))
    assert (refused.code, f"is the lake of tenant '{plain.tenant}'" in refused.err) == (1, True)
    [file, *_] = sorted(plain.root.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    damaged = run(plain, "message", "list", QUEUE)
    assert (damaged.code, "cannot be read, or is damaged" in damaged.err, file.name in damaged.err) == (1, True, True)


@pytest.mark.slow
def test_a_queue_made_anew_has_none_of_the_messages_before(plain: Both) -> None:
    plain.client.delete_queue(QUEUE)
    plain.push(11, 12)
    assert listed(plain) == [11, 12]
    assert run(plain, "message", "show", QUEUE, "3").code == 4
    plain.archive(2)
    plain.client.clear(QUEUE)
    plain.push(13, 13)
    assert listed(plain) == [11, 12, 13]
    told = run(plain, "message", "replay", QUEUE, "1", "--yes").json()
    assert (told["inLake"], told["pushed"]) == (1, 1)
    [*_, again] = plain.client.messages(QUEUE)
    assert (again.transaction_id, again.json()) == ("replay/orders/generation 2/1", {"n": 11})


@pytest.mark.slow
def test_a_gap_between_lake_and_log_is_told(plain: Both) -> None:
    plain.push(8, 9)
    plain.client.clear(QUEUE)
    plain.push(10, 10)
    found = run(plain, "message", "list", QUEUE)
    assert [one["seq"] for one in found.json()] == [1, 2, 3, 4, 5, 6, 10]
    assert "begins at seq 10, and its seqs 7 to 9 are not in the lake" in found.err


@pytest.mark.slow
def test_no_spark_is_needed(plain: Both) -> None:
    """Not even its package: it is a gigabyte, and these commands are for anybody's laptop."""
    environ = {**Command(plain.url, plain.tenant).environ, "SKEP_LAKE": str(plain.root)}
    for arguments in (("message", "show", QUEUE, "3"), ("message", "replay", QUEUE, "3", "--yes"), ("trace", TRACE)):
        ended = subprocess.run(
            [sys.executable, "-c", NO_SPARK, *arguments], env=environ, capture_output=True, text=True, check=False
        )
        assert ended.returncode == (4 if arguments[0] == "trace" else 0), ended.stderr


def test_a_replay_of_messages_that_are_removed_meanwhile_pushes_none(plain: Both) -> None:
    connection = ServerConnection((plain.url,), plain.tenant, None, retry_seconds=5.0)
    again = PushingAgain(connection, ReplayWish(queue=QUEUE), None)
    wanted = [Wanted()]
    found = again.found(wanted)
    assert list(found.seqs) == [5, 6, 7]
    plain.client.forget(QUEUE, [6])
    with pytest.raises(SkepError, match="were removed while they were read"):
        again.push(wanted, found)
    assert plain.client.log_bounds(QUEUE).last_seq == 7


def test_a_replay_comes_in_portions_and_goes_on_where_it_was_interrupted(
    plain: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing_again, "EPOCH_ROWS", 2)
    monkeypatch.setattr(pushing_again, "STAGE_ROWS", 1)
    connection = ServerConnection((plain.url,), plain.tenant, None, retry_seconds=5.0)
    lake = LakeOptions(str(plain.root), None)
    plain.client.seek(QUEUE, "billing", "end")

    def made() -> PushingAgain:
        old = OldMessages(lake, connection, QUEUE)
        return PushingAgain(connection, ReplayWish(queue=QUEUE, group="billing"), old)

    wanted = [Wanted(last=7)]
    first = made()
    found = first.found(wanted)
    # The first portion is pushed, then the caller is killed.
    first._push_epoch(first._name(found), 0, first._pushed(wanted), list(found.seqs[:2]))
    assert made().push(wanted, found) == 5
    again = [one.json()["n"] for one in plain.client.pop(QUEUE, group="billing", batch=99)]
    assert (sorted(again), again.index(1) < again.index(3) < again.index(5)) == ([1, 2, 3, 4, 5, 6, 7], True)
