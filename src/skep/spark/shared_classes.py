"""Share Spark's loaded classes between Java processes (class data sharing).

A session loads some 15,000 classes, one by one out of hundreds of jars, and checks each. A Java that ends can write its classes to a
file as they lie in memory. Another Java of the same build, with the same jars, loads them from that file. So the first session on a
machine writes the file when it ends. Later sessions start, and run their first queries, in little more than half the time.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from skep.runtime.private_files import make_folder
from skep.spark.cached import cache_folder

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java checks by itself whether a file fits, and goes without it if not; nobody needs to read about that."""
UNFINISHED = bytes(4)
"""The first bytes of an unfinished file: Java writes the magic number last."""
UNUSED_SECONDS = 30 * 86_400
"""How long an unused file is kept: that of another Java or of other jars. A file takes about 200 MB."""


def sharing_options(
    java_home: Path, jars: Sequence[Path], folders: Iterable[Path] = (), environment: Mapping[str, str] | None = None
) -> str:
    """Java's options to load the classes of these jars from the file, or to write the file; empty where neither is possible.

    ``folders`` are the other folders on the class path. Java shares no classes unless they are empty.
    """
    own = java_home / "lib" / "server" / "classes.jsa"
    try:
        if any(folder.is_dir() and any(folder.iterdir()) for folder in folders):
            return ""
        # Our file builds on the file of Java's own classes, which not every Java has.
        digest = _digest([own, java_home / "bin" / "java", *jars])
        folder = cache_folder(environment)
        make_folder(folder)
        file = folder / f"classes-{digest}.jsa"
    except (OSError, RuntimeError):  # for one, there is no home folder
        return ""
    if _is_whole(file):
        with suppress(OSError):
            file.touch()
        option = f"-XX:SharedArchiveFile={file}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        return ""
    else:
        _forget_unused(folder)
        option = f"-XX:ArchiveClassesAtExit={file}"
    return f"{shlex.quote(option)} {QUIET}"


def _digest(jars: Iterable[Path]) -> str:
    """A digest of the jars. Java would notice another jar, too, but would then write no new file."""
    told = [f"{jar} {jar.resolve().stat().st_mtime_ns}" for jar in jars]
    return sha256("\n".join(told).encode()).hexdigest()[:16]


def _is_whole(file: Path) -> bool:
    try:
        with file.open("rb") as reading:
            return reading.read(len(UNFINISHED)) not in (UNFINISHED, b"")
    except OSError:
        return False


def _forget_unused(folder: Path) -> None:
    for file in folder.glob("classes-*.jsa"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - UNUSED_SECONDS:
                file.unlink()
