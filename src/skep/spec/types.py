"""The types of a spec: how they are read and written, and which type fits where another is expected.

A `Type` is a small immutable tree. A spec can have `string`, `int`, `float`, `bool`, `time`, `json`, `uuid`,
`enum(a, b)`, `list<T>`, `map<K, V>` and `T?`; expressions also have `null`, durations and records.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec
from msgspec import UNSET, Struct, UnsetType

from skep.spec.faults import TextError

TYPE_CHARACTERS = 2_000
TYPE_DEPTH = 12
INT_MIN = -(2**63)
INT_MAX = 2**63 - 1

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SPACE = re.compile(r"\s*")


class TypeKind(StrEnum):
    """The kinds of types. The last three exist in expressions only."""

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIME = "time"
    JSON = "json"
    UUID = "uuid"
    ENUM = "enum"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    DURATION = "duration"
    RECORD = "record"


PLAIN = frozenset(
    {TypeKind.STRING, TypeKind.INT, TypeKind.FLOAT, TypeKind.BOOL, TypeKind.TIME, TypeKind.JSON, TypeKind.UUID}
)
TEXTUAL = frozenset({TypeKind.STRING, TypeKind.UUID, TypeKind.ENUM})
"""The kinds that are strings in expressions. Only these can be keys of maps, as in JSON."""


class Type(Struct, frozen=True, omit_defaults=True):
    """A type. ``element`` is the type of a list's or map's elements, ``fields`` those of a record; ``optional`` allows absent or null."""

    kind: TypeKind
    element: Type | None = None
    key: Type | None = None
    choices: tuple[str, ...] = ()
    fields: tuple[tuple[str, Type], ...] = ()
    optional: bool = False

    def field(self, name: str) -> Type | None:
        """The type of a record's field."""
        return next((type_ for field, type_ in self.fields if field == name), None)


class Field(Struct, frozen=True):
    """A field with its type and its default, a JSON value, if it has one."""

    type: Type
    default: object | UnsetType = UNSET

    @property
    def required(self) -> bool:
        """Whether a message must have it."""
        return not self.type.optional and self.default is UNSET


STRING, INT, FLOAT, BOOL = Type(TypeKind.STRING), Type(TypeKind.INT), Type(TypeKind.FLOAT), Type(TypeKind.BOOL)
TIME, JSON, UUID = Type(TypeKind.TIME), Type(TypeKind.JSON), Type(TypeKind.UUID)
NULL, DURATION = Type(TypeKind.NULL), Type(TypeKind.DURATION)


def list_of(element: Type) -> Type:
    return Type(TypeKind.LIST, element=element)


def map_of(key: Type, element: Type) -> Type:
    return Type(TypeKind.MAP, key=key, element=element)


def enum_of(*choices: str) -> Type:
    return Type(TypeKind.ENUM, choices=choices)


def record_of(fields: dict[str, Type]) -> Type:
    """A record: a fixed set of fields, each with its type."""
    return Type(TypeKind.RECORD, fields=tuple(fields.items()))


def optional(type_: Type) -> Type:
    """The same type, with absent or null allowed."""
    return msgspec.structs.replace(type_, optional=True)


def required(type_: Type) -> Type:
    """The same type, with absent or null not allowed."""
    return msgspec.structs.replace(type_, optional=False) if type_.optional else type_


def holds(type_: Type, *kinds: TypeKind) -> bool:
    """Whether a type, or what its lists and maps hold, is of one of these kinds."""
    return type_.kind in kinds or (type_.element is not None and holds(type_.element, *kinds))


SPELLINGS = "string, int, float, bool, time, json, uuid, enum(a, b), list<T>, map<string, T>, or one of them with ?"


def parse_field(text: str) -> Field:
    """A field's type and, after ``=``, its default: JSON, or the bare word of an enum."""
    type_, end = _read(text, 0, 0)
    if end == len(text):
        return Field(type_)
    if text[end] != "=":
        raise TextError(end, f"there is more after the type: {text[end : end + 40]!r}", "= and a default, or nothing")
    at = _skip(text, end + 1)
    return Field(type_, _literal(text, at))


def _literal(text: str, at: int) -> object:
    word = text[at:].strip()
    try:
        value: object = msgspec.json.decode(word)
        # A number that does not survive writing and reading cannot be a default.
        if msgspec.json.decode(msgspec.json.encode(value)) == value:
            return value
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError):
        if _BARE.fullmatch(word):
            return word
    raise TextError(at, f"{word[:40]!r} is not a value", "a JSON value, or one of the enum's words") from None


def _read(text: str, at: int, depth: int) -> tuple[Type, int]:
    if len(text) > TYPE_CHARACTERS or depth > TYPE_DEPTH:
        raise TextError(at, f"a type has at most {TYPE_CHARACTERS} characters and {TYPE_DEPTH} levels")
    at = _skip(text, at)
    word = _WORD.match(text, at)
    if word is None:
        raise TextError(at, "there is no type here", SPELLINGS)
    name, end = word[0], _skip(text, word.end())
    if name == TypeKind.ENUM:
        type_, end = _read_enum(text, end)
    elif name == TypeKind.LIST:
        end = _expect(text, end, "<")
        element, end = _read(text, end, depth + 1)
        type_, end = list_of(element), _expect(text, end, ">")
    elif name == TypeKind.MAP:
        type_, end = _read_map(text, end, depth)
    elif name in PLAIN:
        type_ = Type(TypeKind(name))
    else:
        raise TextError(at, f"there is no type {name!r}", SPELLINGS)
    if text[end : end + 1] == "?":
        return optional(type_), _skip(text, end + 1)
    return type_, end


def _read_enum(text: str, at: int) -> tuple[Type, int]:
    at = _expect(text, at, "(")
    choices: list[str] = []
    while True:
        choice, end = _read_choice(text, at)
        if choice in choices:
            raise TextError(at, f"the enum has {choice!r} twice")
        choices.append(choice)
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            return enum_of(*choices), _expect(text, at, ")")
        at = _skip(text, at + 1)


def _read_choice(text: str, at: int) -> tuple[str, int]:
    if (word := _WORD.match(text, at)) is not None:
        return word[0], word.end()
    if (quoted := _STRING.match(text, at)) is not None:
        try:
            return msgspec.json.decode(quoted[0], type=str), quoted.end()
        except msgspec.DecodeError:
            raise TextError(at, f"{quoted[0][:40]} is not a JSON string") from None
    raise TextError(at, "there is no word of the enum here", "a word or a string")


def _read_map(text: str, at: int, depth: int) -> tuple[Type, int]:
    start = at = _expect(text, at, "<")
    key, at = _read(text, at, depth + 1)
    if key.kind not in TEXTUAL or key.optional:
        raise TextError(start, "the keys of a map are strings in JSON", "string, uuid or an enum")
    at = _expect(text, at, ",")
    element, at = _read(text, at, depth + 1)
    return map_of(key, element), _expect(text, at, ">")


def _expect(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        found = repr(text[at : at + 20]) if at < len(text) else "the end"
        raise TextError(at, f"there is {found} where {mark!r} should be", repr(mark))
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def print_type(type_: Type) -> str:
    """The one spelling of a type."""
    text = _bare(type_)
    return f"{text}?" if type_.optional else text


def print_field(field: Field) -> str:
    """A field's type with its default."""
    if field.default is UNSET:
        return print_type(field.type)
    return f"{print_type(field.type)} = {_print_default(field)}"


def _print_default(field: Field) -> str:
    default = field.default
    if field.type.kind is TypeKind.ENUM and isinstance(default, str) and _BARE.fullmatch(default):
        return default if default not in ("true", "false", "null") else f'"{default}"'
    return msgspec.json.encode(default).decode()


def _bare(type_: Type) -> str:
    if type_.kind is TypeKind.ENUM:
        return f"enum({', '.join(_print_choice(choice) for choice in type_.choices)})"
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return f"list<{print_type(type_.element)}>"
    if type_.kind is TypeKind.MAP and type_.element is not None and type_.key is not None:
        return f"map<{print_type(type_.key)}, {print_type(type_.element)}>"
    return str(type_.kind)


def _print_choice(choice: str) -> str:
    return choice if _WORD.fullmatch(choice) else msgspec.json.encode(choice).decode()


def fits(given: Type, wanted: Type) -> bool:
    """Whether a value of one type may stand where another type is wanted. json fits everything until its evaluation."""
    if TypeKind.JSON in (given.kind, wanted.kind):
        return True
    if given.kind is TypeKind.NULL:
        return wanted.optional or wanted.kind is TypeKind.NULL
    if given.kind in TEXTUAL and wanted.kind in TEXTUAL:
        return True
    if given.kind is not wanted.kind:
        return False
    return _parts_fit(given, wanted)


def _parts_fit(given: Type, wanted: Type) -> bool:
    if given.kind is TypeKind.RECORD:
        return given.fields == wanted.fields
    if given.element is None or wanted.element is None:
        return True
    keys = given.key is None or wanted.key is None or fits(given.key, wanted.key)
    return keys and fits(given.element, wanted.element)


def join(one: Type, other: Type) -> Type | None:
    """The common type of two types; None when they have none."""
    if one == other:
        return one
    if one.kind is TypeKind.NULL or other.kind is TypeKind.NULL:
        return optional(other if one.kind is TypeKind.NULL else one)
    if not fits(one, other):
        return None
    if TypeKind.JSON in (one.kind, other.kind):
        return JSON
    either = one.optional or other.optional
    if one.kind in TEXTUAL:
        return optional(STRING) if either else STRING
    element = join(one.element, other.element) if one.element and other.element else one.element
    return msgspec.structs.replace(one, element=element or JSON if one.element else None, optional=either)
