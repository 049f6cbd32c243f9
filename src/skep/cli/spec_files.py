"""Read and write spec files: problems are printed line by line, and a file is replaced whole."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from skep.cli.exits import printable
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.spec import App

STDIN = "-"
STDIN_NAME = "<stdin>"
FILE_BYTES = 16 * 1024 * 1024
"""No file may be longer: a wrong name must not fill the memory."""
PROBLEMS_SHOWN = 100


def read_text(file: str) -> str:
    """The text of a file, or of stdin."""
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(FILE_BYTES + 1) if sys.stdin else b""
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(FILE_BYTES + 1)
    except OSError as error:
        raise SkepError(Code.INVALID_REQUEST, f"{file} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES:
        raise SkepError(Code.INVALID_REQUEST, f"{shown_name(file)} is longer than {FILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SkepError(Code.INVALID_REQUEST, f"line {line} of {shown_name(file)} is not UTF-8") from None


def shown_name(file: str) -> str:
    """The name of a file in errors."""
    return STDIN_NAME if file == STDIN else file


def load_file(file: str) -> App:
    """Load a valid spec. For an invalid one, print all problems and raise SystemExit."""
    from skep.spec import SpecError, load

    text = read_text(file)
    try:
        return load(text, shown_name(file))
    except SpecError as error:
        print_problems(error.message.split("\n"))
        raise SystemExit(1) from None


def print_problems(lines: Iterable[str], to_stdout: bool = False) -> None:
    """Rendered problems, line by line. They quote the file, so characters that could steer a terminal are replaced."""
    page = sys.stdout if to_stdout else sys.stderr
    for line in lines:
        # Tabs stay: the caret under the line is placed by them.
        page.write("\t".join(printable(part) for part in line.split("\t")) + "\n")


def replace_text(file: str, text: str) -> None:
    """Write a file whole or not at all, and keep its permissions. Of a link, the file that it points at is written."""
    path = Path(file).resolve()
    try:
        mode = path.stat().st_mode & 0o777
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(text.encode())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SkepError(Code.INVALID_REQUEST, f"{file} cannot be written: {error.strerror}") from None
