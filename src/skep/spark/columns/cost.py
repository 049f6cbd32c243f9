"""The largest cost of an evaluation, by the length of the message. Beyond the budget only the evaluator can decide.

The evaluator stops when its budget of steps is spent (`skep.spec.scope`), but a column does not count steps. So for each expression
there is a length of messages, and if need be of the lists it iterates over, up to which no message can exceed the budget. Longer
messages go to the evaluator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from skep.spec.ast import (
    Bound,
    Comprehension,
    FunctionCall,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
    Variable,
    measure,
    walk,
)
from skep.spec.expressions import RESULT_PARTS
from skep.spec.patterns import compiled, search_units
from skep.spec.scope import BUDGET, TIME_UNITS, backwards_units
from skep.spec.scope import search_units as part_search_units
from skep.spec.types import TEXTUAL, TypeKind, holds

LENGTHS = tuple(1 << power for power in range(20, 6, -1))
"""The tried lengths of messages, in bytes."""
ENOUGH_BYTES = 16_384
ELEMENTS = (None, 1_000, 200, 50, 20)
"""The tried limits of elements in a list; None is no limit."""

_PLAIN = frozenset({TypeKind.INT, TypeKind.FLOAT, TypeKind.BOOL, TypeKind.TIME, TypeKind.DURATION, TypeKind.NULL})
_PLAIN_SIZE = 40
_SIZE_MAX = 1e12


class CostBound(NamedTuple):
    """The length of messages in bytes, and of the lists and maps among their fields, up to which an expression keeps its budget."""

    length: int
    elements: int | None
    lists: frozenset[str]


@dataclass(frozen=True)
class Bounds:
    """The most steps of an evaluation, the largest size of its result (characters and elements), and the most elements at its top level."""

    steps: float
    size: float
    count: float = 1


def reach(tree: Node) -> CostBound:
    """The reach of an expression; of length 0 when no message is safe."""
    lists = frozenset(_iterated(tree))
    best = CostBound(0, None, lists)
    for elements in ELEMENTS if lists else ELEMENTS[:1]:
        length = next((one for one in LENGTHS if _within(_Bounding(one, elements).bounds(tree, {}))), 0)
        if length > best.length:
            best = CostBound(length, elements, lists)
        if best.length >= ENOUGH_BYTES:
            break
    return best


def _within(bounds: Bounds) -> bool:
    return bounds.steps <= BUDGET and bounds.size <= RESULT_PARTS


def _iterated(tree: Node) -> Iterator[str]:
    """The fields whose elements a comprehension goes over."""
    for node in walk(tree):
        over = node.over if isinstance(node, Comprehension) else None
        if isinstance(over, Variable) and over.type.kind in (TypeKind.LIST, TypeKind.MAP):
            yield over.name


class _Bounding:
    def __init__(self, length: int, elements: int | None) -> None:
        self._length = length
        self._elements = elements

    def bounds(self, node: Node, bound: dict[int, float]) -> Bounds:
        match node:
            case Literal():
                return Bounds(0, len(node.value.encode("utf-8", "surrogatepass")) if isinstance(node.value, str) else 1)
            case Variable():
                return self._variable(node)
            case Bound():
                size = bound[node.slot]
                return Bounds(0, min(size, _PLAIN_SIZE) if node.type.kind in _PLAIN else size, size / 2 + 1)
            case Select():
                inner = self.bounds(node.operand, bound)
                steps = inner.steps + TIME_UNITS * (node.type.kind is TypeKind.TIME)
                return Bounds(steps, 1 if node.test else inner.size, inner.count)
            case Comprehension():
                return self._loop(node, bound)
            case ListOf():
                return _together([self.bounds(item, bound) for item in node.items])
            case MapOf():
                return _together([self.bounds(part, bound) for entry in node.entries for part in entry])
            case FunctionCall():
                return self._call(node, [self.bounds(argument, bound) for argument in node.arguments])

    def _variable(self, node: Variable) -> Bounds:
        if node.type.kind in _PLAIN:
            return Bounds(TIME_UNITS if node.type.kind is TypeKind.TIME else 0, _PLAIN_SIZE)
        count = self._length / 2 + 1  # an element takes at least two characters
        if node.type.kind not in (TypeKind.LIST, TypeKind.MAP):
            return Bounds(0, self._length, count)
        if self._elements is not None:
            count = min(count, self._elements)
        return Bounds(count * (1 + TIME_UNITS) if holds(node.type, TypeKind.TIME) else count, self._length, count)

    def _loop(self, node: Comprehension, bound: dict[int, float]) -> Bounds:
        """The cost of many small elements plus that of one large element: no division of the same text costs more."""
        over = self.bounds(node.over, bound)
        parts = [part for part in (node.predicate, node.transform) if part is not None]
        small = [self.bounds(part, {**bound, **dict.fromkeys(node.slots, 2.0)}) for part in parts]
        large = [self.bounds(part, {**bound, **dict.fromkeys(node.slots, over.size)}) for part in parts]
        cost = 1 + len(node.slots) + sum(measure(part)[0] for part in parts)
        steps = over.steps + over.count * (cost + sum(one.steps for one in small)) + sum(one.steps for one in large)
        size = over.size if node.transform is None else over.count * (small[-1].size + 1) + large[-1].size
        if node.macro == "transformMap":
            size += over.size  # for its keys
        return Bounds(steps, size, over.count)

    def _call(self, node: FunctionCall, arguments: list[Bounds]) -> Bounds:
        sizes = [one.size for one in arguments]
        steps = sum(one.steps for one in arguments) + _searching(node.function, sizes)
        total, count = sum(sizes), sum(one.count for one in arguments)
        kinds = {argument.type.kind for argument in node.arguments}
        match node.function:
            case "?:":
                return Bounds(steps, max(sizes[1:]), max(one.count for one in arguments[1:]))
            case "replace":
                total = sizes[0] + (sizes[0] + 1) * sizes[2]
            case "join":
                total = (
                    sizes[0] + (arguments[0].count + 1) * (sizes[1] if len(sizes) > 1 else 0) + arguments[0].count * 32
                )
            case "split":
                return Bounds(steps + 2 * sizes[0] + 4, 2 * sizes[0] + 2, sizes[0] + 1)
            case "matches":
                steps += _matching(node.arguments[1], _whole(sizes[0]))
            case "string" | "timestamp":
                steps += TIME_UNITS
            case "double" | "duration":
                steps += TIME_UNITS + sizes[0]
            case "[]" | "dyn":
                return Bounds(steps, sizes[0], arguments[0].count)
        # Building a text takes a step for 32 characters; comparing and adding lists takes one for each element.
        if kinds <= _PLAIN:
            own = 0.0
        elif kinds <= _PLAIN | TEXTUAL or node.function == "join":
            own = total / 32 + 12
        else:
            own = total + 4
        return Bounds(steps + own, _PLAIN_SIZE if node.type.kind in _PLAIN else total + _PLAIN_SIZE, count)


def _searching(function: str, sizes: list[float]) -> float:
    """The cost of searching a part in a text, if the function does that: the text and the part are its first arguments."""
    match function:
        case "contains" | "indexOf":
            return part_search_units(_whole(sizes[0]), _whole(sizes[1]))
        case "replace" | "split":
            return 2 * part_search_units(_whole(sizes[0]), _whole(sizes[1]))
        case "lastIndexOf":
            return backwards_units(_whole(sizes[0]), _whole(sizes[1]))
    return 0


def _matching(pattern: Node, text_bytes: int) -> float:
    """The cost of a search. A pattern that comes with the message is left to the evaluator in any case."""
    return search_units(compiled(str(pattern.value)).size, text_bytes) if isinstance(pattern, Literal) else 0


def _whole(size: float) -> int:
    return ceil(min(size, _SIZE_MAX))


def _together(parts: list[Bounds]) -> Bounds:
    size = sum(part.size for part in parts) + len(parts) + 1
    return Bounds(sum(part.steps for part in parts) + len(parts) + 1, size, len(parts))
