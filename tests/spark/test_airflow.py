"""The example for Airflow in a real Airflow, which is installed into an environment of its own for these tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import skep
from skep.testing.server import running_server
from tests.spark.test_cluster import ROOT

AIRFLOW = "apache-airflow==3.3.2"
EXAMPLE = ROOT / "examples" / "airflow"
INSTALL_SECONDS, RUN_SECONDS = 1_800, 1_800

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that has Airflow."""
    folder = tmp_path_factory.mktemp("airflow")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-cache-dir",
        AIRFLOW,
    ]
    installed = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if installed.returncode:
        pytest.skip(f"{AIRFLOW} cannot be installed here: {installed.stderr.strip().splitlines()[-1]}")
    return folder / "bin"


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON", "SKEP"))}
    return {**kept, "AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **more}


def run(command: list[str | Path], folder: Path, **more: str) -> str:
    ended = subprocess.run(
        command, env=environment(folder, **more), cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_dag_waits_for_the_group_and_brings_the_messages_into_the_lake(airflow: Path, tmp_path: Path) -> None:
    dags, lake = tmp_path / "dags", tmp_path / "lake"
    shutil.copytree(EXAMPLE, dags)
    with running_server() as server, skep.Client(server.url) as client:
        client.push("orders", [{"n": number} for number in range(5)])
        client.ack(*client.pop("orders", group="billing", batch=10))
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags), "SKEP_URL": server.url, "SKEP_LAKE": str(lake),
            "SKEP_COMMAND": f"{sys.executable} -m skep",
        }  # fmt: skip
        run([airflow / "airflow", "db", "migrate"], tmp_path, **settings)
        run([airflow / "airflow", "dags", "test", "skep_nightly"], tmp_path, **settings)

        assert client.group("archive", "orders").lag == 0
    [ended] = [json.loads(path.read_bytes()) for path in lake.glob("runs/*/run.json")]
    assert [stage["name"] for stage in ended["stages"]] == ["archive", "history", "metrics", "journeys", "dead-letters"]
    assert (ended["status"], ended["stages"][0]["rows_out"]) == ("ok", 5)


def test_a_task_fails_as_the_command_ended(airflow: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with running_server() as server, skep.Client(server.url) as client:
        client.push("orders", [1, 2, 3])
        client.ack(client.pop("orders", group="billing")[0])
        client.push("refunds", 1)
        client.ack(*client.pop("refunds", group="billing"))
        client.push("customers", 1)
        tasks: list[str | Path] = [airflow / "python", "-m", "tests.support.airflow_tasks", server.url, str(lake)]
        path = os.pathsep.join([str(EXAMPLE), str(ROOT)])
        printed = run([*tasks, sys.executable, "-m", "skep"], tmp_path, PYTHONPATH=path)

    became = dict(json.loads(line) for line in printed.splitlines() if line.startswith("["))
    assert became["behind"] == "False"
    assert became["close"] == became["done"] == "True"
    assert became["no group"] == became["no server to ask"] == "False"
    assert became["no queue"] == "for good: skep ended with 4: see the log"
    assert became["no server"].startswith("failed: skep ended with 2: ")
    assert became["no such option"] == "failed: skep ended with 1: see the log"
    assert became["not there"].startswith("for good: skep ended with 4: There is no queue 'absent'")
    assert became["ended"].startswith("failed: skep ended with 130")
