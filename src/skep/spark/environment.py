"""Whether this Python has what Spark needs, and what to do when it has not: most often there is another Python that does."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from skep.errors import Code, SkepError

NEEDED = ("pyspark", "pyarrow")
INSTALL = "pip install 'skep[spark]'"


def missing() -> list[str]:
    """What the extra `spark` would bring and this Python lacks."""
    return [name for name in NEEDED if find_spec(name) is None]


def cure(lacking: Sequence[str], folder: Path | None = None) -> str:
    """What is missing where, and how to go on: with the environment that has it, or by installing it into this one."""
    told = f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed for {sys.executable}. "
    found = _environment(folder or Path.cwd())
    if found is not None:
        return f"{told}There is an environment in {found}: run `. {found}/bin/activate` first. Or install it here: {INSTALL}"
    return f"{told}Install it: {INSTALL}. Or activate the environment that has it: `. .venv/bin/activate`"


def check() -> None:
    """INVALID_REQUEST with the cure, when something is missing: an import would only say which module there is not."""
    if lacking := missing():
        raise SkepError(Code.INVALID_REQUEST, cure(lacking))


def _environment(folder: Path) -> Path | None:
    """The environment of this folder, or of one above it, where it is not the one that runs."""
    for place in (folder, *folder.parents):
        found = place / ".venv"
        if os.access(found / "bin" / "python", os.X_OK):
            return found if found.resolve() != Path(sys.prefix).resolve() else None
    return None
