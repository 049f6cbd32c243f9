"""Spark's Python processes start without the archives that Spark puts before its package."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import skep
from skep.spark import stream_process
from skep.spark.interpreter import ARCHIVES, interpreter

SOURCES = Path(skep.__file__).parents[1]
INSTALLED = Path(pyspark.__file__).parent
TOLD = "import os, sys; print(sys.argv[1:], os.environ['PYTHONPATH'], sys.executable, os.getenv('a.name-of no shell'), sep='|')"


def test_archives_are_taken_out_of_the_path_and_all_else_is_handed_on_word_by_word(tmp_path: Path) -> None:
    program = interpreter({"XDG_CACHE_HOME": str(tmp_path)})
    [package], [py4j], [core] = (list(map(str, INSTALLED.glob(pattern))) for pattern in ARCHIVES)
    places = [package, "/a b", py4j, "", "/*", core, "/other/pyspark.zip", package, "/mine.zip"]
    said = subprocess.run(
        [program, "-c", TOLD, "a b", "", "*"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "a.name-of no shell": "kept"},
    )  # fmt: skip

    assert Path(program).parent == tmp_path / "skep"
    assert said.stdout == f"['a b', '', '*']|/a b:/*:/other/pyspark.zip:/mine.zip|{sys.executable}|kept\n"


def test_nothing_is_left_where_there_was_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = interpreter({"XDG_CACHE_HOME": str(tmp_path)})

    said = subprocess.run([program, "-c", TOLD], capture_output=True, text=True, check=True, env=environment)

    assert said.stdout == f"[]||{sys.executable}|None\n"


def test_another_spark_than_the_installed_one_keeps_its_own_package(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    assert interpreter({**cache, "SPARK_HOME": "/opt/spark"}) == sys.executable
    assert interpreter({**cache, "SPARK_HOME": str(INSTALLED)}) != sys.executable


def test_a_folder_that_takes_no_program_is_done_without(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert interpreter({"XDG_CACHE_HOME": str(file)}) == sys.executable


def test_nobody_needs_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert interpreter({}) == sys.executable


def test_the_process_of_a_stream_connects_before_it_loads_spark_which_may_take_longer_than_spark_waits(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise SystemExit('never loaded')", encoding="utf-8")
    path = str(tmp_path / "socket")
    with socket.create_server(path, family=socket.AF_UNIX) as spark:
        spark.setblocking(False)
        ended = subprocess.run(
            [interpreter({"XDG_CACHE_HOME": str(tmp_path)}), "-m", stream_process.RUNNER], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{SOURCES}", stream_process.SOCKET: path},
        )  # fmt: skip
        assert ended.stderr == "never loaded\n"
        spark.accept()[0].close()


def test_a_session_on_this_machine_starts_them_so(spark: SparkSession) -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"file": [pyspark.__file__], "path": [os.pathsep.join(sys.path)]})

    [row] = spark.range(1).coalesce(1).mapInArrow(told, "file string, path string").collect()

    assert row["file"] == str(INSTALLED / "__init__.py")
    assert "pyspark.zip" not in row["path"]
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == (sys.executable, sys.executable)


def test_packages_that_only_this_process_finds_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "py4j").mkdir()
    (tmp_path / "py4j" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "py4j")
    assert interpreter({"XDG_CACHE_HOME": str(tmp_path)}) == sys.executable
