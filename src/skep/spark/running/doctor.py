"""Check whether this machine can run pipelines. Each finding that is not well names the cure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from skep.errors import SkepError
from skep.runtime import fitness
from skep.runtime.fitness import Finding, State
from skep.spark.environment import INSTALL, cure
from skep.spark.java import NoJavaError, ask, java_home

NEEDED = {
    "pyspark": "pyspark", "pyarrow": "pyarrow", "pandas": "pandas", "deltalake": "deltalake", "pyiceberg": "pyiceberg", "grpcio": "grpc",
}  # fmt: skip
OPTIONAL = ("deltalake", "pyiceberg", "grpcio")
"""Needed only for --format delta, for --format iceberg and for --remote."""
LITTLE_MEMORY_BYTES = 2 * 1024**3
NO_MEMORY_BYTES = 1024**3


def examine(url: str, tenant: str, token: str | None, lake: str = ".") -> list[Finding]:
    """The findings about everything that `skep pipeline run` needs."""
    return [*python(), *packages(), *java(), *memory(), *lake_place(lake), *server(url, tenant, token)]


def lake_place(lake: str) -> Iterator[Finding]:
    """Whether the lake's folder can be written, or its object store answers."""
    from skep.spark.lake.opening import existing_format
    from skep.spark.lake.place import place_of

    try:
        root = place_of(lake)
        if root.is_local:
            yield from fitness.folder("lake", root.local, "name another folder with --lake")
            return
        kind = existing_format(root)
    except SkepError as error:
        yield Finding("lake", "fail", error.message, "")
        return
    found = "has no lake yet" if kind is None else f"has a lake of {kind.capitalize()}"
    yield Finding("lake", "ok", f"{root} answers, and {found}")


def python() -> Iterator[Finding]:
    """The interpreter, and whether the tasks run with the same one."""
    yield fitness.python()
    given = os.environ.get("PYSPARK_PYTHON")
    if given is not None and Path(given).resolve() != Path(sys.executable).resolve():
        yield Finding(
            "PYSPARK_PYTHON",
            "warn",
            given,
            "tasks will run with another Python than this one; unset it unless that one has skep, too",
        )


def packages() -> Iterator[Finding]:
    """The packages of the extra `spark`."""
    for name, module in NEEDED.items():
        if find_spec(module) is None:
            yield Finding(name, "warn" if name in OPTIONAL else "fail", "not installed", cure([name]))
            continue
        version = metadata.version(name)
        if name == "pyspark" and tuple(map(int, version.split(".")[:2])) < (4, 3):
            yield Finding(name, "fail", version, f"pipelines need pyspark 4.3 or newer: {INSTALL}")
        elif name == "pandas" and int(version.split(".")[0]) >= 3:
            yield Finding(name, "warn", version, "Spark warns at every call with pandas 3: pip install 'pandas<3'")
        else:
            yield Finding(name, "ok", version)


def java() -> Iterator[Finding]:
    """The Java that Spark would run on."""
    try:
        home = java_home()
    except NoJavaError as error:
        yield Finding("java", "fail", "none that Spark can run on", str(error))
        return
    found = ask(home)
    version = "?" if found is None else str(found.version)
    yield Finding("java", "ok", f"Java {version} in {home}")


def memory() -> Iterator[Finding]:
    """Whether there is room for a JVM and its Python workers."""
    try:
        free = available_memory()
    except (OSError, ValueError):
        yield Finding("memory", "info", "cannot be told on this system")
        return
    state: State = "ok" if free >= LITTLE_MEMORY_BYTES else "warn" if free >= NO_MEMORY_BYTES else "fail"
    hint = (
        ""
        if state == "ok"
        else "Spark takes about 2 GiB here; end other programs, or run it elsewhere with --master or --remote"
    )
    yield Finding("memory", state, f"{free / 1024**3:.1f} GiB free, {os.cpu_count()} cores", hint)


def available_memory() -> int:
    """The bytes that are free without swapping, within the limit of this process's cgroup."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except OSError:
        return free
    return free if allowed == "max" else min(free, int(allowed) - used)


def server(url: str, tenant: str, token: str | None) -> Iterator[Finding]:
    """Whether the server answers, and accepts the token."""
    from skep.client import Client

    urls = [one.strip() for one in url.split(",") if one.strip()]
    with Client(urls, tenant=tenant, token=token, attempts=1, timeout_seconds=10.0) as client:
        try:
            queues = sum(1 for _ in client.queues(stats=False))
        except SkepError as error:
            hint = "start one with skep serve, or name it with --url; on a cluster it has to be reachable from every executor"
            yield Finding("server", "fail", f"{url}: {error.message}", hint)
            return
    yield Finding("server", "ok", f"{url} answers; tenant {tenant} has {queues} queue{'' if queues == 1 else 's'}")
