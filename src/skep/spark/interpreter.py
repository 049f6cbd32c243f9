"""Which Python runs Spark's Python processes on this machine: ours, and quicker to start than Spark would start it.

Spark puts archives before everything else that Python looks for modules in: its own package as sources, which each process
compiles anew, and the jar of its core, whose list of contents each process reads. That takes a second or more of every process, of
which a stream has one and a session five before its first row. In a session on this machine the same package is installed, and compiled.
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

from skep.spark.cached import cache_folder, write_program

ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-*-src.zip", "jars/spark-core_*.jar")
"""What Spark puts into the path, from the folder it is in. What they hold for Python is installed."""
PACKAGES = ("pyspark", "py4j")
# Not sh: it may drop variables of the environment whose names are none in a shell. Spark's own scripts need bash, too.
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
exec {python} "$@"
"""


def interpreter(environment: Mapping[str, str] | None = None) -> str:
    """What to start Spark's Python processes with: a program that becomes this Python, or this Python where that is not possible."""
    environment = os.environ if environment is None else environment
    home = _installed(environment)
    if home is None:
        return sys.executable
    archives = [shlex.quote(str(file)) for pattern in ARCHIVES for file in sorted(home.glob(pattern))]
    text = PROGRAM.format(archives=" | ".join(archives), python=shlex.quote(sys.executable))
    try:
        program = cache_folder(environment) / f"python-{sha256(text.encode()).hexdigest()[:16]}"
        write_program(program, text)
    except (OSError, RuntimeError, ValueError):  # as when there is no home, or a path is not UTF-8
        return sys.executable
    # A folder may be such that nothing in it can be run.
    return str(program) if os.access(program, os.X_OK) else sys.executable


def _installed(environment: Mapping[str, str]) -> Path | None:
    """The folder of the Spark that will run, if its Python packages are where every process of this Python finds them."""
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    folders = [Path(found.origin).resolve().parent for found in map(find_spec, PACKAGES) if found and found.origin]
    if len(folders) < len(PACKAGES) or any(folder.parent not in places for folder in folders):
        return None
    named = environment.get("SPARK_HOME")
    return folders[0] if named is None or Path(named).resolve() == folders[0] else None
