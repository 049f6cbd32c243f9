"""Where Java writes what it has to say: into a file, since errors reach us as exceptions and the rest is for whoever looks for it.

It may also live longer than we do (`shared_classes`), and whoever reads our output to its end should not wait for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STREAMS = (1, 2)


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write there, for as long as they live. What Python writes meanwhile goes there, too."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = {stream: os.dup(stream) for stream in STREAMS}
    try:
        _flush()
        for stream in STREAMS:
            os.dup2(file, stream)
        yield
    finally:
        _flush()
        for stream, before in kept.items():
            os.dup2(before, stream)
            os.close(before)
        os.close(file)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
