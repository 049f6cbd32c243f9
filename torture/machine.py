"""On what a run runs: the code, the machine, and the versions below the server."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import apsw
import psutil

from torture.result import Machine
from torture.site import Site

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "torture", ":!torture/results")
"""What decides what a run does, in the words of git."""
MEBIBYTE = 1024 * 1024


def machine(site: Site) -> Machine:
    """The machine, and the versions of what is below the server."""
    postgres = None if site.postgres is None else site.postgres.execute("show server_version").strip()
    return Machine(
        os.cpu_count() or 0,
        psutil.virtual_memory().total // MEBIBYTE,
        platform.platform(),
        platform.python_version(),
        apsw.sqlite_lib_version(),
        postgres,
    )


def commit() -> tuple[str | None, bool]:
    """The commit of this clone, and whether its code was changed since; None outside of a clone."""
    found = _git("rev-parse", "HEAD")
    return (found or None), bool(found and _git("status", "--porcelain", "--", *CODE))


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
