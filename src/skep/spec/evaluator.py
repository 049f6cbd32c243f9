"""Compile a typed tree into Python functions (closures), so that no tree is walked for each message.

`&&`, `||`, `all` and `exists` ignore a failure when another operand decides, in either order, as in CEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from skep.spec.ast import Bound, Comprehension, FunctionCall, ListOf, Literal, MapOf, Node, Select, Variable, measure
from skep.spec.functions import IMPLEMENTATIONS, Function, matching, part_in, read_time
from skep.spec.operations import name_of, unfit
from skep.spec.patterns import compiled
from skep.spec.scope import TIME_UNITS, NoValueError, Scope
from skep.spec.signatures import PARTS
from skep.spec.types import Type, TypeKind

Run: TypeAlias = Callable[[Scope], object]
_MISSING = object()


def build(node: Node) -> Run:
    """The function that computes the value of a tree."""
    match node:
        case Literal():
            return _constant(node.value)
        case Variable():
            return _variable(node)
        case Bound():
            return _bound(node)
        case Select():
            return _has(node) if node.test else _select(node)
        case ListOf():
            return _list(node)
        case MapOf():
            return _map(node)
        case Comprehension():
            return _comprehension(node)
        case FunctionCall():
            return _call(node)


def failed_at(failure: NoValueError, at: int) -> NoValueError:
    """The failure with this offset, unless a deeper node has set one."""
    if failure.at is None:
        failure.at = at
    return failure


def _constant(value: object) -> Run:
    return lambda _: value


def _variable(node: Variable) -> Run:
    name, at, absent_is_fine = node.name, node.at, node.type.optional
    convert = conversion(node.type)

    def run(scope: Scope) -> object:
        value = scope.message.get(name, _MISSING)
        if value is _MISSING:
            if absent_is_fine:
                return None
            raise failed_at(NoValueError(f"the message has no field {name!r}"), at)
        return value

    return run if convert is None else _unary(at, convert, run)


def _bound(node: Bound) -> Run:
    slot = node.slot

    def run(scope: Scope) -> object:
        assert scope.bound is not None
        return scope.bound[slot]

    return run


def _select(node: Select) -> Run:
    operand, field, at = build(node.operand), node.field, node.at
    record = node.operand.type.kind is TypeKind.RECORD
    absent_is_fine = record and node.type.optional
    convert = conversion(node.type) if record else None

    def run(scope: Scope) -> object:
        value = operand(scope)
        if type(value) is not dict:
            raise failed_at(NoValueError(f"{name_of(value)} has no field {field!r}", value), at)
        found = value.get(field, _MISSING)
        if found is _MISSING:
            if absent_is_fine:
                return None
            raise failed_at(NoValueError(f"there is no field {field!r}", value), at)
        return found

    return run if convert is None else _unary(at, convert, run)


def _has(node: Select) -> Run:
    operand, field, at = build(node.operand), node.field, node.at
    # An optional field of a record may be null, which counts as absent.
    by_value = node.operand.type.kind is TypeKind.RECORD

    def run(scope: Scope) -> object:
        value = operand(scope)
        if type(value) is not dict:
            raise failed_at(NoValueError(f"{name_of(value)} has no field {field!r}", value), at)
        return value.get(field) is not None if by_value else field in value

    return run


def conversion(type_: Type) -> Callable[[Scope, object], object] | None:
    """The function that converts a JSON value to a type: times arrive as strings, floats may arrive as whole numbers. None if there is none."""
    if type_.kind is TypeKind.TIME:
        return _to_time
    if type_.kind is TypeKind.FLOAT:
        return _to_float
    if type_.kind not in (TypeKind.LIST, TypeKind.MAP) or type_.element is None:
        return None
    inner = conversion(type_.element)
    if inner is None:
        return None

    def convert(scope: Scope, value: object) -> object:
        if isinstance(value, list):
            scope.spend(len(value))
            return [inner(scope, item) for item in value]
        if isinstance(value, dict):
            scope.spend(len(value))
            return {key: inner(scope, item) for key, item in value.items()}
        return value

    return convert


def _to_time(scope: Scope, value: object) -> object:
    if type(value) is not str:
        return value
    scope.spend(TIME_UNITS)
    return read_time(value)


def _to_float(_: Scope, value: object) -> object:
    try:
        return float(value) if type(value) is int else value
    except OverflowError:
        raise NoValueError("the number is too large for a float") from None


def _list(node: ListOf) -> Run:
    items = [build(item) for item in node.items]
    cost = len(items) + 1

    def run(scope: Scope) -> object:
        scope.spend(cost)
        return [item(scope) for item in items]

    return run


def _map(node: MapOf) -> Run:
    entries = [(build(key), build(value), key.at) for key, value in node.entries]
    cost = len(entries) + 1

    def run(scope: Scope) -> object:
        scope.spend(cost)
        result: dict[str, object] = {}
        for key, value, at in entries:
            name = key(scope)
            if not isinstance(name, str):
                raise failed_at(NoValueError(f"the key of a map is a string, not {name_of(name)}", name), at)
            if name in result:
                raise failed_at(NoValueError(f"the map has the key {name[:100]!r} twice", name), at)
            result[name] = value(scope)
        return result

    return run


def _call(node: FunctionCall) -> Run:
    arguments = [build(argument) for argument in node.arguments]
    if node.function == "?:":
        return _ternary(node.at, *arguments)
    if node.function in ("&&", "||"):
        return _logic(node.at, node.function, *arguments)
    if len(arguments) == 2 and isinstance(last := node.arguments[1], Literal):
        if node.function == "matches":
            return _unary(node.at, matching(compiled(str(last.value))), arguments[0])
        if node.function in PARTS:
            return _unary(node.at, part_in(node.function, str(last.value)), arguments[0])
    function = IMPLEMENTATIONS[node.function]
    if len(arguments) == 1:
        return _unary(node.at, function, arguments[0])
    if len(arguments) == 2:
        return _binary(node.at, function, *arguments)
    return _several(node.at, function, arguments)


def _unary(at: int, function: Function, argument: Run) -> Run:
    def run(scope: Scope) -> object:
        value = argument(scope)
        try:
            return function(scope, value)
        except NoValueError as failure:
            raise failed_at(failure, at) from None

    return run


def _binary(at: int, function: Function, left: Run, right: Run) -> Run:
    def run(scope: Scope) -> object:
        one, other = left(scope), right(scope)
        try:
            return function(scope, one, other)
        except NoValueError as failure:
            raise failed_at(failure, at) from None

    return run


def _several(at: int, function: Function, arguments: list[Run]) -> Run:
    def run(scope: Scope) -> object:
        values = [argument(scope) for argument in arguments]
        try:
            return function(scope, *values)
        except NoValueError as failure:
            raise failed_at(failure, at) from None

    return run


def _ternary(at: int, condition: Run, then: Run, otherwise: Run) -> Run:
    def run(scope: Scope) -> object:
        value = condition(scope)
        if value is True:
            return then(scope)
        if value is False:
            return otherwise(scope)
        raise failed_at(unfit("?", value), at)

    return run


def _logic(at: int, sign: str, left: Run, right: Run) -> Run:
    decisive = sign == "||"

    def run(scope: Scope) -> object:
        try:
            value = _truth(left(scope), sign)
        except NoValueError as failure:
            if right(scope) is decisive:
                return decisive
            raise failed_at(failure, at) from None
        if value is decisive:
            return decisive
        try:
            return _truth(right(scope), sign)
        except NoValueError as failure:
            raise failed_at(failure, at) from None

    return run


def _truth(value: object, sign: str) -> bool:
    if value is True or value is False:
        return value
    raise unfit(sign, value)


class _Loop(NamedTuple):
    """A compiled comprehension. ``cost`` is the units of one step, ``pairs`` whether it has two variables."""

    at: int
    macro: str
    over: Run
    slot: int
    pairs: bool
    predicate: Run
    transform: Run | None
    cost: int


def _comprehension(node: Comprehension) -> Run:
    predicate = build(node.predicate) if node.predicate is not None else _constant(True)
    transform = build(node.transform) if node.transform is not None else None
    parts = sum(measure(part)[0] for part in (node.predicate, node.transform) if part is not None)
    pairs = node.second is not None
    loop = _Loop(node.at, node.macro, build(node.over), node.slot, pairs, predicate, transform, len(node.slots) + parts)
    match node.macro:
        case "all" | "exists":
            return partial(_decide, loop)
        case "exists_one":
            return partial(_is_one, loop)
        case "transformMap":
            return partial(_transform_map, loop)
        case _:
            return partial(_collect, loop)


def _elements(loop: _Loop, scope: Scope) -> Iterable[object]:
    """The elements of a list or the keys of a map; for two variables the pairs of index and element, or of key and value."""
    value = loop.over(scope)
    if isinstance(value, list) and loop.macro != "transformMap":
        return enumerate(value) if loop.pairs else value
    if isinstance(value, dict):
        scope.spend(len(value))
        return list(value.items() if loop.pairs else value)
    raise failed_at(NoValueError(f"{loop.macro}() does not go over {name_of(value)}", value), loop.at)


def _holds(loop: _Loop, scope: Scope, element: Any) -> bool:
    scope.spend(loop.cost)
    assert scope.bound is not None
    if loop.pairs:
        scope.bound[loop.slot], scope.bound[loop.slot + 1] = element
    else:
        scope.bound[loop.slot] = element
    value = loop.predicate(scope)
    if value is True or value is False:
        return value
    raise failed_at(unfit(loop.macro, value), loop.at)


def _decide(loop: _Loop, scope: Scope) -> object:
    decisive = loop.macro == "exists"
    failure: NoValueError | None = None
    for element in _elements(loop, scope):
        try:
            if _holds(loop, scope, element) is decisive:
                return decisive
        except NoValueError as caught:
            failure = caught
    if failure is not None:
        raise failure
    return not decisive


def _is_one(loop: _Loop, scope: Scope) -> object:
    return sum([_holds(loop, scope, element) for element in _elements(loop, scope)]) == 1


def _collect(loop: _Loop, scope: Scope) -> object:
    kept = (element for element in _elements(loop, scope) if _holds(loop, scope, element))
    transform = loop.transform
    return list(kept) if transform is None else [transform(scope) for _ in kept]


def _transform_map(loop: _Loop, scope: Scope) -> object:
    transform = loop.transform
    assert transform is not None
    pairs: Iterable[Any] = _elements(loop, scope)
    return {pair[0]: transform(scope) for pair in pairs if _holds(loop, scope, pair)}
