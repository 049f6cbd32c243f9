"""`format("skep")` in sessions that know nothing of us: `spark-submit` and the plain `pyspark` shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import skep
from skep.spark.java import java_home
from skep.testing.server import RunningServer
from tests.spark.test_cluster import ROOT, RUN_SECONDS, SPARK

COPY = """
rows = spark.read.format("skep").option("url", {url!r}).option("tenant", {tenant!r}).load("orders")
copies = rows.select("partition", "payload").write.format("skep").option("url", {url!r}).option("tenant", {tenant!r})
copies.option("queue", "copies").mode("append").save()
"""
QUICK = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", "--driver-java-options", "-XX:TieredStopAtLevel=1"]


def plain(*command: str, typed: str | None = None, folder: Path) -> str:
    """What one of Spark's own programs says, set up by nothing but its environment."""
    environment = {
        **os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON_OPTS": "-i" if typed else "",  # a shell, though nobody sits at it
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    ended = subprocess.run(
        [SPARK / "bin" / command[0], *command[1:]], env=environment, input=typed or "", capture_output=True, text=True,
        timeout=RUN_SECONDS, check=False, cwd=folder,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_script_is_submitted(spark_server: RunningServer, tmp_path: Path) -> None:
    with skep.Client(spark_server.url, tenant="submitted") as client:
        client.push("orders", [{"n": number} for number in range(5)])
        script = tmp_path / "copy_orders.py"
        made = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        script.write_text(made + COPY.format(url=spark_server.url, tenant="submitted"), encoding="utf-8")
        plain("spark-submit", *QUICK, str(script), folder=tmp_path)
        assert sorted(json.loads(bytes(one.payload))["n"] for one in client.messages("copies")) == list(range(5))


@pytest.mark.slow
def test_lines_are_typed_into_the_shell(spark_server: RunningServer, tmp_path: Path) -> None:
    with skep.Client(spark_server.url, tenant="typed") as client:
        client.push("orders", [{"n": number} for number in range(5)])
        typed = COPY.format(url=spark_server.url, tenant="typed") + "print('read:', rows.count())\n"
        assert "read: 5" in plain("pyspark", *QUICK, typed=typed, folder=tmp_path)
        assert sorted(json.loads(bytes(one.payload))["n"] for one in client.messages("copies")) == list(range(5))
