"""A message's payload as typed columns, and whether it surely fits its type, as strictly as msgspec checks it.

`from_json` with a schema is Spark's quickest reader, but a lenient one: it takes numbers for strings, accepts unknown and repeated
keys and text after the object, and does not tell null from absent. The checks here find these cases in the text. Where any doubt is
left, `fits` is not true, and the evaluator decides.
"""

from __future__ import annotations

import re
from functools import reduce

import msgspec
from msgspec import UNSET
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns.binding import Binder, MessageColumns
from skep.spark.columns.instants import parse_time
from skep.spark.columns.output import fitting_text
from skep.spark.columns.reading import can_read, has_reader, read_columns
from skep.spark.columns.values import ColumnValue, Uncompiled, as_text, held, json_null, of_json, sql_type, taken_as
from skep.spec.ir import ExtraFields, Queue
from skep.spec.types import FLOAT, JSON, STRING, Field, Type, TypeKind

READ, TEXT, EARLY = "__skep_read", "__skep_text", "__skep_early_"
"""Columns that are added to a frame while its payloads are read."""
END = "skep:end"
TEXTS = frozenset({TypeKind.STRING, TypeKind.UUID, TypeKind.ENUM, TypeKind.TIME})
"""The kinds that are strings in JSON."""
DEPTH_BYTES, BRACKETS_MAX = 1_500, 400
"""A longer payload may be nested more deeply than Python can follow, unless it has at most so many brackets."""

_OPTIONS = {
    "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt", "allowNonNumericNumbers": "false", "allowSingleQuotes": "false",
}  # fmt: skip
_ESCAPE = r"\\(?:u[0-9a-fA-F]{4}|.)"
_UNSURE_ESCAPE = (
    r"\\u00[0-7]|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""Escapes of letters that need none, which could spell a key, and halves of surrogate pairs."""
_SCALAR_IN_LIST = r"[\[,]\s*(?:[-0-9{\[]|true|false)"


def message_columns(frame: DataFrame, queue: Queue, payload: str = "payload") -> MessageColumns:
    """The columns of a frame's messages: by our reader in Java if the session has it, else by Spark's own functions."""
    if can_read(queue) and has_reader(frame.sparkSession):
        return read_columns(frame, queue, payload)
    return parsed_columns(frame, queue, payload)


def parsed_columns(frame: DataFrame, queue: Queue, payload: str = "payload") -> MessageColumns:
    """The columns of a frame's messages by Spark's own functions."""
    text = F.col(payload)
    escaped = F.contains(text, F.lit("\\"))
    cleaned = F.when(escaped, F.regexp_replace(text, _ESCAPE, "\x01")).otherwise(text)
    whole = F.concat(F.lit('{"m":'), text, F.lit(f',"{END}":7}}'))
    sound = F.is_valid_utf8(text) & _is_shallow(text)
    if not queue.message_type or queue.extra_fields is ExtraFields.ALLOW:
        sound &= ~F.contains(text, F.lit(END))  # in other queues it is an unknown key
    sound &= F.when(escaped, ~text.rlike(_UNSURE_ESCAPE)).otherwise(F.lit(True))
    if not queue.message_type:
        read = frame.withColumns({READ: F.try_parse_json(whole), TEXT: cleaned})
        return _untyped(read, text, sound & _no_infinity(F.col(READ)))
    if len({name.lower() for name in queue.message_type}) < len(queue.message_type):
        raise Uncompiled("there are fields whose names differ in nothing but capitals, which Spark does not tell apart")
    schema = ",".join(f"`{name}`:{_read_as(field.type)}" for name, field in queue.message_type.items())
    parsed = F.from_json(whole, f"m struct<{schema}>,`{END}` int,corrupt string", _OPTIONS)
    read = frame.withColumns({READ: parsed, TEXT: cleaned})
    row = F.col(READ)
    sound &= row["corrupt"].isNull() & (row[END] == 7) & row["m"].isNotNull()
    early = Binder(EARLY)
    fields = {name: _TypedField(name, field, row["m"][name], early) for name, field in queue.message_type.items()}
    fits = reduce(lambda one, other: one & other, [field.fits() for field in fields.values()], sound)
    if queue.extra_fields is ExtraFields.REFUSE:
        fits &= _keys_are_known(list(fields.values()))
    else:
        fits &= _keys_are_unique(whole)
    values = {name: field.value for name, field in fields.items()}
    # The text of the message does not show whether a default needs escapes.
    spoilt = any(
        field.default is not UNSET and "\\" in _encoded(field.default) for field in queue.message_type.values()
    )
    plain = F.lit(False) if spoilt else ~_col_escaped()
    return MessageColumns(early.applied(read), text, values, fits, plain, Binder())


def _untyped(read: DataFrame, text: Column, sound: Column) -> MessageColumns:
    message = of_json(F.col(READ), "$['m']")
    end = F.try_variant_get(F.col(READ), f"$['{END}']", "int")
    fits = sound & (end == 7) & message.column.isNotNull()
    return MessageColumns(read, text, {"message": message}, fits, ~_col_escaped(), Binder())


def _col_escaped() -> Column:
    return F.contains(F.col(TEXT), F.lit("\x01"))


def _is_shallow(text: Column) -> Column:
    brackets = F.octet_length(text) - F.octet_length(F.translate(text, "[{", ""))
    return (F.octet_length(text) <= DEPTH_BYTES) | (brackets <= BRACKETS_MAX)


def _no_infinity(variant: Column) -> Column:
    """Whether all numbers are finite: one that is too large for a float is no JSON for Python, but infinite for Spark."""
    return ~F.contains(F.to_json(variant), F.lit("Infinity"))


def _quotes(text: Column) -> Column:
    """The number of quotes in a JSON text without escapes: two for each key, and two for each string."""
    return F.octet_length(text) - F.octet_length(F.replace(text, F.lit('"'), F.lit("")))


def _keys_are_known(fields: list[_TypedField]) -> Column:
    """Whether the text has no unknown or repeated key: then it has exactly the quotes of the fields that are there."""
    nested = [field.nested_text() for field in fields if field.is_nested()]
    counted = [field.quotes(nested) for field in fields]
    return _quotes(F.col(TEXT)) == reduce(lambda one, other: one + other, counted)


def _keys_are_unique(whole: Column) -> Column:
    """Whether no object has a key twice: a variant refuses that. The text is parsed a second time for this."""
    variant = F.try_parse_json(whole)
    return variant.isNotNull() & _no_infinity(variant)


def _read_as(type_: Type) -> str:
    """The SQL type that `from_json` reads a field as: a variant where it would convert types."""
    if type_.kind is TypeKind.TIME:
        return "string"
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return "array<variant>" if type_.element.optional else f"array<{_read_as(type_.element)}>"
    if type_.kind is TypeKind.MAP:
        return "map<string,variant>"
    return sql_type(held(type_))


class _TypedField:
    """One field of a message, as `from_json` returned it."""

    def __init__(self, name: str, field: Field, column: Column, binder: Binder) -> None:
        self._name = name
        self._field = field
        self._column = column
        self._default: Column | None = None
        if field.default is not UNSET and field.type.kind in (TypeKind.LIST, TypeKind.MAP, TypeKind.JSON):
            self._default = F.try_variant_get(F.parse_json(F.lit(_encoded(field.default))), "$", _read_as(field.type))
        elif field.default is not UNSET and field.default is not None:
            self._default = F.lit(field.default).cast(_read_as(field.type))
        self.value = self._bound_value(binder)
        self._nested = binder.name(self._written(), 0) if self.is_nested() else None

    @property
    def _mentioned(self) -> Column:
        return F.contains(F.col(TEXT), F.lit(f'"{self._name}"'))

    def is_nested(self) -> bool:
        """Whether the value of the field may have keys inside."""
        type_: Type | None = self._field.type
        while type_ is not None:
            if type_.kind in (TypeKind.JSON, TypeKind.MAP) or (type_.optional and type_ is not self._field.type):
                return True
            type_ = type_.element
        return False

    def _written(self) -> Column:
        return F.to_json(self._column, {"ignoreNullFields": "false"})

    def nested_text(self) -> Column:
        """The JSON of the value without escapes."""
        written = self._nested
        assert written is not None
        return F.when(F.contains(written, F.lit("\\")), F.regexp_replace(written, _ESCAPE, "\x01")).otherwise(written)

    def quotes(self, nested: list[Column]) -> Column:
        """The number of quotes of its key and its value in the message."""
        type_ = self._field.type
        if self.is_nested():
            own = F.coalesce(_quotes(self.nested_text()), F.lit(0))
        elif type_.kind in TEXTS:
            own = F.lit(2) if self._field.required else F.when(self._column.isNull(), F.lit(0)).otherwise(F.lit(2))
        elif type_.kind is TypeKind.LIST and type_.element is not None and type_.element.kind in TEXTS:
            own = F.when(self._column.isNull(), F.lit(0)).otherwise(F.size(self._column) * 2)
        else:
            own = F.lit(0)
        return self._of_key(nested) + own

    def _of_key(self, nested: list[Column]) -> Column:
        """2 when the message has the key, 0 when it has not, null when that is not certain."""
        if self._field.required:
            return F.lit(2)
        mentioned = F.lit(2)
        if nested:
            inside = [F.coalesce(F.contains(one, F.lit(f'"{self._name}"')), F.lit(False)) for one in nested]
            mentioned = F.when(~reduce(lambda one, other: one | other, inside), mentioned)
        return F.when(self._column.isNotNull(), F.lit(2)).otherwise(
            F.when(self._mentioned, mentioned).otherwise(F.lit(0))
        )

    def fits(self) -> Column:
        """Whether the value has the type."""
        there = self._column.isNotNull() & F.coalesce(self._looked_at(), F.lit(False))
        if self._field.default is not UNSET:
            # Null and absent look alike here, but only absent takes the default.
            return there | (self._column.isNull() & ~self._mentioned)
        if self._field.type.optional:
            return F.when(self._column.isNull(), F.lit(True)).otherwise(there)
        return there

    def _looked_at(self) -> Column:
        type_ = self._field.type
        if type_.kind is TypeKind.STRING:
            key = re.escape(self._name)
            return ~_may_be_other(self._column) | ~F.col(TEXT).rlike(f'"{key}"\\s*:\\s*[^"\\s]')
        if type_.kind is TypeKind.TIME:
            return self.value.column.isNotNull()  # it was read
        if type_.kind is TypeKind.JSON:
            return ~F.contains(self.nested_text(), F.lit("Infinity"))
        return _fits(self._column, type_)

    def _bound_value(self, binder: Binder) -> ColumnValue:
        """The value that expressions read."""
        type_, column = self._field.type, self._column
        if self._default is not None:
            column = F.coalesce(column, self._default)
        if type_.kind is TypeKind.JSON:
            return of_json(F.coalesce(column, json_null()) if type_.optional else column)
        found = _converted(column, type_)
        if type_.kind in (TypeKind.TIME, TypeKind.LIST, TypeKind.MAP):
            found = binder.name(found, 0)
        absent = type_.optional or self._field.default is None
        return ColumnValue(held(type_), found, column.isNull() if absent else None, known=type_)


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _may_be_other(text: Column) -> Column:
    """Whether a string of `from_json` may have been a number, a bool, a list or an object."""
    first = F.ascii(text)
    return first.between(45, 57) | (first == 91) | (first == 123) | text.isin("true", "false")


def _fits(column: Column, type_: Type) -> Column:
    match type_.kind:
        case TypeKind.UUID | TypeKind.ENUM | TypeKind.TIME:
            # A uuid or time never looks like a number, but a word of an enum may.
            fits = fitting_text(column, type_).isNotNull()
            return fits & ~_may_be_other(column) if type_.kind is TypeKind.ENUM else fits
        case TypeKind.STRING:
            return ~_may_be_other(column) | ~F.col(TEXT).rlike(_SCALAR_IN_LIST)
        case TypeKind.FLOAT:
            return F.abs(column) < 1e308
        case TypeKind.LIST:
            assert type_.element is not None
            inner = type_.element
            return F.forall(column, lambda item: F.coalesce(_fits_inside(item, inner), F.lit(False)))
        case TypeKind.MAP:
            return _fits_map(column, type_)
        case TypeKind.JSON:
            return _no_infinity(column)
    return F.lit(True)


def _fits_inside(item: Column, type_: Type) -> Column:
    if type_.optional:
        if type_.kind in (TypeKind.FLOAT, TypeKind.TIME, TypeKind.LIST, TypeKind.MAP):
            raise Uncompiled(f"a list or map of {type_.kind}? is not read by columns")
        return F.is_variant_null(item) | _fits_variant(item, type_)
    if type_.kind is TypeKind.JSON:
        return F.coalesce(_no_infinity(item), F.lit(True))
    return item.isNotNull() & _fits(item, type_)


def _fits_variant(item: Column, type_: Type) -> Column:
    value = of_json(item)
    if type_.kind in (TypeKind.UUID, TypeKind.ENUM, TypeKind.STRING):
        return fitting_text(as_text(value), type_).isNotNull()
    if type_.kind is TypeKind.JSON:
        return _no_infinity(item)
    if type_.kind is TypeKind.FLOAT:
        return taken_as(value, FLOAT).isNotNull() | taken_as(value, Type(TypeKind.INT)).isNotNull()
    if type_.kind in (TypeKind.LIST, TypeKind.MAP):
        raise Uncompiled("a map of lists or maps is not read by columns")
    if type_.kind is TypeKind.TIME:
        return parse_time(as_text(value)).isNotNull()
    return taken_as(value, Type(type_.kind)).isNotNull()


def _fits_map(column: Column, type_: Type) -> Column:
    key, inner = type_.key or STRING, type_.element or JSON
    values = F.forall(F.map_values(column), lambda item: F.coalesce(_fits_variant_or_null(item, inner), F.lit(False)))
    if key.kind is TypeKind.STRING:
        return values
    return values & F.forall(F.map_keys(column), lambda item: fitting_text(item, key).isNotNull())


def _fits_variant_or_null(item: Column, type_: Type) -> Column:
    fits = _fits_variant(item, type_)
    return (F.is_variant_null(item) | fits) if type_.optional or type_.kind is TypeKind.JSON else fits


def _converted(column: Column, type_: Type) -> Column:
    """A result of `from_json` in the SQL type that columns hold."""
    if type_.kind is TypeKind.TIME:
        return parse_time(column)
    if type_.kind is TypeKind.LIST and type_.element is not None:
        inner = type_.element
        if inner.optional or inner.kind is TypeKind.JSON:
            return F.transform(column, lambda item: F.coalesce(item, json_null()))
        if inner.kind in (TypeKind.TIME, TypeKind.LIST, TypeKind.MAP):
            return F.transform(column, lambda item: _converted(item, inner))
        return column
    if type_.kind is TypeKind.MAP:
        inner = type_.element or JSON
        if inner.optional or inner.kind is TypeKind.JSON:
            return F.transform_values(column, lambda _, item: F.coalesce(item, json_null()))
        return F.transform_values(column, lambda _, item: _from_variant(item, inner))
    return column


def _from_variant(item: Column, type_: Type) -> Column:
    value = of_json(item)
    if type_.kind is TypeKind.TIME:
        return parse_time(as_text(value))
    if type_.kind is TypeKind.FLOAT:
        return F.coalesce(taken_as(value, FLOAT), taken_as(value, Type(TypeKind.INT)).cast("double"))
    return taken_as(value, held(type_))
