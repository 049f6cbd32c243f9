"""Pipelines on a real standalone cluster: a master and a worker as processes of their own, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from msgspec import Struct

from skep.spark.java import java_home
from skep.spark.jvm import JAR
from skep.testing.postgres import free_port
from tests.spark.conftest import Lake
from tests.spark.frames import shop_spec

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
START_SECONDS = 120
RUN_SECONDS = 900
SPEC = shop_spec()

pytestmark = pytest.mark.slow


class Cluster(Struct, frozen=True):
    """Where it is, and what programs that use it need to know."""

    master: str
    environment: dict[str, str]
    work: Path
    log: Path | None = None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = tmp_path / "conf"
    settings.mkdir()
    log = tmp_path / "log"
    log.mkdir()
    lines = ["spark.eventLog.enabled true", "spark.eventLog.compress false", f"spark.eventLog.dir {log.as_uri()}"]
    (settings / "spark-defaults.conf").write_text("\n".join(lines), encoding="ascii")
    environment = {
        **os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(settings), "PYTHONPATH": str(ROOT / "src"),
    }  # fmt: skip
    port = str(free_port())
    master = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
    with (
        part("master.Master", [*here, "--port", port], environment, "I have been elected leader"),
        part("worker.Worker", [*here, *room, master], environment, "Successfully registered with master"),
    ):
        yield Cluster(master, environment, tmp_path / "work", log)


@contextmanager
def part(name: str, arguments: list[str], environment: dict[str, str], words: str) -> Iterator[None]:
    """A process of the cluster that has said these words, ended with all it started."""
    process = subprocess.Popen(
        [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments], env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        told: list[str] = []
        for line in process.stderr:
            told.append(line)
            if words in line:
                break
        # Nobody reads the rest, but somebody must, or it would come to a halt.
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        try:
            assert words in told[-1], "".join(told[-20:])
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            rest.join(START_SECONDS)


def ran(cluster: Cluster, *arguments: str) -> str:
    """What a program prints that uses the cluster."""
    ended = subprocess.run(
        [sys.executable, *arguments], env=cluster.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=RUN_SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_archive_and_commands_run_on_a_cluster_which_gets_the_reader_of_messages(lake: Lake, cluster: Cluster) -> None:
    lake.client.push("Placed", [{"number": number, "cents": 100 * number} for number in range(1, 51)])
    lake.client.push("Placed", {"number": 51, "cents": "many"})
    spec = lake.folder / "shop.skep"
    spec.write_text(SPEC, encoding="utf-8")
    to = ["--url", lake.url, "--tenant", lake.tenant, "--lake", str(lake.folder / "lake"), "--queue", "Placed"]
    printed = ran(
        cluster, "-m", "skep", "pipeline", "run", "archive", "commands", "--spec", str(spec), "--to", "Orders",
        "--master", cluster.master, *to,
    )  # fmt: skip

    run = json.loads(printed)
    assert [(stage["name"], stage["rows_in"], stage["rows_out"]) for stage in run["stages"]] == [
        ("archive", 51, 51), ("commands", 51, 50),
    ]  # fmt: skip
    assert sorted(json.loads(bytes(one.payload))["euros"] for one in lake.client.messages("Orders")) == list(
        range(1, 51)
    )
    assert [one.source_seq for one in lake.client.dead_letters("Placed")] == [51]
    assert list(cluster.work.rglob(JAR.name)), "the executor has not fetched the reader"


def test_a_session_on_a_cluster_reads_messages_in_java(cluster: Cluster) -> None:
    program = f"""
from skep.spark.columns.reading import has_reader
from skep.spark.pipelines.commands import commands
from skep.spark.jvm import READER_CATALOG
from skep.spark.session import start_session
from skep.spec import load
spark = start_session(master={cluster.master!r})
rows = spark.createDataFrame([("Placed", 1, '{{"number": 7, "cents": 500}}')], "queue string, seq bigint, payload string")
made = commands(rows.repartition(2), load({SPEC!r}, "shop.skep"), "Placed")
plan = made.outcomes._jdf.queryExecution().executedPlan().toString()
print(has_reader(spark), "MessageReader" in plan or "MessageFunction" in plan or READER_CATALOG in plan, made.commands.collect()[0]["input"])
spark.stop()
"""
    assert ran(cluster, "-c", program).split(maxsplit=2) == ["True", "True", '{"id":"7","euros":5}\n']


def test_tables_of_a_few_messages_take_a_few_tasks_though_spark_shuffles_by_200(lake: Lake, cluster: Cluster) -> None:
    lake.client.push("orders", [{"number": number} for number in range(6)])
    done = list(lake.client.pop("orders", group="billing", batch=6))
    for message in done[1:]:
        lake.client.ack(message)
    lake.client.reject(done[0], error="cannot read it")
    printed = ran(
        cluster, "-m", "skep", "pipeline", "run", "metrics", "journeys", "dead-letters", "--queue", "orders",
        "--master", cluster.master, "--url", lake.url, "--tenant", lake.tenant, "--lake", str(lake.folder / "lake"),
    )  # fmt: skip

    assert [stage["status"] for stage in json.loads(printed)["stages"]] == ["ok", "ok", "warn"]
    assert cluster.log is not None
    lines = [line for file in cluster.log.rglob("events*") for line in file.read_text(encoding="utf-8").splitlines()]
    stages = [json.loads(line)["Stage Info"] for line in lines if '"SparkListenerStageCompleted"' in line]
    assert stages
    assert max(stage["Number of Tasks"] for stage in stages) < 20
