"""Statements by name, from the ``.sql`` files beside a store's code.

A file has sections that start with ``-- name: the_name``. The comments below that line explain the statement and name the index that
it uses. A section that starts with ``-- part: the_name`` is part of several statements: in these, ``{the_name}`` stands for it. A file is
loaded once, when its module is imported.

``{settings}`` stands for the columns of a queue's settings, in the order of `QueueSettings`; ``{settings from $5}`` for as many
parameters, numbered from 5 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from skep.model import QueueSettings

_SECTION = re.compile(r"^-- (name|part): ([a-z_]+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PART = re.compile(r"{([a-z_]+)}")
_SETTINGS = re.compile(r"{settings(?: from (?P<sign>[$?])(?P<first>\d+))?}")


def load_statements(package: str, file: str) -> Mapping[str, str]:
    """The statements of a package's ``<file>.sql`` by name, without their comments."""
    text = resources.files(package).joinpath(f"{file}.sql").read_text(encoding="utf-8")
    split = _SECTION.split(text)
    kinds, names = split[1::3], split[2::3]
    if len(set(names)) != len(names):
        raise ValueError(f"{file}.sql names a statement twice")
    bodies = [_SETTINGS.sub(_settings, _COMMENT.sub("", body).strip()) for body in split[3::3]]
    parts = {name: body for kind, name, body in zip(kinds, names, bodies, strict=True) if kind == "part"}
    return MappingProxyType(
        {
            name: _PART.sub(lambda place: parts[place[1]], body)
            for name, body in zip(names, bodies, strict=True)
            if name not in parts
        }
    )


def _settings(place: re.Match[str]) -> str:
    names = QueueSettings.__struct_fields__
    if place["sign"] is None:
        return ", ".join(names)
    return ", ".join(
        f"{place['sign']}{number}" for number in range(int(place["first"]), int(place["first"]) + len(names))
    )


def repeated(statement: str, rows: int, first: int) -> str:
    """A statement that inserts one row (parameters in braces), changed to insert ``rows``; parameters are numbered from ``first`` on."""
    head, values = statement.split("VALUES ", 1)
    row, tail = values[: values.index(")") + 1], values[values.index(")") + 1 :]
    own = row.count("{}")
    numbered = (row.format(*range(first + n * own, first + (n + 1) * own)) for n in range(rows))
    return f"{head}VALUES {', '.join(numbered)}{tail}"
