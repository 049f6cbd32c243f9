"""Can Spark run here, and reach the server? Each check looks at one thing and says in plain words what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from msgspec import Struct

from skep.client import Client
from skep.errors import Code, SkepError
from skep.spark.java import NoJavaError, ask, java_home
from skep.spark.options import Connection

State = Literal["ok", "warn", "fail"]

OLDEST_SPARK = (4, 3)
NEEDED_BYTES = 2 * 1024**3
"""Of memory: Spark's Java takes 1.5 GB by default, and its Python workers some 150 MB each."""
ASK_SECONDS = 5.0


class Finding(Struct, frozen=True):
    """What one check found; ``cure`` says what to do about it."""

    check: str
    state: State
    found: str
    cure: str = ""


def examine(connection: Connection) -> list[Finding]:
    """Everything that a pipeline needs."""
    checks: list[Callable[[], Iterator[Finding]]] = [java, packages, python, memory, lambda: server(connection)]
    return [finding for check in checks for finding in check()]


def java() -> Iterator[Finding]:
    """Whether there is a Java that Spark runs on."""
    try:
        home = java_home()
    except NoJavaError as error:
        yield Finding("java", "fail", "there is none that Spark could use", str(error))
        return
    found = ask(home)
    version = "?" if found is None else str(found.version)
    yield Finding("java", "ok", f"Java {version} in {home}")


def packages() -> Iterator[Finding]:
    """Whether the Python packages are there, in versions that fit."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        yield Finding("pyspark", "fail", "it is not installed", "pip install 'skep[spark]'")
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SPARK:
        yield Finding("pyspark", "fail", f"it is {version}", "pip install 'pyspark>=4.3,<5'")
    else:
        yield Finding("pyspark", "ok", version)
    for name in ("pyarrow", "pandas"):
        if find_spec(name) is None:
            yield Finding(name, "fail", "it is not installed", "pip install 'skep[spark]'")
    if find_spec("pyspark_skep") is None:
        yield Finding(
            "skep for Spark", "fail", "Spark would not find it", "install skep itself, not a copy of its folder"
        )


def python() -> Iterator[Finding]:
    """Whether Spark's workers run with this Python."""
    named = os.environ.get("PYSPARK_PYTHON")
    if named is not None and Path(named).resolve() != Path(sys.executable).resolve():
        yield Finding(
            "python", "warn", f"PYSPARK_PYTHON is {named}, and this is {sys.executable}",
            "make sure that skep[spark] is installed there too, or unset it",
        )  # fmt: skip
    else:
        yield Finding("python", "ok", sys.executable)


def memory() -> Iterator[Finding]:
    """Whether a local Spark has room."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        [available] = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return
    text = f"{available / 1024**3:.1f} GiB are free"
    if available < NEEDED_BYTES:
        cure = "end something else, or give Spark less: --config spark.driver.memory=700m"
        yield Finding("memory", "warn", text, cure)
    else:
        yield Finding("memory", "ok", text)


def server(connection: Connection) -> Iterator[Finding]:
    """Whether the server answers, to us and as us."""
    where = ", ".join(connection.urls)
    try:
        with Client(
            connection.urls, tenant=connection.tenant, token=connection.token, attempts=1, timeout_seconds=ASK_SECONDS
        ) as client:
            status = client.overview()
    except SkepError as error:
        cures = {
            Code.SERVER_UNREACHABLE: "start it (skep serve), or correct --url; executors on other machines must reach it, too",
            Code.UNAUTHENTICATED: "give a token: --token, or SKEP_TOKEN",
            Code.FORBIDDEN: "this token may not do that; ask for one that may",
        }
        yield Finding("server", "fail", f"{where}: {error.message}", cures.get(error.code, ""))
        return
    yield Finding("server", "ok", f"{where}, {status.queues} queues for tenant {connection.tenant}")
