"""What is kept on this machine and can be made anew at any time: a folder, and small programs in it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from skep.runtime.private_files import make_folder


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where such things are."""
    environment = os.environ if environment is None else environment
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skep"


def write_program(path: Path, text: str) -> None:
    """Have a script there, as it is written now."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    make_folder(path.parent)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o700)
    fresh.replace(path)  # whoever starts one at the same time finds the old or the new one, whole
