"""Validate messages against their type. A validator is compiled once, and a valid message costs about a microsecond.

A misfit has the field, its value and the expected type, so that the producer can correct the message.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from skep.spec.expressions import shown
from skep.spec.ir import ExtraFields, Fields
from skep.spec.types import INT_MAX, INT_MIN, Type, TypeKind, print_type

_INT = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
_TIME = Annotated[datetime, Meta(tz=True)]
_PLACE = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<key>key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"field `(.*?)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


class Misfit(Struct, frozen=True):
    """A mismatch: the field (empty for the whole message), its shortened value, and the expected type."""

    field: str
    value: str | None
    expected: str

    def __str__(self) -> str:
        place = f"field {self.field!r}" if self.field else "the message"
        got = f", not {self.value}" if self.value is not None else ""
        return f"{place} does not fit: expected {self.expected}{got}"


class Validator(Struct, frozen=True):
    """A compiled message type. ``plain`` checks decoded values, ``decoder`` checks bytes."""

    fields: Fields
    decoder: msgspec.json.Decoder[Any]
    plain: type
    defaults: dict[str, object]


def compile_validator(fields: Fields, extra_fields: ExtraFields = ExtraFields.REFUSE) -> Validator:
    """The validator of a message type, or of a command's input."""
    strict = extra_fields is ExtraFields.REFUSE
    return Validator(
        fields,
        msgspec.json.Decoder(_struct(fields, strict, raw=True)),
        _struct(fields, strict, raw=False),
        _defaults(fields),
    )


def misfit(validator: Validator, payload: bytes) -> Misfit | None:
    """The misfit of a payload; None when it is valid."""
    try:
        validator.decoder.decode(payload)
        payload.decode()  # the decoder skips json fields
    except msgspec.ValidationError as error:
        return _explained(validator, str(error), _decoded(payload))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Misfit("", None, f"JSON: {str(error)[:200]}")
    except RecursionError:
        return Misfit("", None, "JSON that is nested less deeply")
    return None


def misfit_of(validator: Validator, value: object) -> Misfit | None:
    """The misfit of a decoded value: the result of a mapping, or a default."""
    try:
        msgspec.convert(value, validator.plain)
    except msgspec.ValidationError as error:
        return _explained(validator, str(error), value)
    except RecursionError:
        return Misfit("", None, "a value that is nested less deeply")
    return None


def decode(validator: Validator, payload: bytes) -> dict[str, object]:
    """The fields of a valid payload for expressions, with the defaults of absent ones."""
    message: dict[str, object] = msgspec.json.decode(payload)
    return with_defaults(validator, message)


def with_defaults(validator: Validator, message: dict[str, object]) -> dict[str, object]:
    """Add the defaults of absent fields to a message."""
    if validator.defaults:
        for name, default in validator.defaults.items():
            message.setdefault(name, default)
    return message


def fits_type(type_: Type, value: object) -> bool:
    """Whether a JSON value has the type."""
    try:
        msgspec.convert(value, _python_type(type_, raw=False))
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _defaults(fields: Fields) -> dict[str, object]:
    found = {name: field.default for name, field in fields.items() if field.default is not UNSET}
    return found | {name: None for name, field in fields.items() if field.type.optional and name not in found}


def _struct(fields: Fields, strict: bool, raw: bool) -> type:
    """A struct for these fields. Its own field names are numbered, since a name may be a reserved word of Python."""
    needed: list[tuple[str, Any]] = []
    others: list[tuple[str, Any, Any]] = []
    rename: dict[str, str] = {}
    for index, (name, field) in enumerate(fields.items()):
        rename[f"f{index}"] = name
        if field.required:
            needed.append((f"f{index}", _python_type(field.type, raw)))
        elif field.type.kind is TypeKind.JSON:
            others.append((f"f{index}", Any, UNSET))
        else:
            others.append((f"f{index}", _python_type(field.type, raw) | UnsetType, UNSET))
    return msgspec.defstruct("Message", [*needed, *others], rename=rename, forbid_unknown_fields=strict, gc=False)


_PLAIN: dict[TypeKind, Any] = {
    TypeKind.STRING: str, TypeKind.INT: _INT, TypeKind.FLOAT: float, TypeKind.BOOL: bool, TypeKind.TIME: _TIME, TypeKind.UUID: UUID,
}  # fmt: skip


def _python_type(type_: Type, raw: bool) -> Any:
    if type_.kind is TypeKind.JSON:
        return Raw if raw and not type_.optional else Any
    bare = _bare_type(type_, raw)
    return bare | None if type_.optional else bare


def _bare_type(type_: Type, raw: bool) -> Any:
    if type_.kind is TypeKind.ENUM:
        return Literal[type_.choices]
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return list[_python_type(type_.element, raw)]  # type: ignore[misc]  # made at run time
    if type_.kind is TypeKind.MAP and type_.element is not None and type_.key is not None:
        return dict[_python_type(type_.key, raw), _python_type(type_.element, raw)]  # type: ignore[misc]
    return _PLAIN[type_.kind]


def _decoded(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _explained(validator: Validator, error: str, message: object) -> Misfit:
    match = _PLACE.match(error)
    assert match is not None
    reason, path = match["reason"], match["path"] or ""
    named = _FIELD.search(reason)
    if reason.startswith("Object missing") and named:
        field = validator.fields.get(named[1])
        return Misfit(named[1], None, f"{print_type(field.type) if field else 'a value'}, which is required")
    if reason.startswith("Object contains unknown") and named:
        value = message.get(named[1]) if isinstance(message, dict) else None
        return Misfit(named[1], _shown(value), "no field of this name")
    value, field_name = _found(message, path)
    root = validator.fields.get(field_name)
    return Misfit(path.lstrip("."), _shown(value), _expected(root.type if root else None, path, reason))


def _expected(root: Type | None, path: str, reason: str) -> str:
    type_ = root
    for step in _STEP.finditer(path[1:] and path[path.find("[") :] if "[" in path else ""):
        if type_ is not None and step[1] is None:
            type_ = type_.element
    if type_ is None:
        return "an object" if "`object`" in reason else reason[:1].lower() + reason[1:]
    return print_type(type_)


def _found(message: object, path: str) -> tuple[object, str]:
    """The value at a path, as far as the path is exact, and the name of the path's first field."""
    value, first = message, ""
    for step in _STEP.finditer(path):
        first = first or step[1] or ""
        if step[1] is not None and isinstance(value, dict):
            value = value.get(step[1])
        elif step[2] is not None and isinstance(value, list) and int(step[2]) < len(value):
            value = value[int(step[2])]
    return value, first


def _shown(value: object) -> str:
    if isinstance(value, list | dict | int) and not isinstance(value, bool):
        return shown(value) or ""
    return msgspec.json.encode(value).decode()[:200]
