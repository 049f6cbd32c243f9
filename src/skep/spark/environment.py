"""Check whether this Python has the packages that Spark needs, and name the cure: often another environment has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from skep.errors import Code, SkepError

NEEDED = ("pyspark", "pyarrow")
INSTALL = "pip install 'skep[spark]'"


def missing(needed: Sequence[str] = NEEDED) -> list[str]:
    """The packages of the extra `spark` that this Python lacks."""
    return [name for name in needed if find_spec(name) is None]


def cure(lacking: Sequence[str], folder: Path | None = None) -> str:
    """The cure for missing packages: use the environment that has them, or install them into this one."""
    told = f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed for {sys.executable}. "
    found = _environment(folder or Path.cwd())
    if found is not None:
        return f"{told}There is an environment in {found}: run `. {found}/bin/activate` first. Or install it here: {INSTALL}"
    return f"{told}Install it: {INSTALL}. Or activate the environment that has it: `. .venv/bin/activate`"


def check(needed: Sequence[str] = NEEDED) -> None:
    """INVALID_REQUEST with the cure when packages are missing: an import error would only name a module."""
    if lacking := missing(needed):
        raise SkepError(Code.INVALID_REQUEST, cure(lacking))


def _environment(folder: Path) -> Path | None:
    """The virtual environment of this folder, or of the nearest folder above; None when it is the one that runs."""
    for place in (folder, *folder.parents):
        found = place / ".venv"
        if os.access(found / "bin" / "python", os.X_OK):
            return found if found.resolve() != Path(sys.prefix).resolve() else None
    return None
