"""Messages read by this package's own reader (in Java, `skep/spark/jvm`): one pass over the bytes, and no checks after it.

Sessions of `skep.spark.session` have the reader, and any session with its jar and its catalog. In other sessions Spark's own functions
read messages, with the same results.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns.binding import Binder, MessageColumns
from skep.spark.columns.instants import micros_of
from skep.spark.columns.values import ColumnValue, held, json_null, of_json, sql_type
from skep.spark.jvm import READER_SETTING, function_name
from skep.spec.instants import parse_time
from skep.spec.ir import ExtraFields, Queue
from skep.spec.types import STRING, Field, Type, TypeKind, list_of

READ, PLAIN = "__skep_read", "skep:plain"
FIELDS_MAX = 500

_PLAIN = frozenset(
    {
        TypeKind.STRING,
        TypeKind.UUID,
        TypeKind.ENUM,
        TypeKind.INT,
        TypeKind.FLOAT,
        TypeKind.BOOL,
        TypeKind.TIME,
        TypeKind.JSON,
    }
)
_known: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def has_reader(spark: SparkSession) -> bool:
    """Whether a session has the reader. It is tried once: the setting alone does not mean that the jar is there."""
    if spark not in _known:
        _known[spark] = spark.conf.get(READER_SETTING, None) is not None and _answers(spark)
    return _known[spark]


def _answers(spark: SparkSession) -> bool:
    try:
        return bool(
            spark.range(1).select(F.call_function(function_name({"fields": [], "open": True}), F.lit("{}"))).columns
        )
    except PySparkException:
        return False


def can_read(queue: Queue) -> bool:
    """Whether the reader can read a message type: it has fields, and nothing in its lists and maps may be null, except json."""
    fields = queue.message_type
    names = {name.lower() for name in fields}
    return 0 < len(names) == len(fields) <= FIELDS_MAX and all(_is_known(field.type) for field in fields.values())


def _is_known(type_: Type) -> bool:
    if type_.kind in (TypeKind.LIST, TypeKind.MAP) and type_.element is not None:
        has_texts = type_.key is None or type_.key.kind is TypeKind.STRING
        is_sure = type_.element.kind is TypeKind.JSON or not type_.element.optional
        return has_texts and is_sure and _is_known(type_.element)
    return type_.kind in _PLAIN


def read_columns(frame: DataFrame, queue: Queue, payload: str) -> MessageColumns:
    """The columns of a frame's messages, by the reader."""
    text = F.col(payload)
    function = function_name(described(queue))
    row = F.col(READ)
    values = {name: _value(row[name], field) for name, field in queue.message_type.items()}
    # The text of the message does not show whether a default needs escapes.
    defaults = [field.default for field in queue.message_type.values() if field.default is not UNSET]
    spoilt = any(b"\\" in msgspec.json.encode(default) for default in defaults)
    plain = F.lit(False) if spoilt else F.coalesce(row[PLAIN], F.lit(False))
    read = frame.withColumn(READ, F.call_function(function, text))
    return MessageColumns(read, text, values, row.isNotNull(), plain, Binder())


def described(queue: Queue, json_as: str = "json") -> dict[str, object]:
    """A message type as the reader knows it. ``json_as`` is its kind for json: `json`, a variant, or `text`, as it is written."""
    fields = [_described(name, field, json_as) for name, field in queue.message_type.items()]
    return {"fields": fields, "open": queue.extra_fields is ExtraFields.ALLOW}


def _described(name: str, field: Field, json_as: str) -> dict[str, object]:
    # Null and absent look alike in a column. So where there is a default, null is left to the evaluator.
    nullable = field.type.optional and (field.default is UNSET or field.default is None)
    return {"name": name, "required": field.required, "nullable": nullable, **_shape(field.type, json_as)}


def _shape(type_: Type, json_as: str) -> dict[str, object]:
    shape: dict[str, object] = {"kind": json_as if type_.kind is TypeKind.JSON else str(type_.kind)}
    if type_.kind is TypeKind.ENUM:
        shape["choices"] = list(type_.choices)
    if type_.element is not None:
        shape["element"] = _shape(type_.element, json_as)
    return shape


def _value(column: Column, field: Field) -> ColumnValue:
    """The value that expressions read: the field, or its default where the message lacks it."""
    type_ = held(field.type)
    if field.default is not UNSET and field.default is not None:
        column = F.coalesce(column, constant(field.default, field.type))
    absent = field.type.optional or field.default is None
    if type_.kind is TypeKind.JSON:
        return of_json(F.coalesce(column, json_null()) if absent else column, keys=())
    return ColumnValue(type_, column, column.isNull() if absent else None, known=field.type)


def constant(default: object, type_: Type) -> Column:
    """A default in the SQL type of the reader."""
    sql = sql_type(held(type_))
    if type_.kind is TypeKind.TIME:
        return F.lit(micros_of(parse_time(str(default)))).cast(sql)
    if type_.kind is TypeKind.JSON:
        return F.parse_json(F.lit(msgspec.json.encode(default).decode()))
    if isinstance(default, list) and type_.element is not None:
        element = type_.element
        return F.array(*[constant(item, element) for item in default]).cast(sql)
    if isinstance(default, dict) and type_.element is not None:
        keys = constant(list(default), list_of(STRING))
        return F.map_from_arrays(keys, constant(list(default.values()), list_of(type_.element)))
    return F.lit(default).cast(sql)
