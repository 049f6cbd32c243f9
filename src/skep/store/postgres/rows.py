"""Rows of PostgreSQL as structs of the model."""

from __future__ import annotations

from typing import Any, TypeVar

import asyncpg
from msgspec import Struct

S = TypeVar("S", bound=Struct)


def struct_of(kind: type[S], row: asyncpg.Record, /, **given: Any) -> S:
    """A struct with the columns of the same names as its fields, but for the fields that are ``given``."""
    return kind(**{name: row[name] for name in kind.__struct_fields__ if name not in given}, **given)
