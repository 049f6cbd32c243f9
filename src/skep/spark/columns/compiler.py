"""The compiler: from a checked tree to a column, node by node.

`&&`, `||`, `all` and `exists` need no care: in SQL's three-valued logic, too, one side may decide alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timezone
from functools import partial, reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns import operations
from skep.spark.columns.binding import Binder, MessageColumns
from skep.spark.columns.cost import reach
from skep.spark.columns.functions import FUNCTIONS
from skep.spark.columns.instants import MICROSECOND, micros_of, part_of_time, within_years
from skep.spark.columns.output import UNQUOTABLE
from skep.spark.columns.patterns import SHORT_CHARACTERS, to_java
from skep.spark.columns.values import (
    ColumnValue,
    Uncompiled,
    as_json,
    as_list,
    as_map,
    as_text,
    at_keys,
    constant,
    is_map,
    nothing,
    taken_as,
)
from skep.spec.ast import (
    Bound,
    Comprehension,
    FunctionCall,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Node,
    Select,
    Variable,
    children,
    walk,
)
from skep.spec.expressions import Expression
from skep.spec.instants import parse_duration, parse_time, parse_zone
from skep.spec.signatures import PARTS
from skep.spec.types import BOOL, DURATION, INT, JSON, STRING, TIME, Type, TypeKind, list_of, map_of

EXPANSION_MAX = 4_000
"""The most columns of an expression. Dynamic types multiply, and Spark's generated code has a limit, too."""


@dataclass(frozen=True)
class Compiled:
    """An expression as a column. ``sure`` tells where it may be used: a message, or a list in it, may be too long for the budget.

    ``copies`` means that its texts need JSON escapes only where those of the message do.
    """

    expression: Expression
    value: ColumnValue
    sure: Column
    copies: bool


LITERALS_MAX = 8
"""The most levels of nested list and map literals. A column uses each item twice, to test it and to take it, so its text could
double with each level."""


def compile_column(expression: Expression, message: MessageColumns) -> Compiled:
    """Compile an expression over a message. Raises `Uncompiled` with the reason when it is left to the evaluator."""
    found = reach(expression.tree)
    if not found.length:
        raise Uncompiled("it could take more than its budget on messages of any length")
    if _literal_levels(expression.tree) > LITERALS_MAX:
        raise Uncompiled("its lists and maps are nested too deeply")
    sure = F.octet_length(message.payload) <= found.length
    if found.elements is not None:
        for name in sorted(found.lists):
            sure &= F.coalesce(F.size(message.fields[name].column) <= found.elements, F.lit(True))
    value = _Compiler(message.fields, message.binder).value(expression.tree, {})
    return Compiled(expression, value, sure, not _has_unquotable(expression.tree))


def _literal_levels(tree: Node) -> int:
    """The levels of nested list and map literals in an expression."""
    return isinstance(tree, ListOf | MapOf) + max(map(_literal_levels, children(tree)), default=0)


def _has_unquotable(tree: Node) -> bool:
    texts = (node.value for node in walk(tree) if isinstance(node, Literal) and isinstance(node.value, str))
    return any(not UNQUOTABLE.isdisjoint(text) for text in texts)


class _Compiler:
    def __init__(self, fields: Mapping[str, ColumnValue], binder: Binder) -> None:
        self._fields = fields
        self._binder = binder
        self._made = 0
        self._layers = [0]

    def value(self, node: Node, bound: dict[int, ColumnValue]) -> ColumnValue:
        """The value of a node. It gets a name unless it is simple or depends on an element of a list."""
        self._made += 1
        if self._made > EXPANSION_MAX:
            raise Uncompiled("it is too large")
        self._layers.append(0)
        value = self._value(node, bound)
        value = replace(value, layer=max(self._layers.pop(), value.layer))
        is_test = isinstance(node, Select) and node.test
        if (is_test or isinstance(node, FunctionCall | Comprehension | ListOf | MapOf)) and not _is_open(node):
            value = self._binder.bind(value)
        self._layers[-1] = max(self._layers[-1], value.layer)
        return value

    def _value(self, node: Node, bound: dict[int, ColumnValue]) -> ColumnValue:
        match node:
            case Literal():
                return constant(node.value)
            case Variable():
                return self._fields[node.name]
            case Bound():
                return bound[node.slot]
            case Select():
                operand = self.value(node.operand, bound)
                return _has(operand, node.field) if node.test else operations.selected(operand, node.field)
            case ListOf():
                return _list([self.value(item, bound) for item in node.items])
            case MapOf():
                return self._map(node, bound)
            case Comprehension():
                return self._comprehension(node, bound)
            case FunctionCall():
                return self._call(node, bound)

    def _call(self, node: FunctionCall, bound: dict[int, ColumnValue]) -> ColumnValue:
        if (spelled := _spelled_out(node)) is not None:
            return spelled
        arguments = [self.value(argument, bound) for argument in node.arguments]
        match node.function:
            case "?:":
                return _ternary(*arguments)
            case "in":
                quick = _literal_in(node, arguments[0])
                return ColumnValue(BOOL, operations.within(*arguments) if quick is None else quick)
            case "[]":
                return self._element(node, arguments)
            case "matches":
                return _matches(node, arguments)
            case name if name in PARTS and len(arguments) == 2:
                return _part_in_zone(node, arguments[0])
        function = _OPERATORS.get(node.function) or FUNCTIONS[node.function]
        return function(*arguments)

    def _element(self, node: FunctionCall, arguments: list[ColumnValue]) -> ColumnValue:
        container, key = arguments
        literal = node.arguments[1]
        if container.kind is TypeKind.JSON and isinstance(literal, Literal) and isinstance(literal.value, str):
            return operations.selected(container, literal.value)
        return operations.element(container, key)

    def _map(self, node: MapOf, bound: dict[int, ColumnValue]) -> ColumnValue:
        keys = [taken_as(self.value(key, bound), STRING) for key, _ in node.entries]
        if not keys:
            return ColumnValue(
                map_of(STRING, JSON), F.try_variant_get(F.parse_json(F.lit("{}")), "$", "map<string,variant>")
            )
        values = [self.value(value, bound) for _, value in node.entries]
        type_, columns = _common(values)
        # Spark throws when two keys are equal, so they are compared before the map is made.
        distinct = F.size(F.array_distinct(F.array(*keys))) == len(keys)
        pairs = [column for pair in zip(keys, columns, strict=True) for column in pair]
        safe_keys = [F.when(distinct, key).otherwise(F.lit(f"{index}")) for index, key in enumerate(keys)]
        made = F.create_map(*[column for pair in zip(safe_keys, columns, strict=True) for column in pair])
        return ColumnValue(map_of(STRING, type_), F.when(distinct & _all_there(pairs), made), finite=_finite(values))

    def _comprehension(self, node: Comprehension, bound: dict[int, ColumnValue]) -> ColumnValue:
        over = self.value(node.over, bound)
        in_order = node.macro in ("filter", "map", "transformList", "transformMap")
        elements = _elements(over, in_order) if node.second is None else self._named_pairs(node, over, in_order)

        def element(column: Column) -> dict[int, ColumnValue]:
            return {**bound, **dict(zip(node.slots, elements.variables(column), strict=True))}

        def holds(column: Column) -> Column:
            if node.predicate is None:
                return F.lit(True)
            return operations.truth(self.value(node.predicate, element(column)))

        match node.macro:
            case "exists":
                return ColumnValue(BOOL, F.exists(elements.column, holds))
            case "all":
                return ColumnValue(BOOL, F.forall(elements.column, holds))
            case "exists_one":
                kept = F.when(_all_decided(elements.column, holds), F.filter(elements.column, holds))
                return ColumnValue(BOOL, F.when(kept.isNotNull(), F.size(kept) == 1))
        kept = elements.column
        if node.predicate is not None:
            kept = F.when(_all_decided(elements.column, holds), F.filter(elements.column, holds))
        if node.transform is None:
            return ColumnValue(elements.type, kept, finite=elements.finite)
        found = self._transformed(node.transform, kept, element)
        return _by_keys(kept, found) if node.macro == "transformMap" else found

    def _named_pairs(self, node: Comprehension, over: ColumnValue, in_order: bool) -> _Elements:
        """The pairs that a comprehension goes over, made once."""
        pairs = _pairs(over, in_order, node.macro)
        if _is_open(node.over):
            return pairs
        self._layers[-1] = max(self._layers[-1], over.layer + 1)
        return replace(pairs, column=self._binder.name(pairs.column, over.layer))

    def _transformed(
        self, transform: Node, kept: Column, element: Callable[[Column], dict[int, ColumnValue]]
    ) -> ColumnValue:
        found: list[ColumnValue] = []

        def made(column: Column) -> Column:
            value = self.value(transform, element(column))
            if value.null is not None or value.kind is TypeKind.NULL:
                value = as_json(value)
            found.append(value)
            return value.column

        column = F.transform(kept, made)
        value = found[0]
        return ColumnValue(
            list_of(value.type), F.when(F.forall(column, lambda item: item.isNotNull()), column), finite=value.finite
        )


def _is_open(node: Node) -> bool:
    """Whether a part of an expression depends on the variable of a comprehension around it."""
    parts = list(walk(node))
    inside = {one.slot for one in parts if isinstance(one, Comprehension)}
    return any(one.slot not in inside for one in parts if isinstance(one, Bound))


def _all_decided(column: Column, holds: Callable[[Column], Column]) -> Column:
    return F.forall(column, lambda item: holds(item).isNotNull())


@dataclass(frozen=True)
class _Elements:
    """What a comprehension goes over: a list of elements or keys, or of structs with two fields, ``first`` and ``second``."""

    column: Column
    kinds: tuple[Type, ...]
    finite: bool = True

    @property
    def type(self) -> Type:
        """The type of the list, for one variable."""
        return list_of(self.kinds[0])

    def variables(self, column: Column) -> list[ColumnValue]:
        """The variables of a comprehension at an element."""
        if len(self.kinds) == 1:
            return [ColumnValue(self.kinds[0], column, finite=self.finite)]
        first, second = self.kinds
        return [ColumnValue(first, column["first"]), ColumnValue(second, column["second"], finite=self.finite)]


def _elements(over: ColumnValue, in_order: bool) -> _Elements:
    match over.kind:
        case TypeKind.LIST:
            return _Elements(over.column, (over.type.element or JSON,), over.finite)
        case TypeKind.MAP:
            return _Elements(F.map_keys(over.column), (STRING,))
        case TypeKind.JSON:
            keys = F.map_keys(_sorted_map(over, in_order))
            return _Elements(F.coalesce(as_list(over), F.transform(keys, lambda key: key.cast("variant"))), (JSON,))
    return _Elements(nothing(list_of(JSON)), (JSON,))


def _pairs(over: ColumnValue, in_order: bool, macro: Macro) -> _Elements:
    """The pairs of index and element, or of key and value."""
    match over.kind:
        case TypeKind.LIST:
            return _Elements(_indexed(over.column, "bigint"), (INT, over.type.element or JSON), over.finite)
        case TypeKind.MAP:
            return _Elements(_entries(over.column, "string"), (STRING, over.type.element or JSON), over.finite)
        case TypeKind.JSON if macro == "transformMap":
            return _Elements(_entries(_sorted_map(over, in_order), "string"), (STRING, JSON))
        case TypeKind.JSON:
            entries = _entries(_sorted_map(over, in_order), "variant")
            return _Elements(F.coalesce(_indexed(as_list(over), "variant"), entries), (JSON, JSON))
    return _Elements(F.array(F.struct(*_pair(nothing(JSON), nothing(JSON)))), (JSON, JSON))


def _pair(first: Column, second: Column) -> tuple[Column, Column]:
    return first.alias("first"), second.alias("second")


def _indexed(column: Column, sql: str) -> Column:
    return F.transform(column, lambda item, index: F.struct(*_pair(index.cast("bigint").cast(sql), item)))


def _entries(column: Column, sql: str) -> Column:
    return F.transform(F.map_entries(column), lambda entry: F.struct(*_pair(entry["key"].cast(sql), entry["value"])))


def _sorted_map(over: ColumnValue, in_order: bool) -> Column:
    """A json as a map. A variant does not keep the order of the message, so where that matters a larger map has no value."""
    found = as_map(over)
    return F.when(F.size(found) <= 1, found) if in_order else found


def _by_keys(pairs: Column, values: ColumnValue) -> ColumnValue:
    """The map of some values by the keys of the pairs that they come from."""
    keys = F.transform(pairs, lambda pair: pair["first"])
    type_ = map_of(STRING, values.type.element or JSON)
    return ColumnValue(type_, F.map_from_arrays(keys, values.column), finite=values.finite)


_OPERATORS: dict[str, Callable[..., ColumnValue]] = {
    "&&": lambda one, other: ColumnValue(BOOL, operations.truth(one) & operations.truth(other)),
    "||": lambda one, other: ColumnValue(BOOL, operations.truth(one) | operations.truth(other)),
    "!": lambda one: ColumnValue(BOOL, ~operations.truth(one)),
    "==": lambda one, other: ColumnValue(BOOL, operations.equal(one, other)),
    "!=": lambda one, other: ColumnValue(BOOL, ~operations.equal(one, other)),
    "negate": operations.negate,
    "<": partial(operations.compared, operator.lt),
    "<=": partial(operations.compared, operator.le),
    ">": partial(operations.compared, operator.gt),
    ">=": partial(operations.compared, operator.ge),
    **{sign: partial(operations.arithmetic, sign) for sign in "+-*/%"},
}


def _has(operand: ColumnValue, field: str) -> ColumnValue:
    selected = operations.selected(operand, field)
    if selected.keys is not None:
        return ColumnValue(BOOL, at_keys(selected, "has"))
    found = selected.column.isNotNull()
    if operand.kind is TypeKind.MAP:
        return ColumnValue(BOOL, F.when(operand.column.isNotNull(), F.map_contains_key(operand.column, F.lit(field))))
    return ColumnValue(BOOL, F.when(found, F.lit(True)).when(is_map(operand), F.lit(False)))


def _all_there(columns: list[Column]) -> Column:
    return reduce(lambda one, other: one & other, [column.isNotNull() for column in columns], F.lit(True))


def _finite(values: list[ColumnValue]) -> bool:
    return all(value.finite for value in values)


def _common(values: list[ColumnValue]) -> tuple[Type, list[Column]]:
    """The common type of values (their own, or json), and their columns in it."""
    first = values[0].type
    if all(value.type == first and value.null is None for value in values):
        return first, [value.column for value in values]
    return JSON, [as_json(value).column for value in values]


def _list(items: list[ColumnValue]) -> ColumnValue:
    if not items:
        return ColumnValue(list_of(JSON), F.try_variant_get(F.parse_json(F.lit("[]")), "$", "array<variant>"))
    type_, columns = _common(items)
    return ColumnValue(list_of(type_), F.when(_all_there(columns), F.array(*columns)), finite=_finite(items))


def _ternary(condition: ColumnValue, then: ColumnValue, otherwise: ColumnValue) -> ColumnValue:
    test = operations.truth(condition)
    if then.kind is TypeKind.NULL and otherwise.kind is not TypeKind.NULL:
        then = replace(constant(None), type=otherwise.type, column=nothing(otherwise.type))
    elif otherwise.kind is TypeKind.NULL and then.kind is not TypeKind.NULL:
        otherwise = replace(constant(None), type=then.type, column=nothing(then.type))
    finite = then.finite and otherwise.finite
    then, otherwise = _alike(then, otherwise), _alike(otherwise, then)
    if then.type != otherwise.type or then.kind is TypeKind.JSON:
        one, other = as_json(then), as_json(otherwise)
        return ColumnValue(JSON, F.when(test, one.column).when(~test, other.column), finite=finite)
    null = None
    if then.null is not None or otherwise.null is not None:
        flags = [F.lit(False) if value.null is None else value.null for value in (then, otherwise)]
        null = F.when(test, flags[0]).when(~test, flags[1])
    return ColumnValue(then.type, F.when(test, then.column).when(~test, otherwise.column), null, finite)


def _alike(value: ColumnValue, other: ColumnValue) -> ColumnValue:
    """A json value beside a plain one, taken as the same type, which it most likely is. Elsewhere the evaluator decides."""
    if (
        value.kind is TypeKind.JSON
        and other.kind in (TypeKind.STRING, TypeKind.INT, TypeKind.BOOL)
        and other.null is None
    ):
        return ColumnValue(other.type, taken_as(value, other.type))
    return value


def _spelled_out(node: FunctionCall) -> ColumnValue | None:
    """The value of a time or duration that is written out in the expression."""
    if node.function not in ("timestamp", "duration") or not isinstance(node.arguments[0], Literal):
        return None
    text = node.arguments[0].value
    if not isinstance(text, str):
        return None
    try:
        if node.function == "timestamp":
            return ColumnValue(TIME, F.lit(micros_of(parse_time(text))).cast("bigint"))
        return ColumnValue(DURATION, F.lit(parse_duration(text) // MICROSECOND).cast("bigint"))
    except ValueError:
        type_ = TIME if node.function == "timestamp" else DURATION
        return ColumnValue(type_, nothing(type_))


def _literal_in(node: FunctionCall, item: ColumnValue) -> Column | None:
    """``field in ['a', 'b']``, a frequent case, by Spark's quick `isin`."""
    container = node.arguments[1]
    if not isinstance(container, ListOf) or item.kind is not TypeKind.STRING or item.null is not None:
        return None
    words = [part.value for part in container.items if isinstance(part, Literal) and isinstance(part.value, str)]
    if not words or len(words) != len(container.items):
        return None
    return item.column.isin(*words)


def _part_in_zone(node: FunctionCall, value: ColumnValue) -> ColumnValue:
    """A part of a time in a zone of one offset."""
    zone = node.arguments[1]
    if not isinstance(zone, Literal):
        raise Uncompiled("a time zone that comes with the message")
    known = parse_zone(str(zone.value))
    if not isinstance(known, timezone):
        raise Uncompiled("a time zone with a name, whose rules Java may have from another year")
    if value.kind is not TypeKind.TIME:
        return ColumnValue(INT, nothing(INT))
    local = within_years(value.column + F.lit(known.utcoffset(None) // MICROSECOND).cast("bigint"))
    return ColumnValue(INT, part_of_time(node.function, local))


def _matches(node: FunctionCall, arguments: list[ColumnValue]) -> ColumnValue:
    pattern = node.arguments[1]
    if not isinstance(pattern, Literal):
        raise Uncompiled("a pattern that comes with the message")
    java = to_java(str(pattern.value))
    if java is None:
        raise Uncompiled("a pattern that Java may understand differently")
    text = arguments[0].column if arguments[0].kind is TypeKind.STRING else as_text(arguments[0])
    if arguments[0].kind not in (TypeKind.STRING, TypeKind.JSON):
        text = nothing(STRING)
    if java.short_only:
        text = F.when(F.length(text) <= SHORT_CHARACTERS, text)
    return ColumnValue(BOOL, text.rlike(java.text))
