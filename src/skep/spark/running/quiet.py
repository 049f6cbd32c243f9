"""Java's output goes into a file: errors reach us as exceptions, and the rest matters only to somebody who looks for it.

Java may also outlive this process (`shared_classes`), and a reader of our output should not have to wait for its end.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from skep.runtime.private_files import FILE_MODE


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write there, for as long as they live. What Python writes meanwhile goes there, too."""
    _flush()
    with ExitStack() as stack:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
        stack.callback(os.close, file)
        for number in _open_streams():
            before = os.dup(number)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, number)
            os.dup2(file, number)
        stack.callback(_flush)
        yield


@contextmanager
def unsaid() -> Iterator[None]:
    """Nobody hears of what is logged and warned of meanwhile."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(before)


def _open_streams() -> dict[int, TextIO]:
    """Our output by its number. Whoever started us may have closed it."""
    return {number: stream for number, stream in ((1, sys.stdout), (2, sys.stderr)) if stream is not None}


def _flush() -> None:
    for stream in _open_streams().values():
        stream.flush()
