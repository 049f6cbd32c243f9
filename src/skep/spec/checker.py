"""The type checker of expressions: the same tree with a type at every node, or the first fault with its offset.

`json` is dynamic: it fits everywhere here, and is checked at evaluation. An optional type counts as its plain type, since
only a message tells whether the value is absent. Compare it with null first.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from skep.spec.ast import Bound, Comprehension, FunctionCall, ListOf, Literal, MapOf, Node, Select, Variable
from skep.spec.faults import TextError
from skep.spec.instants import parse_zone
from skep.spec.patterns import check_pattern
from skep.spec.signatures import FUNCTIONS, LEFT_OUT, OPERATORS, PARTS, Signature
from skep.spec.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    NULL,
    STRING,
    TEXTUAL,
    Type,
    TypeKind,
    fits,
    join,
    list_of,
    map_of,
    print_type,
    required,
)

NAMES_COMPARED = 1_000
_SIGNS = frozenset({"==", "!=", "in", "[]", "?:"})
"""Operators that are checked by rules of their own."""

Scope = Mapping[str, Type]
Bindings = dict[int, Type]


def check(node: Node, variables: Scope, wanted: Type | None = None) -> Node:
    """The typed tree; with ``wanted``, its result must fit that type."""
    typed = _check(node, variables, {})
    if wanted is not None:
        _check_result(typed, wanted)
    return typed


def _check(node: Node, scope: Scope, bindings: Bindings) -> Node:
    match node:
        case Literal():
            return msgspec.structs.replace(node, type=_type_of(node.value))
        case Variable():
            if node.name not in scope:
                raise TextError(node.at, f"there is no field {node.name!r} here", _near(node.name, scope))
            return msgspec.structs.replace(node, type=scope[node.name])
        case Bound():
            return msgspec.structs.replace(node, type=bindings[node.slot])
        case Select():
            return _check_select(node, _check(node.operand, scope, bindings))
        case ListOf():
            items = tuple(_check(item, scope, bindings) for item in node.items)
            return ListOf(node.at, items, list_of(_joined(items)))
        case MapOf():
            return _check_map(node, scope, bindings)
        case Comprehension():
            return _check_comprehension(node, scope, bindings)
        case FunctionCall():
            _check_known(node, scope)
            arguments = tuple(_check(argument, scope, bindings) for argument in node.arguments)
            return _check_call(msgspec.structs.replace(node, arguments=arguments))


def _check_known(node: FunctionCall, scope: Scope) -> None:
    """Refuse a function that there is not, before its arguments, which may make no sense without it."""
    name = node.function
    if name in FUNCTIONS or name in OPERATORS or name in _SIGNS:
        return
    if (reason := LEFT_OUT.get(name)) is not None:
        raise TextError(node.at, f"there is no function {name!r} here: {reason}")
    space = node.arguments[0] if node.member else None
    if isinstance(space, Variable) and space.name not in scope:  # math.greatest, for one
        what = f"there is neither a field {space.name!r} nor a function '{space.name}.{name}' here"
        raise TextError(space.at, what, _near(space.name, scope))
    raise TextError(node.at, f"there is no function {name!r}", _near(name, FUNCTIONS))


def _type_of(value: object) -> Type:
    match value:
        case None:
            return NULL
        case bool():
            return BOOL
        case int():
            return INT
        case float():
            return FLOAT
        case _:
            return STRING


def _check_select(node: Select, operand: Node) -> Node:
    of = operand.type
    if of.kind is TypeKind.RECORD:
        found = of.field(node.field)
        if found is None:
            raise TextError(
                node.at, f"there is no field {node.field!r} here", _near(node.field, [name for name, _ in of.fields])
            )
        type_ = found
    elif of.kind is TypeKind.MAP:
        type_ = of.element or JSON
    elif of.kind is TypeKind.JSON:
        type_ = JSON
    else:
        raise TextError(node.at, f"{_named(of)} has no fields", "a json, map or record before the dot")
    return Select(node.at, operand, node.field, node.test, BOOL if node.test else type_)


def _check_map(node: MapOf, scope: Scope, bindings: Bindings) -> Node:
    entries = tuple((_check(key, scope, bindings), _check(value, scope, bindings)) for key, value in node.entries)
    for key, _ in entries:
        if key.type.kind not in TEXTUAL and key.type.kind is not TypeKind.JSON:
            raise TextError(key.at, f"{_named(key.type)} cannot be a key", "a string, since JSON has no other keys")
    return MapOf(node.at, entries, map_of(STRING, _joined([value for _, value in entries])))


def _check_comprehension(node: Comprehension, scope: Scope, bindings: Bindings) -> Node:
    over = _check(node.over, scope, bindings)
    kinds = (
        (TypeKind.MAP, TypeKind.JSON) if node.macro == "transformMap" else (TypeKind.LIST, TypeKind.MAP, TypeKind.JSON)
    )
    if over.type.kind not in kinds:
        what = "a list or the keys of a map" if TypeKind.LIST in kinds else "a map, since JSON has only strings as keys"
        raise TextError(node.at, f"{node.macro}() goes over {what}, not over {_named(over.type)}")
    inner = {**bindings, **dict(zip(node.slots, _iterated(over.type, len(node.slots)), strict=True))}
    predicate = transform = None
    if node.predicate is not None:
        predicate = _check(node.predicate, scope, inner)
        _expect(predicate, BOOL, f"the condition of {node.macro}()")
    if node.transform is not None:
        transform = _check(node.transform, scope, inner)
    if node.macro == "filter":
        result = list_of(inner[node.slot])
    elif node.macro == "transformMap":
        result = map_of(STRING, transform.type if transform is not None else JSON)
    else:
        result = list_of(transform.type) if transform is not None else BOOL
    return msgspec.structs.replace(node, over=over, predicate=predicate, transform=transform, type=result)


def _iterated(over: Type, variables: int) -> list[Type]:
    """The types of a comprehension's variables: element or key; or index and element, or key and value."""
    element = over.element or JSON
    if over.kind is TypeKind.LIST:
        return [INT, element][-variables:]
    if over.kind is TypeKind.MAP:
        return [over.key or STRING, element][:variables]
    return [JSON, JSON][:variables]


def _joined(nodes: Iterable[Node]) -> Type:
    """The common type of elements; json for a mixture."""
    result: Type | None = None
    for node in nodes:
        joined = node.type if result is None else join(result, node.type)
        if joined is None:
            return JSON
        result = joined
    return JSON if result is None or result.kind is TypeKind.NULL else result


def _check_call(node: FunctionCall) -> Node:
    types = [argument.type for argument in node.arguments]
    match node.function:
        case "==" | "!=":
            _check_comparable(node)
            result = BOOL
        case "in":
            result = _check_in(node)
        case "[]":
            result = _check_index(node)
        case "?:":
            result = _check_ternary(node)
        case "+" if TypeKind.LIST in (types[0].kind, types[1].kind) and fits(types[0], types[1]):
            result = join(types[0], types[1]) or list_of(JSON)
        case sign if sign in OPERATORS:
            result = _matching(node, OPERATORS[sign])
        case _:
            result = _check_function(node)
    return msgspec.structs.replace(node, type=result)


def _check_function(node: FunctionCall) -> Type:
    signatures = FUNCTIONS[node.function]
    usable = [signature for signature in signatures if (signature.member if node.member else signature.plain)]
    if not usable:
        spelling = f"value.{node.function}(…)" if signatures[0].member else f"{node.function}(value)"
        raise TextError(node.at, f"{node.function} is not called like this", spelling)
    result = _matching(node, usable)
    if isinstance(last := node.arguments[-1], Literal):
        if node.function == "matches":
            check_pattern(last.at, str(last.value))
        elif node.function in PARTS and len(node.arguments) == 2:
            _check_zone(last.at, str(last.value))
    return result


def _check_zone(at: int, zone: str) -> None:
    try:
        parse_zone(zone)
    except ValueError:
        expected = 'a name like "Europe/Berlin", or an offset like "+02:00"'
        raise TextError(at, f"there is no time zone {zone[:60]!r}", expected) from None


def _matching(node: FunctionCall, signatures: list[Signature]) -> Type:
    given = [required(argument.type) for argument in node.arguments]
    results = [
        signature.result
        for signature in signatures
        if len(signature.parameters) == len(given) and all(map(fits, given, signature.parameters))
    ]
    if not results:
        raise _mismatch(node, given, signatures)
    return results[0] if all(result == results[0] for result in results) else JSON


def _mismatch(node: FunctionCall, given: list[Type], signatures: list[Signature]) -> TextError:
    what = "-" if node.function == "negate" else node.function
    have = " and ".join(map(_named, given)) or "nothing"
    # Only the signatures that fit the first argument, if there are any.
    near = [signature for signature in signatures if given and fits(given[0], signature.parameters[0])]
    ways = sorted({" and ".join(map(_named, signature.parameters)) for signature in near or signatures})
    hint = ""
    if {type_.kind for type_ in given} == {TypeKind.INT, TypeKind.FLOAT}:
        hint = "; convert one with double() or int()"
    return TextError(node.at, f"{what} does not work with {have}", " or ".join(ways) + hint)


def _check_comparable(node: FunctionCall) -> None:
    left, right = node.arguments
    if TypeKind.NULL in (left.type.kind, right.type.kind):
        other = right.type if left.type.kind is TypeKind.NULL else left.type
        if not (other.optional or other.kind in (TypeKind.JSON, TypeKind.NULL)):
            raise TextError(node.at, f"{_named(other)} is never null", "a field with an optional type, like string?")
        return
    if not fits(required(left.type), required(right.type)):
        raise TextError(
            node.at,
            f"{node.function} compares {_named(left.type)} with {_named(right.type)}",
            "two values of the same type" + _conversion(left.type, right.type),
        )
    _check_choice(left.type, right)
    _check_choice(right.type, left)


def _conversion(left: Type, right: Type) -> str:
    kinds = {left.kind, right.kind}
    if kinds == {TypeKind.INT, TypeKind.FLOAT}:
        return "; convert one with double() or int()"
    if TypeKind.TIME in kinds and kinds & TEXTUAL:
        return '; timestamp("…") makes a time of a string'
    return ""


def _check_in(node: FunctionCall) -> Type:
    item, container = node.arguments
    of = container.type
    if of.kind not in (TypeKind.LIST, TypeKind.MAP, TypeKind.JSON):
        raise TextError(node.at, f"in looks into a list or the keys of a map, not into {_named(of)}")
    if isinstance(container, MapOf) and not container.entries:
        return BOOL  # nothing is in it, whatever its keys would be
    element = (of.key if of.kind is TypeKind.MAP else of.element) or JSON
    if not fits(required(item.type), required(element)):
        raise TextError(node.at, f"in looks for {_named(item.type)} among {_named(element)}", _named(element))
    if isinstance(container, ListOf):
        for choice in container.items:
            _check_choice(item.type, choice)
    return BOOL


def _check_index(node: FunctionCall) -> Type:
    operand, index = node.arguments
    match operand.type.kind:
        case TypeKind.LIST:
            _expect(index, INT, "the index of a list")
        case TypeKind.MAP:
            _expect(index, STRING, "the key of a map")
        case TypeKind.JSON:
            if index.type.kind not in TEXTUAL | {TypeKind.INT, TypeKind.JSON}:
                raise TextError(index.at, f"an index is not {_named(index.type)}", "an int or a string")
        case _:
            raise TextError(node.at, f"{_named(operand.type)} has no elements", "a list, map or json before [ ]")
    return operand.type.element or JSON


def _check_ternary(node: FunctionCall) -> Type:
    condition, then, otherwise = node.arguments
    _expect(condition, BOOL, "the condition before ?")
    result = join(_narrowed(then, condition, "!="), _narrowed(otherwise, condition, "=="))
    if result is None:
        raise TextError(
            node.at,
            f"the branches are {_named(then.type)} and {_named(otherwise.type)}",
            "two values of the same type; dyn(…) around one of them allows both",
        )
    return result


def _narrowed(branch: Node, condition: Node, sign: str) -> Type:
    """The type of a branch. It is not null where the condition tests that: ``x != null ? x : …``, ``has(x.y) ? x.y : …``."""
    if not branch.type.optional:
        return branch.type
    tested: Node | None = None
    if isinstance(condition, Select) and condition.test and sign == "!=" and isinstance(branch, Select):
        tested = msgspec.structs.replace(condition, test=False)
    elif isinstance(condition, FunctionCall) and condition.function == sign:
        left, right = condition.arguments
        tested = left if right.type.kind is TypeKind.NULL else right if left.type.kind is TypeKind.NULL else None
    return required(branch.type) if tested is not None and _is_same(tested, branch) else branch.type


def _is_same(one: Node, other: Node) -> bool:
    if isinstance(one, Select) and isinstance(other, Select):
        return one.field == other.field and one.test == other.test and _is_same(one.operand, other.operand)
    if isinstance(one, Bound) and isinstance(other, Bound):
        return one.slot == other.slot
    return isinstance(one, Variable) and isinstance(other, Variable) and one.name == other.name


def _expect(node: Node, wanted: Type, what: str) -> None:
    if not fits(required(node.type), wanted):
        raise TextError(node.at, f"{what} is {_named(node.type)}", _named(wanted))


def _check_result(node: Node, wanted: Type) -> None:
    if isinstance(node, FunctionCall) and node.function == "?:":
        for branch in node.arguments[1:]:
            _check_result(branch, wanted)
        return
    if isinstance(node, Literal) and wanted.kind is TypeKind.FLOAT and node.type.kind is TypeKind.INT:
        raise TextError(node.at, "this is an int", f"a float, as {node.value}.0")
    if not fits(node.type if node.type.kind is TypeKind.NULL else required(node.type), wanted):
        raise TextError(node.at, f"this is {_named(node.type)}", _named(wanted))
    _check_choice(wanted, node)


def _check_choice(enum: Type, node: Node) -> None:
    if enum.kind is not TypeKind.ENUM or not isinstance(node, Literal) or not isinstance(node.value, str):
        return
    if node.value not in enum.choices:
        raise TextError(node.at, f"{node.value!r} is not one of the enum's words", ", ".join(enum.choices))


def _named(type_: Type) -> str:
    return print_type(type_) if type_.kind is not TypeKind.RECORD else "a record"


def _near(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names[:NAMES_COMPARED], n=1)
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"{near[0]}?" if near else f"one of {listed}" if names else "nothing: there are no fields"
