"""The fields of a message type as columns: their names, their types, and their values, read from payloads.

| spec | Spark |
|---|---|
| string, uuid, enum | string |
| int, float, bool | bigint, double, boolean |
| time | timestamp |
| list<T>, map<K, T> | array, map<string, …> |
| json | string: the text of the value, as it is written in the message |

A field that is absent has its default, or null. Null of JSON is null, but for `json`, where it is a value like others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, Struct

from skep.spark.schema import FURTHER, INSTANT, MESSAGES
from skep.spec import Misfit, compile_validator, misfit
from skep.spec.ir import ExtraFields, Fields
from skep.spec.types import Field, Type, TypeKind

OF_THE_LAKE = ("generation", "date", "payload_bytes")
TAKEN = frozenset({*MESSAGES.names, *FURTHER.names, *OF_THE_LAKE})
"""The columns of a message beside its fields, in the log and in the lake. They mean the same in every table, so no field takes their names."""
PREFIX = "message_"

_ARROW = {
    TypeKind.STRING: pa.string(), TypeKind.UUID: pa.string(), TypeKind.ENUM: pa.string(), TypeKind.JSON: pa.string(),
    TypeKind.INT: pa.int64(), TypeKind.FLOAT: pa.float64(), TypeKind.BOOL: pa.bool_(), TypeKind.TIME: INSTANT,
}  # fmt: skip
_PYTHON: dict[TypeKind, Any] = {
    # The validator has looked at uuids and enums; here they are the texts that the message has.
    TypeKind.STRING: str, TypeKind.UUID: str, TypeKind.ENUM: str, TypeKind.JSON: Raw,
    TypeKind.INT: int, TypeKind.FLOAT: float, TypeKind.BOOL: bool, TypeKind.TIME: datetime,
}  # fmt: skip
_Conversion = Callable[[Any], object]


def column_names(fields: Iterable[str]) -> dict[str, str]:
    """The column of each field: its own name, with a prefix where that name is taken. Spark does not tell capitals apart."""
    used, names = set(TAKEN), {}
    # Fields that keep their names come first, so that a new field does not move the column of another.
    for field in sorted(fields, key=lambda one: one.lower() in TAKEN):
        name = field
        while name.lower() in used:
            name = PREFIX + name
        used.add(name.lower())
        names[field] = name
    return {field: names[field] for field in fields}


def arrow_type(type_: Type) -> pa.DataType:
    """The type of a field's column, as Spark has it in Arrow."""
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return pa.list_(pa.field("element", arrow_type(type_.element)))
    if type_.kind is TypeKind.MAP and type_.element is not None:
        key = pa.field("key", pa.string(), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(type_.element)))
    return _ARROW[type_.kind]


class ReadPayloads(NamedTuple):
    """The fields of some payloads: a column for each field, null where the payload does not fit, and the misfits of those."""

    columns: list[pa.Array]
    misfits: list[Misfit | None]


class FieldReader:
    """Reads the fields of a message type from payloads. Fields that the type does not have are passed over."""

    def __init__(self, fields: Fields) -> None:
        self._validator = compile_validator(fields, ExtraFields.ALLOW)
        row = _row_type(fields)
        self._decode = msgspec.json.Decoder(row).decode
        self._nothing = row(**{f"f{index}": None for index in range(len(fields))})
        self._columns = [
            (attrgetter(f"f{index}"), _conversion(field.type), arrow_type(field.type))
            for index, field in enumerate(fields.values())
        ]

    def read(self, payloads: Sequence[bytes | None]) -> ReadPayloads:
        """The fields of these payloads. A payload that is None has neither fields nor a misfit."""
        validator, decode, nothing = self._validator, self._decode, self._nothing
        misfits = [None if payload is None else misfit(validator, payload) for payload in payloads]
        rows = [
            nothing if payload is None or unfit is not None else decode(payload)
            for payload, unfit in zip(payloads, misfits, strict=True)
        ]
        columns = []
        for value_of, convert, type_ in self._columns:
            values: Iterable[Any] = map(value_of, rows)
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            columns.append(pa.array(list(values), type_))
        return ReadPayloads(columns, misfits)


def _row_type(fields: Fields) -> type[Struct]:
    """A struct of the values. Its own field names are numbered, since a name may be a reserved word of Python."""
    described: list[Any] = []
    for index, field in enumerate(fields.values()):
        type_ = _python_type(field.type)
        described.append(
            (f"f{index}", type_) if field.required else (f"f{index}", type_, _default(field, type_))
        )  # fmt: skip
    rename = {f"f{index}": name for index, name in enumerate(fields)}
    return msgspec.defstruct("Row", described, rename=rename, kw_only=True, gc=False)


def _python_type(type_: Type) -> Any:
    if type_.kind is TypeKind.JSON:
        return Raw  # which takes null, too
    if type_.kind is TypeKind.LIST and type_.element is not None:
        bare: Any = list[_python_type(type_.element)]  # type: ignore[misc]  # made at run time
    elif type_.kind is TypeKind.MAP and type_.element is not None:
        bare = dict[str, _python_type(type_.element)]  # type: ignore[misc]
    else:
        bare = _PYTHON[type_.kind]
    return bare | None if type_.optional else bare


def _default(field: Field, type_: Any) -> Any:
    """The value of a field that the message lacks."""
    if field.default is UNSET:
        return None
    value = msgspec.json.decode(msgspec.json.encode(field.default), type=type_)
    return msgspec.field(default_factory=lambda: value)  # nobody changes it


def _conversion(type_: Type) -> _Conversion | None:
    """What makes of a decoded value, which is not None, the value that Arrow takes; None where Arrow takes it as it is."""
    if type_.kind is TypeKind.JSON:
        return _text_or_null if type_.optional else _text
    if type_.element is None:
        return None
    inner = _conversion(type_.element)
    each: _Conversion = _same if inner is None else lambda value: None if value is None else inner(value)
    if type_.kind is TypeKind.MAP:
        return lambda items: [(key, each(value)) for key, value in items.items()]
    return None if inner is None else lambda items: [each(value) for value in items]


def _same(value: Any) -> object:
    return value


def _text(value: Raw) -> str:
    return bytes(value).decode()


def _text_or_null(value: Raw) -> str | None:
    text = bytes(value)
    return None if text == b"null" else text.decode()
