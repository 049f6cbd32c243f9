"""The syntax tree (AST) of an expression. Each node has its type and its offset in the text.

The evaluator and the compiler to Spark columns both read this tree. It does not depend on any CEL library.
An operator is a call of the function that is named by its sign; ``a.f(b)`` is the call of ``f`` with ``a`` and ``b``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as OneOf
from typing import TypeAlias

from msgspec import Struct

from skep.spec.types import JSON, Type

Macro = OneOf["all", "exists", "exists_one", "filter", "map", "transformList", "transformMap"]
MACROS: dict[str, Macro] = {
    "all": "all", "exists": "exists", "exists_one": "exists_one", "existsOne": "exists_one", "filter": "filter", "map": "map",
    "transformList": "transformList", "transformMap": "transformMap",
}  # fmt: skip
"""The macros by their names; one has two."""


class Literal(Struct, frozen=True):
    """A constant: null, a bool, an int, a float or a string."""

    at: int
    value: bool | int | float | str | None
    type: Type = JSON


class Variable(Struct, frozen=True):
    """A variable of the expression: a field of the message, for one."""

    at: int
    name: str
    type: Type = JSON


class Bound(Struct, frozen=True):
    """The variable of a comprehension; ``slot`` tells it from others of the same name."""

    at: int
    name: str
    slot: int
    type: Type = JSON


class Select(Struct, frozen=True):
    """``operand.field``; with ``test`` it is ``has(operand.field)``."""

    at: int
    operand: Node
    field: str
    test: bool = False
    type: Type = JSON


class FunctionCall(Struct, frozen=True):
    """A function or operator with its arguments."""

    at: int
    function: str
    arguments: tuple[Node, ...]
    member: bool = False
    type: Type = JSON


class ListOf(Struct, frozen=True):
    """A list of the values of some expressions."""

    at: int
    items: tuple[Node, ...]
    type: Type = JSON


class MapOf(Struct, frozen=True):
    """A map of the values of some expressions."""

    at: int
    entries: tuple[tuple[Node, Node], ...]
    type: Type = JSON


class Comprehension(Struct, frozen=True):
    """A macro over a list's elements or a map's keys. ``predicate`` is None for a `map` or transform that keeps everything.

    With a ``second`` variable, ``variable`` is the index or key, and ``second`` the element or value, in the slot after the first.
    """

    at: int
    macro: Macro
    over: Node
    variable: str
    slot: int
    predicate: Node | None
    transform: Node | None = None
    second: str | None = None
    type: Type = JSON

    @property
    def slots(self) -> range:
        """The slots of its variables."""
        return range(self.slot, self.slot + 1 + (self.second is not None))


Node: TypeAlias = Literal | Variable | Bound | Select | FunctionCall | ListOf | MapOf | Comprehension


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below."""
    match node:
        case Select():
            yield node.operand
        case FunctionCall():
            yield from node.arguments
        case ListOf():
            yield from node.items
        case MapOf():
            for key, value in node.entries:
                yield key
                yield value
        case Comprehension():
            yield node.over
            if node.predicate is not None:
                yield node.predicate
            if node.transform is not None:
                yield node.transform
        case _:
            return


def measure(root: Node) -> tuple[int, int]:
    """The number of nodes and of levels of a tree. Without recursion, since the depth is not known yet."""
    nodes, levels = 0, 0
    waiting = [(root, 1)]
    while waiting:
        node, level = waiting.pop()
        nodes += 1
        levels = max(levels, level)
        waiting.extend((child, level + 1) for child in children(node))
    return nodes, levels


def walk(root: Node) -> Iterator[Node]:
    """All nodes of a tree, in no particular order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children(node))


def variables(root: Node) -> set[str]:
    """The names of the variables that an expression reads."""
    return {node.name for node in walk(root) if isinstance(node, Variable)}
