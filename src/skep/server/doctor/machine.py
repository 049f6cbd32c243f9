"""What `skep doctor` looks at in the machine: disk, permissions, the address, extras, Java."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from skep.config import ServerSettings
from skep.errors import SkepError
from skep.http.connection.address import bind, check_exposure, resolve
from skep.runtime.fitness import Finding, nearest
from skep.runtime.private_files import opened_to_others

SLOW_FSYNC_MS = 20.0
FSYNCS = 10
EXTRAS = {
    "access": ("jwt", "tokens (JWT)"),
    "arrow": ("pyarrow", "Arrow in bulk routes and the client"),
    "dashboard": ("jinja2", "the dashboard"),
    "otlp": ("opentelemetry.exporter.otlp.proto.http", "telemetry for a collector of OpenTelemetry"),
    "iceberg": ("pyiceberg", "lakes of Iceberg"),
    "postgres": ("asyncpg", "PostgreSQL"),
    "spark": ("pyspark", "Spark pipelines"),
}
"""The module that tells whether an extra is installed, and what the extra is for."""
HEALTH_SECONDS = 10.0
HEALTH_BYTES = 64 * 1024


def permissions(kept: Iterable[Path], secrets: Iterable[Path]) -> Iterable[Finding]:
    """Check that no other account of this machine can read the server's files or its secrets."""
    paths = [*kept, *secrets]
    if not paths:
        return
    loose = opened_to_others(paths)
    for path, cure in loose.items():
        yield Finding("permissions", "warn", f"other accounts can get at {path}", cure)
    if not loose:
        yield Finding("permissions", "ok", "no other account can get at what is kept here")


def fsync(path: Path) -> Iterable[Finding]:
    """Measure an fsync of the disk: every commit waits for one."""
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
    """Check that each address may be used and is free, or that a Skep server has it."""
    found = [await _address(settings, "address", settings.port, "--port")]
    if settings.queen_port is not None:
        found.append(await _address(settings, "address for Queen", settings.queen_port, "--queen-port"))
    return found


async def _address(settings: ServerSettings, what: str, number: int, flag: str) -> Finding:
    where = f"{settings.host}:{number}"
    try:
        addresses = resolve(settings.host, number)
        check_exposure(addresses, insecure=settings.insecure, authenticated=settings.access.required is not False)
    except SkepError as error:
        return Finding(what, "fail", where, error.message)
    try:
        for bound in bind(addresses, flag):
            bound.close()
    except SkepError as error:
        if await is_skep(str(addresses[0].place[0]), number):
            return Finding(what, "info", f"{where} has a Skep that answers", "another needs a port of its own")
        return Finding(what, "fail", where, error.message)
    return Finding(what, "ok", f"{where} is free")


async def is_skep(host: str, number: int) -> bool:
    """Whether the program that listens there answers like a Skep server."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            reader, writer = await asyncio.open_connection(host, number)
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            # Head and body may come one after the other; another program may never stop sending.
            while len(answer) < HEALTH_BYTES and (piece := await reader.read(HEALTH_BYTES)):
                answer += piece
            writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"HTTP/1.1 200 ") and (b'"status":"ok"' in answer or b'"server":"skep"' in answer)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that it would be in
        return False


def extras() -> list[Finding]:
    """Check which extras are installed."""
    found = []
    for extra, (module, purpose) in EXTRAS.items():
        if _is_installed(module):
            found.append(Finding(f"extra {extra}", "ok", f"{module} is installed"))
        else:
            hint = f"for {purpose}: pip install 'skep[{extra}]'"
            found.append(Finding(f"extra {extra}", "info", "not installed", hint))
    return found


def java() -> Finding:
    """The Java that Spark would run on; nothing else needs one."""
    from skep.spark.java import OLDEST, candidates, version_of

    hint = f"only Spark pipelines need one, {OLDEST} or newer"
    found = [(home, version) for home in candidates(os.environ) if (version := version_of(home)) is not None]
    home, version = max(found, key=lambda one: one[1] >= OLDEST, default=(None, 0))
    if home is None:
        return Finding("java", "info", "none found", hint)
    return Finding("java", "info", f"Java {version} in {home}", "" if version >= OLDEST else hint)
