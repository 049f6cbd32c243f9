"""Send Java's output to a file. Errors reach us as exceptions, and hardly anybody needs the rest.

Java may also outlive this process (see `shared_classes`), and a reader of our output must not wait for Java's end.
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
    """Send the output of this block to a file. Processes that start in it write there for as long as they live."""
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
    """Turn off logs and warnings in this block."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(before)


def _open_streams() -> dict[int, TextIO]:
    """Our open output streams, by file descriptor. The parent process may have closed them."""
    return {number: stream for number, stream in ((1, sys.stdout), (2, sys.stderr)) if stream is not None}


def _flush() -> None:
    for stream in _open_streams().values():
        stream.flush()
