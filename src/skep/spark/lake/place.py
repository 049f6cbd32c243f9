"""A place of the lake: a file or folder below one URI, on a local disk or in an object store, with the few things that we do to it.

A place is only its URI, so it travels to Spark's executors. Each process opens the file system of a URI once. Credentials and endpoints
come from the environment, under the names that the tools of each store know (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...).

What is written whole is there whole or not at all: a local file is synced (fsync) and renamed, and an object store shows an object when
its upload has ended.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.reaching import check_reached

if TYPE_CHECKING:
    import pyarrow.fs as pafs

OWN = "_skep"
"""The folder of our own files in a lake. Spark and other readers skip names that begin with an underscore."""
SCHEMES = ("file", "s3", "gs", "abfss", "hdfs")
S3_TRIES = 10
"""How often a request to S3 is sent when the store is busy (SlowDown) or the answer is lost; the pauses grow."""
CONNECT_SECONDS = 10.0
REQUEST_SECONDS = 30.0
"""The longest silence of a request to S3. Without it a lost answer would be waited for without end."""
READ_PAUSES = (0.1, 0.3, 1.0, 3.0)
"""Seconds between tries of reading a small file of an object store. The client of S3 repeats a refused read only if the refusal is
not longer than the file.
"""
READ_WHOLE_BYTES = 1024 * 1024
GCS_RETRY_SECONDS = 60.0
COMMON_REGION = re.compile(r"(?!cn-)[a-z]{2}-(gov-)?[a-z]+-\d+")
"""A region below amazonaws.com. Those of China and of closed networks are elsewhere."""
CURES = {
    "s3": "Look at the name of the bucket, the credentials and the address of the store: they come from the environment "
    "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL)",
    "gs": "Look at the name of the bucket and the credentials: gcloud auth application-default login, or the file that "
    "GOOGLE_APPLICATION_CREDENTIALS names",
    "abfss": "Look at container, account and credentials: az login, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET. "
    "The account needs the hierarchical namespace",
    "hdfs": "Hadoop's client must be on this machine, and on the executors: JAVA_HOME, HADOOP_HOME, and CLASSPATH=$(hadoop classpath --glob)",
}
"""What a user can do when a place cannot be reached."""


class FoundFile(NamedTuple):
    """A file below a place, its size, and when it was written (seconds since 1970)."""

    place: Place
    bytes: int
    written_at: float


class Place(Struct, frozen=True):
    """A file or folder, by its URI."""

    uri: str

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.uri.rstrip('/')}/{name}")

    def __str__(self) -> str:
        """The path of a local place, else its URI: what a person can use."""
        return self.path if self.is_local else self.uri

    @property
    def name(self) -> str:
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Place:
        return Place(self.uri.rstrip("/").rpartition("/")[0])

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("file://")

    @property
    def local(self) -> Path:
        """The path on this machine."""
        assert self.is_local
        return Path(self.path)

    @property
    def path(self) -> str:
        """The path in its file system."""
        scheme, _, rest = self.uri.partition("://")
        if scheme == "abfss":
            container, _, below = rest.partition("/")
            return f"{container.partition('@')[0]}/{below}"
        return "/" + rest.partition("/")[2] if scheme == "hdfs" else rest

    @property
    def cure(self) -> str:
        """What to look at when it cannot be reached."""
        return CURES[self.uri.partition("://")[0]]

    def below(self, found: Place) -> str:
        """The name of a place below this one."""
        return found.uri.removeprefix(self.uri.rstrip("/") + "/")

    @property
    def files(self) -> pafs.FileSystem:
        """The file system, opened once in each process. From then on it waits for a store that is busy, slow or away."""
        root, process = _root(self.uri), os.getpid()
        if (root, process) not in _reached:
            self.check_reached()
            _reached.add((root, process))
        return _file_system(root, process)

    def check_reached(self) -> None:
        """Check that the object store can be connected to; LAKE_UNREACHABLE else. Other places fail by themselves."""
        if not self.uri.startswith("s3://"):
            return
        url, region = s3_endpoint(), s3_region() or ""
        if url is None and COMMON_REGION.fullmatch(region):
            url = f"https://s3.{region}.amazonaws.com"
        if url is not None:
            check_reached(url, "s3://" + urlsplit(self.uri).netloc, self.cure)

    def read_bytes(self) -> bytes:
        """The content of a file; FileNotFoundError when there is none."""
        for pause in READ_PAUSES:
            try:
                return self._read()
            except FileNotFoundError:
                raise
            except OSError:
                if self.is_local:
                    raise
                time.sleep(pause)
        return self._read()

    def _read(self) -> bytes:
        with self.files.open_input_file(self.path) as opened:
            return bytes(opened.read())

    @contextmanager
    def opened(self) -> Iterator[pa.NativeFile]:
        """Open a file to read parts of it. A small one of an object store is read whole, since each part is a request."""
        with self.files.open_input_file(self.path) as opened:
            if self.is_local or opened.size() > READ_WHOLE_BYTES:
                yield opened
                return
        yield pa.BufferReader(self.read_bytes())

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_whole(self, data: bytes) -> None:
        """Replace a file: at any time it is the old or the new one, also after a power failure."""
        with self.writing() as file:
            file.write(data)

    @contextmanager
    def writing(self) -> Iterator[IO[bytes] | Any]:
        """Write a new file. It is there when the block has ended without an error, and synced to the disk."""
        if not self.is_local:
            with self.files.open_output_stream(self.path) as stream:
                yield stream
            return
        fresh = self.local.with_name(f"{self.name}.new")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.local)
        sync(self.local.parent)

    def exists(self) -> bool:
        import pyarrow.fs as pafs

        return self.files.get_file_info(self.path).type is not pafs.FileType.NotFound

    def size(self) -> int | None:
        """The size of a file; None when there is none."""
        import pyarrow.fs as pafs

        found = self.files.get_file_info(self.path)
        return int(found.size) if found.type is pafs.FileType.File else None

    def below_it(self, suffix: str = "") -> list[FoundFile]:
        """All files below a folder whose names end so, by name; none when there is no such folder."""
        import pyarrow.fs as pafs

        chosen = pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
        found = [one for one in self.files.get_file_info(chosen) if one.type is pafs.FileType.File]
        root = self.path.rstrip("/")
        named = [(one.path.removeprefix(root).lstrip("/"), one) for one in found]
        return [
            FoundFile(self / name, one.size, one.mtime_ns / 1e9)
            for name, one in sorted(named, key=lambda pair: pair[0])
            if name.endswith(suffix)
        ]

    def folders(self) -> list[str]:
        """The names of the folders in a folder; FileNotFoundError when there is none."""
        import pyarrow.fs as pafs

        chosen = pafs.FileSelector(self.path)
        return sorted(one.base_name for one in self.files.get_file_info(chosen) if one.type is pafs.FileType.Directory)

    def delete(self) -> None:
        """Delete a file, if it is there."""
        if self.is_local:
            self.local.unlink(missing_ok=True)
            return
        try:
            self.files.delete_file(self.path)
        except FileNotFoundError:
            return
        except OSError:
            if self.size() is not None:  # S3 refuses to delete what is not there
                raise

    def delete_all(self) -> None:
        """Delete a folder with all that is in it, if it is there."""
        if self.is_local:
            shutil.rmtree(self.local, ignore_errors=True)
            return
        for found in self.below_it():
            found.place.delete()

    def move(self, target: Place) -> None:
        """Move a local file; nothing when it was moved before."""
        if self.local.exists():
            target.local.parent.mkdir(parents=True, exist_ok=True)
            self.local.rename(target.local)


def place_of(written: str) -> Place:
    """The place that a user means: a path, or the URI of an object store."""
    scheme, divider, _ = written.partition("://")
    if not divider:
        return Place(f"file://{Path(written).absolute()}")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise SkepError(
            Code.INVALID_REQUEST, f"a lake is a folder, or a URI that begins with one of {known}; {written} is neither"
        )
    if scheme == "file":
        return Place(f"file://{Path(written.removeprefix('file://')).absolute()}")
    return Place(written.rstrip("/"))


def sync(path: Path) -> None:
    """Sync a file or folder to the disk (fsync)."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def s3_endpoint() -> str | None:
    """The URL of an S3 other than Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def s3_region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def _root(uri: str) -> str:
    """What decides on the file system: the scheme, and where there is one the host or account."""
    split = urlsplit(uri)
    return f"{split.scheme}://{split.netloc}" if split.scheme in ("abfss", "hdfs") else f"{split.scheme}://"


_reached: set[tuple[str, int]] = set()
"""The stores that this process has connected to."""


@lru_cache(maxsize=16)
def _file_system(root: str, process: int) -> pafs.FileSystem:  # noqa: ARG001 - connections are not shared over a fork
    import pyarrow.fs as pafs

    match root.partition("://")[0]:
        case "file":
            return pafs.LocalFileSystem()
        case "s3":
            endpoint = urlsplit(s3_endpoint() or "")
            return pafs.S3FileSystem(
                endpoint_override=endpoint.netloc or None, scheme=endpoint.scheme or "https", region=s3_region(),
                connect_timeout=CONNECT_SECONDS, request_timeout=REQUEST_SECONDS,
                retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=S3_TRIES),
            )  # fmt: skip
        case "gs":  # without a bucket it has no URI
            return pafs.GcsFileSystem(retry_time_limit=timedelta(seconds=GCS_RETRY_SECONDS))
        case _:
            found, _ = pafs.FileSystem.from_uri(f"{root}/")
            return found
