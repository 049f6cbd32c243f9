"""Findings about a machine (`doctor`), and the checks that servers and pipelines share."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

State = Literal["ok", "info", "warn", "fail"]
OLDEST_PYTHON = (3, 11)
LITTLE_ROOM_BYTES = 1024**3
NO_ROOM_BYTES = 64 * 1024**2


class Finding(Struct, frozen=True):
    """The finding of one check; ``hint`` says what to do about it."""

    check: str
    state: State
    found: str
    hint: str = ""


def python() -> Finding:
    """Check the version of Python."""
    version = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", "ok", f"{version} in {sys.executable}")
    return Finding("python", "fail", version, "Skep needs Python 3.11 or newer")


def folder(check: str, path: Path, elsewhere: str) -> Iterator[Finding]:
    """Check that a folder can be written, and that its disk has room; ``elsewhere`` says how to name another one."""
    there = nearest(path)
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding(check, "fail", f"{there} cannot be written", f"change its owner, or {elsewhere}")
    elif there != path.absolute():
        yield Finding(check, "ok", f"{path} is not there yet and will be made")
    else:
        yield Finding(check, "ok", f"{path} can be written")
    free = shutil.disk_usage(there).free
    state: State = "ok" if free >= LITTLE_ROOM_BYTES else "warn" if free >= NO_ROOM_BYTES else "fail"
    hint = "" if state == "ok" else f"make room, or {elsewhere} on another disk"
    yield Finding("disk", state, f"{free / 1024**3:.1f} GiB free", hint)


def nearest(path: Path) -> Path:
    """The folder itself, or the one above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
