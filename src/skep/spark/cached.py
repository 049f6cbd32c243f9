"""The cache folder of this machine, and small programs in it. It can be deleted at any time."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from skep.runtime.private_files import make_folder


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    environment = os.environ if environment is None else environment
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skep"


def write_program(path: Path, text: str) -> None:
    """Write a script into the cache folder, unless it is there with this text."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    make_folder(path.parent)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o700)
    fresh.replace(path)  # a process that starts meanwhile finds the old file or the new one, whole
