"""Is this machine fit to serve? Each check looks at one thing, changes nothing, and says what to do when it is not well."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import apsw
from msgspec import Struct

from skep.access import presence
from skep.config import ServerSettings
from skep.crypto.sources import load_master_keys
from skep.errors import SkepError
from skep.http.address import bind, check_exposure, resolve
from skep.private import opened_to_others
from skep.server import is_shared, private_paths, secret_paths, sqlite_file
from skep.spec import App, SpecError, from_json
from skep.spec.secrets import secret_files
from skep.store.migrate import load_migrations, missing_migrations

State = Literal["ok", "info", "warn", "fail"]

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 45, 0)
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
UNUSED_SECONDS = 7 * 86_400
UNUSED_NAMED = 5


class Finding(Struct, frozen=True):
    """What one check found; ``hint`` says what to do about it."""

    check: str
    state: State
    found: str
    hint: str = ""


async def examine(settings: ServerSettings, secret_file: Path | None = None) -> list[Finding]:
    """Everything that `skep serve` would need with these settings; ``secret_file`` is the settings file, when it holds a secret."""
    secrets = secret_paths(settings) if secret_file is None else [secret_file, *secret_paths(settings)]
    store, documents, sealed = settings.store or "", list[bytes](), False
    findings = [*python(), *await asyncio.to_thread(lambda: list(sqlite()))]
    if is_shared(store):
        from skep.doctor_postgres import applied, postgres

        found = await postgres(store)
        findings += found
        if settings.spool.enabled:  # where pushes are kept while the database is away
            findings += await asyncio.to_thread(lambda: list(folder(Path(settings.data_folder))))
        if not any(one.state == "fail" for one in found):
            documents, sealed = await applied(store)
    elif (database := sqlite_file(settings)) is not None:
        findings += await asyncio.to_thread(file, database)
        documents = await asyncio.to_thread(sqlite_apps, database)
        sealed = await asyncio.to_thread(sqlite_sealed, database)
    secrets += secret_files(apps_of(documents), os.environ)
    findings += await asyncio.to_thread(lambda: list(permissions(private_paths(settings), secrets)))
    findings += await asyncio.to_thread(lambda: list(master_keys(settings.encryption.master_keys, sealed)))
    return [*findings, *await port(settings), *extras(), *await java()]


def file(path: Path) -> list[Finding]:
    """Everything about an SQLite file."""
    return [*folder(path.parent), *fsync(path.parent), *sqlite_schema(path), *sqlite_groups(path), *holder(path)]


def python() -> Iterable[Finding]:
    """The interpreter."""
    version = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding("python", "ok", version)
    else:
        yield Finding("python", "fail", version, "Skep needs Python 3.11 or newer")


def sqlite() -> Iterable[Finding]:
    """The SQLite that comes with Skep, and that its WAL works."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < OLDEST_SQLITE:
        yield Finding("sqlite", "warn", version, "upgrade apsw: older ones can damage a WAL in rare cases")
    else:
        yield Finding("sqlite", "ok", version)
    with tempfile.TemporaryDirectory() as place:
        db = apsw.Connection(str(Path(place) / "probe.db"))
        mode = str(db.execute("PRAGMA journal_mode = WAL").fetchall()[0][0])
        db.close()
    if mode == "wal":
        yield Finding("sqlite wal", "ok", "works")
    else:
        yield Finding("sqlite wal", "fail", f"journal mode {mode}", "is the temporary folder on a network file system?")


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


def sqlite_apps(path: Path) -> list[bytes]:
    """The specs that were applied; none of a database that cannot be read, or has no room for them yet."""
    if not path.exists():
        return []
    try:
        return [bytes(document) for (document,) in _rows(path, "SELECT document FROM app")]
    except apsw.Error:
        return []


def sqlite_sealed(path: Path) -> bool:
    """Whether there are keys of encrypted queues."""
    if not path.exists():
        return False
    try:
        return bool(_rows(path, "SELECT 1 FROM data_key LIMIT 1"))
    except apsw.Error:
        return False


def apps_of(documents: Iterable[bytes]) -> Iterator[App]:
    """The apps that specs declare; those that this program cannot read are left out."""
    for document in documents:
        with suppress(SpecError):
            yield from_json(document)


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


def master_keys(source: str | None, needed: bool) -> Iterable[Finding]:
    """That the server gets its master keys. A command that would print them is not run."""
    if source is None and needed:
        hint = "set encryption.master_keys: the server does not start without"
        yield Finding("master keys", "fail", "queues are encrypted, and no master keys are named", hint)
    if source is None or source.startswith("command:"):
        return
    try:
        load_master_keys(source, os.environ)
    except SkepError as error:
        yield Finding("master keys", "fail", error.message, "the server does not start without its master keys")
    else:
        yield Finding("master keys", "ok", "there are some")


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


def sqlite_schema(path: Path) -> Iterable[Finding]:
    """That the database can be read, and is none of a newer Skep. Read-only, so a server may be running on it."""
    if not path.exists():
        yield Finding("store", "ok", f"{path} is not there yet and will be made")
        return
    try:
        rows = _rows(path, "SELECT number, checksum FROM migration")
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield Finding("store", "fail", f"{path}: {error}", "restore a backup, or move the file away")
        return
    except apsw.Error as error:
        hint = "nothing says that the file is damaged: check its owner, its mode, the folder, and that the disk is not read-only"
        yield Finding("store", "fail", f"{path}: {error}", hint)
        return
    yield schema("skep.store.sqlite", {int(str(number)): str(checksum) for number, checksum in rows}, str(path))


def sqlite_groups(path: Path) -> Iterable[Finding]:
    """Whether groups that nobody uses hold back their queues. Nothing is said of a database that is not up to date."""
    if not path.exists():
        return
    try:
        rows = _rows(path, _UNUSED_GROUPS, time.time_ns() // 1_000 - UNUSED_SECONDS * 1_000_000)
    except apsw.Error:
        return
    yield unused_groups([(str(queue), str(group), int(str(held))) for queue, group, held in rows])


def holder(path: Path) -> Iterable[Finding]:
    """Which server holds the file, by the file that it wrote beside it."""
    mark = presence.file_of(path)
    if not mark.exists():
        return
    try:
        found = presence.find(path)
    except SkepError as error:
        yield Finding("server", "warn", str(mark), error.message)
        return
    proved = None if found is None else presence.proved(found)
    if found is None or proved is None:
        hint = "it does no harm, and the next start replaces it; in a container, ask there"
        yield Finding("server", "info", f"{mark} was left behind: no server here proves that it wrote it", hint)
        return
    proved.connection.close()
    yield Finding("server", "ok", f"{found.address} holds the store")


def _rows(path: Path, query: str, *bound: int) -> list[Any]:
    """What a database says, read-only."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(query, bound).fetchall()
    finally:
        db.close()


_UNUSED_GROUPS = """
    SELECT q.name, g.name, max(q.floor_seq, coalesce((
               SELECT m.position & 1099511627775 FROM message AS m
               WHERE m.position BETWEEN q.id << 40 AND (q.id << 40) + 1099511627775 ORDER BY m.position DESC LIMIT 1), 0))
           - g.start_seq - g.skipped - g.completed - g.dead - g.expired AS held
    FROM queue AS q JOIN consumer_group AS g ON g.queue_id = q.id
    WHERE q.deleted_at IS NULL AND NOT g.idle AND g.active_at <= ?1
      AND (q.max_depth > 0 OR q.retention_seconds > 0 OR q.completed_retention_seconds > 0)
    ORDER BY held DESC
"""


def unused_groups(found: Sequence[tuple[str, str, int]]) -> Finding:
    """What to say of groups that nobody used for long, with what each has yet to settle, the most first."""
    holding = [(queue, group, held) for queue, group, held in found if held > 0]
    if not holding:
        return Finding("groups", "ok", "none that nobody uses holds back its queue")
    named = ", ".join(f"{group!r} of {queue!r} ({held:,} messages)" for queue, group, held in holding[:UNUSED_NAMED])
    more = f" and {len(holding) - UNUSED_NAMED} more" if len(holding) > UNUSED_NAMED else ""
    return Finding(
        "groups",
        "warn",
        f"nobody has used {named}{more} for {UNUSED_SECONDS // 86_400} days; retention and max_depth wait for them",
        "skep group delete QUEUE GROUP if nobody needs it, or set group_idle_seconds",
    )


def schema(package: str, applied: Mapping[int, str], place: str) -> Finding:
    """How the schema of a store (number and checksum of each migration) compares with what this program knows."""
    known = load_migrations(resources.files(package).joinpath("migrations"))
    try:
        missing = missing_migrations(known, applied, place)
    except SkepError as error:
        return Finding("store", "fail", place, error.message)
    if missing:
        found = f"{place}: schema {len(known) - len(missing)} of {len(known)}"
        return Finding("store", "info", found, "the next start brings it up to date")
    return Finding("store", "ok", f"{place}: schema {len(known)} is current")


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
