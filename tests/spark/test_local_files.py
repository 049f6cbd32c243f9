"""Files of this machine: as Hadoop has them, without a process for each."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from skep.spark.jvm import LOCAL_FILES

HADOOPS = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}
OURS = {name.removeprefix("spark.hadoop."): value for name, value in LOCAL_FILES.items()}
STREAM_IN_A_SESSION_THAT_WAS_THERE = """
import sys
from pyspark.sql import SparkSession
from skep.spark.session import start_session
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark = start_session("test", master="local[1]")
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().writeStream.format("noop")
query = stream.option("checkpointLocation", sys.argv[1]).trigger(once=True).start()
assert query.awaitTermination(60)
assert query.exception() is None, query.exception()
print("rows", sum(one.numInputRows for one in query.recentProgress))
"""


class Files:
    """The two doors to files that Hadoop has, with one of the implementations behind them."""

    def __init__(self, spark: SparkSession, settings: dict[str, str]) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._settings = self._jvm.org.apache.hadoop.conf.Configuration(False)
        for name, value in settings.items():
            self._settings.set(name, value)
        self._root = self._jvm.java.net.URI("file:///")
        self.system = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._root, self._settings)
        self.context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root, self._settings)

    def path(self, path: Path) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path.as_uri())

    def make(self, path: Path) -> None:
        self.system.create(self.path(path), True).close()

    def allow(self, path: Path, mode: int) -> None:
        self.system.setPermission(self.path(path), self._jvm.org.apache.hadoop.fs.permission.FsPermission(mode))

    def rename(self, old: Path, new: Path) -> None:
        option = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        none = self._jvm.java.lang.reflect.Array.newInstance(option, 0)
        self.context.rename(self.path(old), self.path(new), none)

    def told(self, path: Path) -> str:
        """What is known of a file that may be a link; or why nothing is."""
        try:
            found = self.context.getFileLinkStatus(self.path(path))
        except Py4JJavaError as error:
            return str(error.java_exception.getClass().getName())
        return str(found.toString())


@pytest.fixture(params=[OURS, HADOOPS], ids=["ours", "hadoop"])
def files(spark: SparkSession, request: pytest.FixtureRequest) -> Files:
    """Ours, and Hadoop's own, which is what ours has to be like."""
    return Files(spark, request.param)


def test_what_is_allowed_is_set(files: Files, tmp_path: Path) -> None:
    made = tmp_path / "made"
    files.make(made)

    for mode in (0o640, 0o755, 0o000, 0o1777):
        files.allow(made, mode)
        assert stat.S_IMODE(made.stat().st_mode) == mode


def test_a_file_that_is_missing_is_an_error(files: Files, tmp_path: Path) -> None:
    with pytest.raises(Py4JJavaError):
        files.allow(tmp_path / "missing", 0o644)
    assert files.told(tmp_path / "missing") == "java.io.FileNotFoundException"


def test_a_link_is_what_it_is_to_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    names = ("file", "folder", "link", "dangling")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")

    ours, hadoops = (
        [files.told(tmp_path / name) for name in names] for files in (Files(spark, OURS), Files(spark, HADOOPS))
    )

    assert ours == hadoops
    assert "isDirectory=false" in ours[0]


def test_nothing_is_renamed_over_what_is_there(files: Files, tmp_path: Path) -> None:
    first, second, third = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    files.make(first)
    files.make(second)

    files.rename(first, third)
    assert third.exists()
    assert not first.exists()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        files.rename(second, third)
    assert second.exists()


def children_faults(spark: SparkSession) -> int:
    """Page faults of the processes that Java has started and seen to their end: any of them has some."""
    jvm: Any = spark.sparkContext._jvm
    fields = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text().rpartition(")")[2].split()
    return int(fields[8])


@pytest.mark.parametrize(("settings", "is_none"), [(OURS, True), (HADOOPS, False)], ids=["ours", "hadoop"])
def test_no_process_is_started_for_a_file(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str], is_none: bool
) -> None:
    files = Files(spark, settings)
    before = children_faults(spark)

    files.make(tmp_path / "made")
    files.rename(tmp_path / "made", tmp_path / "renamed")

    assert (children_faults(spark) == before) is is_none


def test_a_session_has_them(spark: SparkSession) -> None:
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    assert {name: settings.get(name) for name in OURS} == OURS


@pytest.mark.slow
def test_a_session_that_was_there_before_does_without(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STREAM_IN_A_SESSION_THAT_WAS_THERE, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert "rows 3" in ran.stdout
