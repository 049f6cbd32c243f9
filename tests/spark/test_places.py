"""The places of a lake: each URI has the file system that it names, and what cannot be reached is told with the cure."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from skep.errors import SkepError
from skep.spark.lake import place as lake_place
from skep.spark.lake.place import CURES, SCHEMES, Place, place_of
from tests.support.s3 import BUCKET, CREDENTIALS, Store

URIS = {
    "file": ("file:///srv/lake", "LocalFileSystem", "/srv/lake"),
    "s3": ("s3://bucket/path/lake/", "S3FileSystem", "bucket/path/lake"),
    "gs": ("gs://bucket/path/lake", "GcsFileSystem", "bucket/path/lake"),
    "abfss": (
        "abfss://container@account.dfs.core.windows.net/path/lake", "AzureFileSystem", "container/path/lake",
    ),
}  # fmt: skip


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file system is open, and what is opened meanwhile is forgotten. S3 is somebody who listens, and is asked nothing."""
    monkeypatch.setattr(lake_place, "_reached", set())
    lake_place._file_system.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        yield
    lake_place._file_system.cache_clear()


@pytest.mark.parametrize("scheme", URIS)
@pytest.mark.usefixtures("unopened")
def test_a_place_is_opened_by_the_file_system_of_its_uri(scheme: str) -> None:
    uri, kind, path = URIS[scheme]
    place = place_of(uri)
    assert (type(place.files).__name__, place.path) == (kind, path)
    assert place.files is (place / "messages").files  # once for a process
    assert isinstance(place.files, pafs.FileSystem)
    assert ((place / "a").parent, place.below(place / "a/b")) == (place, "a/b")


def test_every_scheme_has_a_cure() -> None:
    assert set(CURES) == set(SCHEMES) - {"file"}
    with pytest.raises(SkepError, match="begins with one of file://, s3://, gs://, abfss://, hdfs://"):
        place_of("ftp://host/lake")


@pytest.mark.slow
def test_a_lake_in_hdfs_without_the_client_of_hadoop_is_told_what_is_missing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "skep", "lake", "show", "--lake", "hdfs://127.0.0.1:1/lake"], cwd=tmp_path, text=True,
        env={**os.environ, "JAVA_HOME": str(tmp_path), "HADOOP_HOME": str(tmp_path)}, capture_output=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "hdfs://127.0.0.1:1/lake cannot be listed" in run.stderr
    assert "JAVA_HOME, HADOOP_HOME, and CLASSPATH" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_run_whose_store_cannot_be_reached_says_so_and_leaves_nothing_in_the_working_folder(tmp_path: Path) -> None:
    pipeline = [sys.executable, "-m", "skep", "pipeline", "run", "archive", "--lake", "s3://bucket/lake"]
    run = subprocess.run(
        pipeline, cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
    )  # fmt: skip
    assert run.returncode == 2
    assert "LAKE_UNREACHABLE" in run.stderr
    assert "AWS_ENDPOINT_URL" in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_small_file_is_read_though_its_requests_are_refused(spark: SparkSession, object_store: Store) -> None:
    place = Place(f"s3://{BUCKET}/small/note.json")
    object_store.set_faults(0)
    place.write_whole(b"{}")
    try:
        for seed in range(20):
            object_store.set_faults(0.2, ["busy"], seed=seed)
            assert place.read_bytes() == b"{}"
            with place.opened() as opened:
                assert opened.read() == b"{}"
    finally:
        object_store.set_faults(0)
    with pytest.raises(FileNotFoundError):
        Place(f"s3://{BUCKET}/small/none.json").read_bytes()
