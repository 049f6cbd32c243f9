"""Where Java writes what it has to say: into a file, since errors reach us as exceptions and the rest is for whoever looks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their stderr there, for as long as they live. Python's own goes there, too."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
