"""Which Python runs Spark's Python processes on this machine: ours, and quicker to start than Spark would start it.

Spark puts archives before everything else that Python looks for modules in: its own package as sources, which each process
compiles anew, and the jar of its core, whose list of contents each process reads. That takes some 0.6 of the 2 seconds until a
stream has started, or a session has read its first row. In a session on this machine the same package is installed, and compiled.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from skep.spark.cached import cache_folder, write_program

PROGRAM = """#!/bin/sh
# Python without the archives that Spark puts before its own package, which is installed here.
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
    case $place in
    '' | */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) kept=$kept${{kept:+:}}$place ;;
    esac
done
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def interpreter(environment: Mapping[str, str] | None = None) -> str:
    """What to start Spark's Python processes with: a program that becomes this Python, or this Python where that is not possible."""
    environment = os.environ if environment is None else environment
    if not _is_installed(environment):
        return sys.executable
    try:
        program = cache_folder(environment) / f"python-{sha256(sys.executable.encode()).hexdigest()[:16]}"
        write_program(program, PROGRAM.format(python=shlex.quote(sys.executable)))
    except (OSError, RuntimeError):  # as when there is no home
        return sys.executable
    # A folder may be such that nothing in it can be run.
    return str(program) if os.access(program, os.X_OK) else sys.executable


def _is_installed(environment: Mapping[str, str]) -> bool:
    """Whether the Spark that will run is the one whose Python package is installed here."""
    found = find_spec("pyspark")
    if found is None or found.origin is None or not Path(found.origin).is_file():  # in an archive, it is no file
        return False
    home = environment.get("SPARK_HOME")
    return home is None or Path(home).resolve() == Path(found.origin).resolve().parent
