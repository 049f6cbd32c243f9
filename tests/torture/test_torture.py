"""`./skep torture` as people run it: a server, a load, faults, and a verdict per promise."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.errors import Code, SkepError
from tests.mutants.tables import TABLES
from torture.app import MOST_BULK, chosen_faults
from torture.app import torture as torture_command
from torture.faults import MENU, OF_SEVERAL_PROCESSES, OF_SPARK
from torture.history import Violation
from torture.layers import CURE, can_compile
from torture.machine import commit
from torture.queues import Queues
from torture.report import result_of, verdict
from torture.result import Machine, Result
from torture.round import Outcome, Plan, in_turn
from torture.run import PROMISES, TRIES, Order, Totals, command, replay_command
from torture.steps import NEEDS, STEPS

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 600


def torture(*arguments: str, source: Path = ROOT / "src") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(source)])
    return subprocess.run(
        [sys.executable, "-P", "-m", "torture", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def tortured(*arguments: str) -> dict[str, Any]:
    """What a run that keeps all promises reports."""
    return report_of(torture("--json", *arguments))


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert msgspec.json.decode(done.stdout, type=Result).text() == done.stdout
    assert report["violations"] == []
    assert report["again"] is None
    return report


def test_a_round_with_a_killed_server_keeps_all_promises() -> None:
    report = tortured(
        "--seed", "1", "--faults", "kill", "--injections", "1", "--rounds", "1", "--clients", "4", "--steps", "15"
    )

    assert report["faults"] == {"kill": 1}
    assert report["pushed"] == report["longest_history"] > 0
    assert (report["commit"], report["is_modified"]) == commit()
    assert report["machine"]["cores"] == os.cpu_count()
    assert report["machine"]["postgres"] is None
    for weight in report["memory_mib"].values():
        assert 0 < weight["first"] == weight["middle"] == weight["last"] <= weight["largest"]  # of one round
    assert {name: promise["verdict"] for name, promise in report["promises"].items() if promise["tried"]} == {
        name: "kept" for name in PROMISES if report["promises"][name]["tried"]
    }
    assert {"I1", "I2", "I4", "I5", "I7", "I8", "I12"} <= {n for n in PROMISES if report["promises"][n]["tried"]}


@pytest.mark.slow  # its faults each by itself are, too; by default outages of PostgreSQL are those of tests/fault
def test_a_postgres_that_takes_no_writes_and_ends_sessions_keeps_all_promises() -> None:
    report = tortured(
        "--seed", "5314", "--store", "postgres", "--faults", "listen,read-only", "--injections", "2", "--rounds", "1",
        "--clients", "3", "--steps", "8",
    )  # fmt: skip

    assert report["faults"] == {"listen": 1, "read-only": 1}
    assert report["promises"]["I1"]["verdict"] == "kept"


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(), reason=CURE)
def test_a_round_with_clocks_that_jump_and_a_blocked_loop_keeps_all_promises() -> None:
    report = tortured(
        "--seed", "11", "--faults", "clock,suspend,block,memory", "--injections", "4", "--rounds", "1", "--clients", "4",
        "--steps", "12",
    )  # fmt: skip

    assert report["faults"] == {"clock": 1, "suspend": 1, "block": 1, "memory": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "fault"), [(store, f.name) for f in MENU.values() if f.name not in OF_SPARK for store in f.stores]
)
def test_every_fault_keeps_all_promises(store: str, fault: str) -> None:
    if MENU[fault].layers and not can_compile():
        pytest.skip(CURE)
    report = tortured("--seed", "2", "--store", store, "--faults", fault, "--rounds", "2")

    assert report["faults"][fault] == 6
    assert set(report["steps"]) >= {name for name, (weight, _) in STEPS.items() if weight >= 3 and name not in NEEDS}


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(("fault", "victim"), [("driver", "the driver"), ("executor", "an executor")])
def test_a_spark_job_with_a_fault_copies_everything_once_and_in_order(store: str, fault: str, victim: str) -> None:
    done = torture(
        "--json", "--seed", "8", "--store", store, "--faults", fault, "--rounds", "1", "--injections", "2", "--steps", "20"
    )  # fmt: skip
    report = report_of(done)

    assert report["faults"] == {fault: 2}
    assert f"killed {victim}" in done.stderr
    assert f"stopped {victim}" in done.stderr
    assert report["steps"]["push_for_spark"] > 0
    assert {report["promises"][promise]["verdict"] for promise in ("I1", "I2", "I3", "I4")} == {"kept"}


@pytest.mark.slow
def test_two_servers_of_which_one_fails_keep_all_promises() -> None:
    report = tortured(
        "--seed", "4", "--store", "postgres", "--servers", "2", "--workers", "2", "--faults", "kill,stop,cut,process",
        "--rounds", "2",
    )  # fmt: skip

    assert sum(report["faults"].values()) == 6


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_all_faults_together_keep_all_promises(store: str) -> None:
    report = tortured("--seed", "3", "--store", store, "--faults", "all", "--rounds", "3", "--injections", "5")

    assert sum(report["faults"].values()) == 15


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_long_history_with_large_batches_keeps_all_promises(store: str) -> None:
    report = tortured("--seed", "4", "--store", store, "--faults", "kill", "--rounds", "1", "--bulk", "20")

    assert report["longest_history"] > 5_000
    assert "--bulk 20" in report["command"]


def test_large_batches_find_room_in_the_queue_that_is_full_soon() -> None:
    usual, large = (Queues.of_round(0, bulk).of_kind for bulk in (1, 20))

    assert [large[kind].settings.max_depth for kind in ("full", "keyed")] == [20 * usual["full"].settings.max_depth, 0]


@pytest.mark.parametrize("bulk", [0, MOST_BULK + 1])
def test_batches_that_the_server_would_refuse_are_refused_at_once(bulk: int) -> None:
    with pytest.raises(SkepError, match="choose from 1 to 100") as refused:
        torture_command(bulk=bulk)

    assert refused.value.code is Code.INVALID_REQUEST


def source_with(name: str, folder: Path) -> Path:
    """A copy of the code with this fault in it."""
    [mutant] = [one for table in TABLES.values() for one in table if one.name == name]
    copy = shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    changed = copy / "skep" / mutant.file
    changed.write_text(mutant.apply(changed.read_text(encoding="utf-8")), encoding="utf-8")
    return copy


def check_found_out(name: str, promise: str, folder: Path) -> None:
    """A server of the code with a fault in it is found out, by the promise that the fault breaks."""
    copy = source_with(name, folder)

    done = torture("--json", "--no-shrink", "--seed", "1", "--rounds", "2", source=copy)

    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["promises"][promise]["verdict"] == "broken"
    assert all(violation["witness"] for violation in report["violations"])
    assert "--seed 1" in report["again"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("webhooks: a repeat is stored again", "I3"),
        ("webhooks: the signature is not verified", "I2"),
        ("worker: after a failed message its lease goes on", "I4"),
        ("commands: a command leaves no receipt", "I15"),
        ("settle: any token settles a lease", "I6"),
        ("settle: the completed count of a whole lease is lost", "I9"),
        ("SQLite seek: leases stay", "I6"),
        ("SQLite unordered: the next attempt of a nacked message is not counted", "I10"),
        ("SQLite push: a push overtakes operations", "I13"),
        ("SQLite operations: an operation is performed twice", "I13"),
    ],
)
def test_a_server_with_a_fault_in_its_code_is_found_out(name: str, promise: str, tmp_path: Path) -> None:
    check_found_out(name, promise, tmp_path)


@pytest.mark.slow
def test_a_plan_that_fails_is_made_smaller_and_fails_again_from_its_seed(tmp_path: Path) -> None:
    copy = source_with("push: the seqs of an answer are one too high", tmp_path)
    size = {"--clients": "4", "--steps": "16"}

    done = torture("--json", "--seed", "1", "--rounds", "1", *chain.from_iterable(size.items()), source=copy)

    again = shlex.split(json.loads(done.stdout)["again"])
    smaller = dict(zip(again[2::2], again[3::2], strict=True))
    assert (smaller["--seed"], smaller["--first-round"]) == ("1", "0")
    assert int(smaller["--clients"]) * int(smaller["--steps"]) < 4 * 16
    # The plan does not say how its calls interleave.
    assert 1 in (torture("--no-shrink", *again[2:], source=copy).returncode for _ in range(TRIES))


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(), reason="layers need Linux and a C compiler")
@pytest.mark.parametrize(
    ("store", "file", "synced", "not_synced"),
    [
        ("sqlite", "store/sqlite/connection.py", '"synchronous", "FULL"', '"synchronous", "NORMAL"'),
        ("postgres", "testing/postgres.py", '"fsync": "on"', '"fsync": "off"'),
    ],
)
def test_I1_one_power_cut_finds_out_a_store_that_does_not_sync(
    store: str, file: str, synced: str, not_synced: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    changed = copy / "skep" / file
    text = changed.read_text(encoding="utf-8")
    assert text.count(synced) == 1
    changed.write_text(text.replace(synced, not_synced), encoding="utf-8")
    one = ("--seed", "1", "--store", store, "--faults", "power", "--rounds", "1", "--injections", "1")

    done = torture("--json", "--no-shrink", *one, source=copy)

    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["promises"]["I1"]["verdict"] == "broken"


def test_the_menu_is_shown() -> None:
    done = torture("--list")

    assert done.returncode == 0
    assert all(name in done.stdout for name in MENU)


def test_every_fault_is_documented_as_it_describes_itself() -> None:
    text = (ROOT / "docs" / "torture.md").read_text(encoding="utf-8")

    assert [
        name
        for name, fault in MENU.items()
        if f"| `{name}` | {'both' if len(fault.stores) == 2 else 'PostgreSQL'} |" not in text
    ] == []


def test_an_unknown_fault_is_refused_with_the_choice() -> None:
    with pytest.raises(SkepError) as refused:
        chosen_faults("kill,flood", "sqlite")

    assert refused.value.code is Code.INVALID_REQUEST
    assert "kill, restart, stop, cut" in refused.value.message
    fitting = tuple(name for name, fault in MENU.items() if "sqlite" in fault.stores)
    assert chosen_faults("all", "sqlite", has_workers=True, has_spark=True) == fitting
    usual = tuple(name for name in fitting if name not in OF_SEVERAL_PROCESSES | OF_SPARK)
    assert chosen_faults("all", "sqlite") == usual


@pytest.mark.parametrize("options", [{"faults": "promote-async", "spark": True}, {"faults": "driver,promote-async"}])
def test_spark_is_refused_where_commits_are_lost(options: dict[str, Any]) -> None:
    with pytest.raises(SkepError, match="Spark does not go with the fault promote-async") as refused:
        torture_command(store="postgres", **options)

    assert refused.value.code is Code.INVALID_REQUEST


def test_several_servers_on_sqlite_are_refused() -> None:
    done = torture("--servers", "2", "--rounds", "1")

    assert done.returncode != 0
    assert "Several servers need a PostgreSQL: add --store postgres" in done.stderr


def test_a_broken_promise_is_reported_with_the_command_that_runs_it_again() -> None:
    plan = Plan(seed=7, number=4, clients=3, steps=10, faults=("kill",), injections=2, bulk=5)
    totals = Totals(Order(7, faults=("kill",)), machine=Machine(2, 2048, "Linux", "3.11.7", "3.50.0"))
    totals.add(Outcome(Plan(7, 3), tried={"I1": 5}))  # type: ignore[arg-type] # any mapping will do
    totals.add(Outcome(plan, violations=[Violation("I1", "lost")]))

    report = msgspec.to_builtins(result_of(totals))

    assert [verdict(totals, promise) for promise in ("I1", "I2")] == ["BROKEN, 1 times", "not tried"]
    assert report["promises"]["I1"] == {"verdict": "broken", "tried": 5, "violations": 1}
    assert report["again"] == replay_command(totals.order, plan)
    assert (
        "--seed 7 --faults kill --injections 2 --first-round 4 --rounds 1 --clients 3 --steps 10 --bulk 5"
        in report["again"]
    )


def test_each_fault_comes_once_before_any_comes_again() -> None:
    names = ("kill", "cut", "stall")

    drawn = list(islice(in_turn(names, random.Random(1)), 9))

    assert [sorted(drawn[start : start + 3]) for start in (0, 3, 6)] == [sorted(names)] * 3
    assert len({tuple(drawn[start : start + 3]) for start in (0, 3, 6)}) > 1
    assert list(in_turn((), random.Random(1))) == []


def test_the_commands_name_spark_where_it_was_asked_for() -> None:
    order = Order(7, spark=True)

    assert command(order) == "./skep torture --seed 7 --spark"
    assert replay_command(order, order.plan(0)).endswith(" --spark")
    assert "--spark" not in replay_command(Order(7), Plan(7, 0, faults=("driver",)))
    assert [plan.has_spark for plan in (Plan(7, 0), Plan(7, 0, spark=True), Plan(7, 0, faults=("executor",)))] == [
        False, True, True,
    ]  # fmt: skip


def test_a_result_has_one_line_per_field_and_the_command_that_makes_it_again() -> None:
    order = Order(7, "postgres", ("kill", "cut"), seconds=120.0, clients=9)
    result = result_of(Totals(order, machine=Machine(2, 2048, "Linux", "3.11.7", "3.50.0", "16.2")))

    assert command(order) == "./skep torture --seed 7 --store postgres --faults kill,cut --seconds 120.0 --clients 9"
    assert len(result.text().splitlines()) == len(Result.__struct_fields__) + 2
    assert msgspec.json.decode(result.text(), type=Result).text() == result.text()
