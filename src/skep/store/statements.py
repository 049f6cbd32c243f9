"""Loads SQL from the files beside a store.

A file holds statements, each behind a line ``-- name: what_it_does`` and the comment that explains it.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_statements(package: str, file_name: str) -> dict[str, str]:
    """The named statements of one file of a package."""
    text = files(package).joinpath(file_name).read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
