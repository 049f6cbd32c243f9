"""What `skep doctor` looks at in the machine: Python, disk, permissions, the address, extras, Java."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from skep.config import ServerSettings
from skep.errors import SkepError
from skep.http.connection.address import bind, check_exposure, resolve
from skep.runtime.private_files import opened_to_others
from skep.server.doctor.findings import Finding, State

OLDEST_PYTHON = (3, 11)
LITTLE_ROOM_BYTES = 1024**3
NO_ROOM_BYTES = 64 * 1024**2
SLOW_FSYNC_MS = 20.0
FSYNCS = 10
EXTRAS = {
    "access": ("jwt", "tokens (JWT)"),
    "arrow": ("pyarrow", "Arrow in bulk routes and the client"),
    "dashboard": ("jinja2", "the dashboard"),
    "postgres": ("asyncpg", "PostgreSQL"),
    "spark": ("pyspark", "Spark pipelines"),
}
"""The module that tells whether an extra is installed, and what the extra is for."""
JAVA_SECONDS = 20.0
HEALTH_SECONDS = 10.0
HEALTH_BYTES = 64 * 1024


def python() -> Iterable[Finding]:
    """The interpreter."""
    version = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding("python", "ok", version)
    else:
        yield Finding("python", "fail", version, "Skep needs Python 3.11 or newer")


def folder(path: Path) -> Iterable[Finding]:
    """That the data folder can be written, and that its disk has room."""
    there = nearest(path)
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("data folder", "fail", f"{there} cannot be written", "change its owner, or name another folder")
    elif there != path.absolute():
        yield Finding("data folder", "ok", f"{path} is not there yet and will be made")
    else:
        yield Finding("data folder", "ok", f"{path} can be written")
    free = shutil.disk_usage(there).free
    state: State = "ok" if free >= LITTLE_ROOM_BYTES else "warn" if free >= NO_ROOM_BYTES else "fail"
    yield Finding(
        "disk", state, f"{free / 1024**3:.1f} GiB free", "" if state == "ok" else "make room, or use another disk"
    )


def permissions(kept: Iterable[Path], secrets: Iterable[Path]) -> Iterable[Finding]:
    """That no other account of this machine can read what the server keeps here, or the secrets that it is given."""
    paths = [*kept, *secrets]
    if not paths:
        return
    loose = opened_to_others(paths)
    for path, cure in loose.items():
        yield Finding("permissions", "warn", f"other accounts can get at {path}", cure)
    if not loose:
        yield Finding("permissions", "ok", "no other account can get at what is kept here")


def nearest(path: Path) -> Path:
    """The folder itself, or the one above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def fsync(path: Path) -> Iterable[Finding]:
    """How long the disk takes to keep something for good; every commit waits for that."""
    there = nearest(path)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            times = []
            for _ in range(FSYNCS):
                file.write(bytes(4096))
                file.flush()
                started = time.perf_counter()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - started) * 1_000)
    except OSError as error:
        yield Finding("fsync", "warn", f"could not be tried: {error.strerror}")
        return
    median = sorted(times)[FSYNCS // 2]
    hint = (
        "single pushes will wait for the disk; push in batches, or use a faster disk" if median > SLOW_FSYNC_MS else ""
    )
    yield Finding("fsync", "warn" if hint else "ok", f"{median:.2f} ms", hint)


async def port(settings: ServerSettings) -> list[Finding]:
    """That the address may be listened on and is free, or that it is a Skep that has it."""
    where = f"{settings.host}:{settings.port}"
    try:
        addresses = resolve(settings.host, settings.port)
        check_exposure(addresses, insecure=settings.insecure, authenticated=settings.access.required is not False)
    except SkepError as error:
        return [Finding("address", "fail", where, error.message)]
    try:
        for bound in bind(addresses):
            bound.close()
    except SkepError as error:
        if await is_skep(str(addresses[0].place[0]), settings.port):
            return [Finding("address", "info", f"{where} has a Skep that answers", "another needs a port of its own")]
        return [Finding("address", "fail", where, error.message)]
    return [Finding("address", "ok", f"{where} is free")]


async def is_skep(host: str, number: int) -> bool:
    """Whether what listens there answers like a Skep."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            reader, writer = await asyncio.open_connection(host, number)
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            # Head and body may come one after the other; whatever else listens there may never stop.
            while len(answer) < HEALTH_BYTES and (piece := await reader.read(HEALTH_BYTES)):
                answer += piece
            writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"HTTP/1.1 200 ") and b'"status":"ok"' in answer


def extras() -> list[Finding]:
    """What is installed beside the base."""
    found = []
    for extra, (module, purpose) in EXTRAS.items():
        if find_spec(module) is not None:
            found.append(Finding(f"extra {extra}", "ok", f"{module} is installed"))
        else:
            hint = f"for {purpose}: pip install 'skep[{extra}]'"
            found.append(Finding(f"extra {extra}", "info", "not installed", hint))
    return found


async def java() -> list[Finding]:
    """Java, which only Spark needs."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return [Finding("java", "info", "none found", "only Spark pipelines need one, 17 or newer")]
    try:
        async with asyncio.timeout(JAVA_SECONDS):
            process = await asyncio.create_subprocess_exec(
                program, "-version", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            _, said = await process.communicate()
    except (OSError, TimeoutError):
        return [Finding("java", "info", f"{program} does not run", "only Spark pipelines need it")]
    first = said.decode(errors="replace").strip().partition("\n")[0]
    return [Finding("java", "info", first or program)]
