"""The Python of Spark's Python processes on this machine: this one, without the archives that make it start slowly.

Spark puts archives at the head of PYTHONPATH: the sources of its own package, which each process compiles anew, and the jar of its
core, whose table of contents each process reads. That costs every process a second or more; a stream has one such process, and a session
five before its first row. On this machine the same package is installed and compiled, so the archives are not needed.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from skep.spark import stream_process
from skep.spark.cached import cache_folder, write_program

ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-*-src.zip", "jars/spark-core_*.jar")
"""The archives that Spark puts into PYTHONPATH, relative to its folder. Their Python packages are installed."""
PACKAGES = ("pyspark", "py4j")
# Not sh: it may drop environment variables whose names a shell cannot have. Spark's own scripts need bash, too.
PROGRAM = """#!/usr/bin/env bash
# Python without the archives that Spark puts before its own package, which is installed here.
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
    case $place in
    '' | {archives}) ;;
    *) kept=$kept${{kept:+:}}$place ;;
    esac
done
export PYTHONPATH="$kept"
[ "$*" != "-m:{runner}" ] || set -- -m {ours}
exec {python} "$@"
"""


def interpreter(environment: Mapping[str, str] | None = None) -> str:
    """The program for Spark's Python processes: a script that starts this Python, or this Python where there can be no script."""
    environment = os.environ if environment is None else environment
    home = _installed(environment)
    if home is None:
        return sys.executable
    archives = [shlex.quote(str(file)) for pattern in ARCHIVES for file in sorted(home.glob(pattern))]
    text = PROGRAM.format(
        archives=" | ".join(archives), python=shlex.quote(sys.executable), runner=stream_process.RUNNER, ours=stream_process.__name__
    )  # fmt: skip
    try:
        program = cache_folder(environment) / f"python-{sha256(text.encode()).hexdigest()[:16]}"
        write_program(program, text)
    except (OSError, RuntimeError, ValueError):  # there is no home folder, or a path is not UTF-8
        return sys.executable
    # The file system may forbid to run programs (noexec).
    return str(program) if os.access(program, os.X_OK) else sys.executable


def _installed(environment: Mapping[str, str]) -> Path | None:
    """The folder of the Spark that will run; None unless its Python packages are in this Python's site-packages."""
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    folders = [Path(found.origin).resolve().parent for found in map(find_spec, PACKAGES) if found and found.origin]
    if len(folders) < len(PACKAGES) or any(folder.parent not in places for folder in folders):
        return None
    named = environment.get("SPARK_HOME")
    return folders[0] if named is None or Path(named).resolve() == folders[0] else None
