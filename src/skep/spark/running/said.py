"""The error of a run as text for people, without Spark's call names and pages of Java."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

from skep.errors import Code, SkepError
from skep.runtime.private_files import FILE_MODE

MOST_CHARACTERS = 1_000
_CALL = "An error occurred while calling "
"""The beginning of every error from Spark's bridge to Java. This line names the call, the next line the error."""
_CAUSE = "Caused by: "
_OURS = re.compile(r"(?:SkepError|AnsweredError|UnreachableError): ([A-Z_]+)")
"""An error of ours with its code, as Spark passes it on."""
_TRACEBACK = "Traceback (most recent call last):\n"


def code_of(error: BaseException) -> Code | None:
    """The code of our own error, also when Spark passed it on as text."""
    if isinstance(error, SkepError):
        return error.code
    text = str(error)
    names = [*_OURS.findall(text), text.partition(": ")[0]]
    return next((Code(name) for name in names if name in Code.__members__), None)


def told(error: BaseException) -> str:
    """The error and its root cause in one line, without the Java around them."""
    if isinstance(error, SkepError):
        return error.message
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    ours = [line for line in lines if _OURS.search(line)]
    if ours:
        return ours[-1][[found.start(1) for found in _OURS.finditer(ours[-1])][-1] :][:MOST_CHARACTERS]
    if (raised := _raised(str(error))) is not None:
        return raised[:MOST_CHARACTERS]
    if lines[0].startswith(_CALL) and len(lines) > 1:
        lines = [lines[1].removeprefix(":").strip(), *lines[2:]]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    cause = f" (caused by {causes[-1]})" if causes and causes[-1] not in lines[0] else ""
    return f"{lines[0]}{cause}"[:MOST_CHARACTERS]


def _raised(text: str) -> str | None:
    """The error of a Python process of Spark: the first line after the last traceback that is not indented."""
    _, begins, rest = text.rpartition(_TRACEBACK)
    if not begins:
        return None
    return next((line for line in rest.splitlines() if line and not line[0].isspace()), None)


def write_whole_error(error: BaseException, log: Path) -> None:
    """Append the full traceback of an error to a log file."""
    text = "".join(traceback.format_exception(error))
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE), "w", encoding="utf-8") as file:
        file.write(text)
