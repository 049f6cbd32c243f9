"""The identity of a consumer: a client sends it with each pop in the header `Skep-Consumer`. The server shows it with the lease.

    Skep-Consumer: name="mailer", host="web-3", version="0.9.0", pid="4711"

Values are percent-encoded, so that no name can break the header.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from skep import __version__

HEADER = "Skep-Consumer"
HEADER_BYTES = 200
HOST_BYTES = 64
VERSION_BYTES = 32
"""The most of host and version; the name gets what they leave of the header."""


def consumer_header(name: str | None) -> str:
    """The header's value for a client of this name, or of a program's when it has none. A forked process has a pid of its own."""
    return _written(name or program_name(), socket.gethostname(), __version__, os.getpid())


@lru_cache(maxsize=64)
def _written(name: str, host: str, version: str, pid: int) -> str:
    rest = f'host="{_cut(host, HOST_BYTES)}", version="{_cut(version, VERSION_BYTES)}", pid="{pid}"'
    return f'name="{_cut(name, HEADER_BYTES - len(rest) - len(_EMPTY_NAME))}", {rest}'


_EMPTY_NAME = 'name="", '


def _cut(text: str, most: int) -> str:
    """The text percent-encoded, as many whole characters of it as fit."""
    written = ""
    for character in text:
        one = quote(character, safe="", errors="replace")
        if len(written) + len(one) > most:
            break
        written += one
    return written


@lru_cache(maxsize=1)
def program_name() -> str:
    """The name of the running program: its file, or the module of ``python -m``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c") else ""
    return name or "python"
