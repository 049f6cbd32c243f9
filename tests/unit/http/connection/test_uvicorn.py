"""What is used of uvicorn: its server, and nothing that a minor version may change."""

from __future__ import annotations

import re
from pathlib import Path

import uvicorn

import skep
from skep.http.connection.listening import Listener

USED = {"import uvicorn", "from uvicorn import Config", "from uvicorn.server import ServerState"}
_IMPORT = re.compile(r"^\s*(?:from uvicorn\S* import .*|import uvicorn.*)$", re.MULTILINE)


def test_nothing_else_is_imported() -> None:
    [package] = skep.__path__
    found = {line.strip() for path in Path(package).rglob("*.py") for line in _IMPORT.findall(path.read_text())}

    assert found == USED


def test_no_private_name_is_overridden() -> None:
    private = {name for name in vars(uvicorn.Server) if name.startswith("_") and not name.startswith("__")}

    assert private, "it has some"
    assert not private & vars(Listener).keys()
