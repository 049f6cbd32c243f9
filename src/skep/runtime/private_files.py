"""Private files and folders, whatever the umask is, and a check for those that other accounts can read.

A file that is made here is private from the start. An existing one stays as it is: others may have access on purpose, a backup for
example. The check names the command that changes it.
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
    """Make an empty file for its owner alone, unless it is there. Errors are left to the code that opens it next."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))


def opened_to_others(paths: Iterable[Path]) -> dict[Path, str]:
    """The paths that other accounts can read or change, each with the command that keeps them out.

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
    """The account of this process, from the system: anybody can set variables such as LOGNAME."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # an account that only a container knows by its number
        return f"uid {uid}"
