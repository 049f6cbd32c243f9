"""Files and folders that are for their owner alone, whatever the umask is, and which of them are not.

What is made here from the start is private. What was there before stays as it is: others may have been let in on purpose, a backup for
example. Whoever asks is told, with the command that changes it.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077
_ENTER = 0o011


def make_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless it is there; folders above it are made as usual."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file for its owner alone, unless it is there. Whoever opens it next says what is wrong, if anything is."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))


def opened_to_others(paths: Iterable[Path]) -> dict[Path, str]:
    """Those that other accounts can read or change, each with the command that keeps them out.

    A file in a folder that others cannot enter is safe whatever its own mode is.
    """
    found = {}
    for path in paths:
        try:
            about, above = path.stat(), path.absolute().parent.stat()
        except OSError:
            continue  # not there, or not ours to see
        is_folder = stat.S_ISDIR(about.st_mode)
        if about.st_mode & OTHERS and (is_folder or above.st_mode & _ENTER):
            found[path] = f"chmod {FOLDER_MODE if is_folder else FILE_MODE:o} {shlex.quote(str(path))}"
    return found


def account() -> str:
    """Whose process this is, as the system knows it. Variables such as LOGNAME say whatever somebody sets them to."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # an account that only a container knows by its number
        return f"uid {uid}"
