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

from skep.spark.jvm import LOCAL_FILES, LOCAL_FILES_CLASS
from tests.spark.test_submit import QUICK, plain

HADOOPS = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}
OURS = {name.removeprefix("spark.hadoop."): value for name, value in LOCAL_FILES.items()}
STREAM = """
spark = start_session("test", master="local[1]")
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().writeStream.format("noop")
query = stream.option("checkpointLocation", sys.argv[1]).trigger(once=True).start()
assert query.awaitTermination(600)
assert query.exception() is None, query.exception()
print("rows", sum(one.numInputRows for one in query.recentProgress))
print("files", spark.sparkContext._jsc.hadoopConfiguration().get("fs.file.impl"))
"""
BEFORE = """
import sys
from pyspark.sql import SparkSession
from skep.spark.session import start_session
"""
PLAIN = BEFORE + 'before = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()\n'
ONE_OF_OURS = BEFORE + 'before = start_session("before", master="local[1]")\n'


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


def test_a_folder_goes_on_giving_its_group(files: Files, tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    made = tmp_path / "made"
    files.system.mkdirs(files.path(made))
    assert stat.S_IMODE(made.stat().st_mode) & stat.S_ISGID

    files.allow(made, 0o700)
    assert stat.S_IMODE(made.stat().st_mode) == 0o2700


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
@pytest.mark.parametrize(
    ("before", "is_ours"),
    [(PLAIN, False), (PLAIN + "before.stop()\n", False), (ONE_OF_OURS + "before.stop()\n", True)],
    ids=["one that runs", "one that ended", "one of ours that ended"],
)
def test_a_session_after_another_one_has_them_if_its_java_does(tmp_path: Path, before: str, is_ours: bool) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", before + STREAM, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, check=False, timeout=600, env=os.environ,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert "rows 3" in ran.stdout
    assert (f"files {LOCAL_FILES_CLASS}" in ran.stdout) is is_ours


@pytest.mark.slow
def test_a_submitted_script_does_without(tmp_path: Path) -> None:
    script = tmp_path / "stream.py"
    script.write_text(BEFORE + STREAM, encoding="utf-8")

    said = plain("spark-submit", *QUICK, str(script), str(tmp_path / "checkpoint"), folder=tmp_path)

    assert "rows 3" in said
    assert LOCAL_FILES_CLASS not in said
