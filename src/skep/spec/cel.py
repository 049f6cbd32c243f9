"""The parser of expressions: CEL's grammar, by precedence climbing, with a bound on nesting.

It makes the untyped tree and resolves macros (`has`, `all`, `exists`, `exists_one`, `filter`, `map`, `transformList`,
`transformMap`), so that no later step needs to know them. Parsing is linear in the text: there is no backtracking.
"""

from __future__ import annotations

from typing import cast

from skep.spec.ast import (
    MACROS,
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
    measure,
)
from skep.spec.faults import TextError
from skep.spec.tokens import Token, tokens_of
from skep.spec.types import INT_MAX

NESTING = 32
"""The most levels of nested brackets, branches and signs."""
LEVELS = 100
"""The most levels of the tree; a sum of a hundred terms is that deep, too."""

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
    "+": 4, "-": 4,
    "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_ONE_OR_TWO: frozenset[Macro] = frozenset({"all", "exists", "exists_one"})
_TWO: frozenset[Macro] = frozenset({"transformList", "transformMap"})
"""The macros that may have two variables, and those that always have."""
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_RESERVED = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "in", "let", "loop", "namespace",
    "package", "return", "var", "void", "while",
})  # fmt: skip
_VALUE = "a value: a field, a literal, a call, a list, a map or ( )"


def parse(text: str) -> Node:
    """The untyped tree of an expression."""
    parser = _Parser(tokens_of(text))
    node = parser.expression()
    parser.expect("end", "an operator, or the end of the expression")
    if measure(node)[1] > LEVELS:
        raise TextError(0, f"the expression is nested too deeply: at most {LEVELS} levels")
    return node


class _Parser:
    """The position in the tokens, the depth of nesting, and the comprehension variables in scope."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.nesting = -1  # the expression itself is in no brackets
        self.slots = 0
        self.bound: list[tuple[str, int]] = []

    def peek(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, kind: str) -> bool:
        if self.tokens[self.position].kind != kind:
            return False
        self.position += 1
        return True

    def expect(self, kind: str, expected: str) -> Token:
        token = self.peek()
        if token.kind != kind:
            raise TextError(token.at, f"{_shown(token)} does not belong here", expected)
        if kind != "end":
            self.position += 1
        return token

    def deeper(self, at: int) -> None:
        self.nesting += 1
        if self.nesting > NESTING:
            raise TextError(at, f"the expression is nested too deeply: at most {NESTING} levels of brackets")

    def expression(self) -> Node:
        self.deeper(self.peek().at)
        condition = self.binary(1)
        if self.peek().kind == "?":
            at = self.take().at
            then = self.expression()
            self.expect(":", ": and the value for when it is false")
            condition = FunctionCall(at, "?:", (condition, then, self.expression()))
        self.nesting -= 1
        return condition

    def binary(self, least: int) -> Node:
        left = self.unary()
        while True:
            token = self.peek()
            sign = str(token.value) if token.kind == "name" else token.kind
            precedence = _PRECEDENCE.get(sign, 0)
            if precedence < least:
                return left
            self.take()
            left = FunctionCall(token.at, sign, (left, self.binary(precedence + 1)))

    def unary(self) -> Node:
        token = self.peek()
        if token.kind not in ("!", "-"):
            return self.members(self.primary())
        self.take()
        number = self.peek()
        if token.kind == "-" and number.kind in ("int", "float"):
            self.take()
            return self.members(Literal(token.at, -cast(float, number.value)))
        self.deeper(token.at)
        operand = self.unary()
        self.nesting -= 1
        return FunctionCall(token.at, "!" if token.kind == "!" else "negate", (operand,))

    def members(self, node: Node) -> Node:
        while True:
            token = self.peek()
            if token.kind == "{":
                raise TextError(token.at, "there are no messages of protobuf to make here", 'a map like {"a": 1}')
            if token.kind in (".", "[") and self.tokens[self.position + 1].kind == "?":
                raise TextError(token.at + 1, "there are no optional values", "has(a.b) ? a.b : …")
            if token.kind == ".":
                self.take()
                if self.peek().kind == "quoted":
                    name = self.take()
                    node = Select(name.at, node, str(name.value))
                    continue
                name = self.expect("name", "the name of a field or function")
                node = self.method(node, name) if self.accept("(") else Select(name.at, node, str(name.value))
            elif token.kind == "[":
                self.take()
                index = self.expression()
                self.expect("]", "]")
                node = FunctionCall(token.at, "[]", (node, index))
            else:
                return node

    def method(self, target: Node, name: Token) -> Node:
        function = str(name.value)
        if function in MACROS:
            return self.comprehension(target, name)
        arguments = self.arguments(")")
        return FunctionCall(name.at, function, (target, *arguments), member=True)

    def comprehension(self, target: Node, name: Token) -> Node:
        macro = MACROS[str(name.value)]
        names = [self.variable(f"{name.value}(x, …)")]
        if macro in _TWO or (macro in _ONE_OR_TWO and self.is_variable()):
            names.append(self.variable(f"{name.value}(i, x, …)"))
            if names[0] == names[1]:
                raise TextError(name.at, f"both variables of {name.value}() are named {names[0]!r}", "two names")
        slot = self.slots
        self.slots += len(names)
        self.bound += [(word, slot + index) for index, word in enumerate(names)]
        parts = [self.expression()]
        if (macro == "map" or macro in _TWO) and self.accept(","):
            parts.append(self.expression())
        self.expect(")", ")")
        del self.bound[-len(names) :]
        transform = parts.pop() if macro == "map" or macro in _TWO else None
        predicate = parts[0] if parts else None
        second = names[1] if len(names) == 2 else None
        return Comprehension(name.at, macro, target, names[0], slot, predicate, transform, second)

    def is_variable(self) -> bool:
        """Whether a name and a comma come next, which no expression begins with."""
        return self.peek().kind == "name" and self.tokens[self.position + 1].kind == ","

    def variable(self, form: str) -> str:
        """The name of a comprehension's variable, and the comma after it."""
        token = self.expect("name", f"the name of a variable, as in {form}")
        word = str(token.value)
        if word in _CONSTANTS or word in _RESERVED:
            raise TextError(token.at, f"{word!r} cannot name a variable", "another name")
        self.expect(",", ", and an expression")
        return word

    def arguments(self, closing: str) -> list[Node]:
        found: list[Node] = []
        while not self.accept(closing):
            found.append(self.expression())
            if not self.accept(","):
                self.expect(closing, f", or {closing}")
                break
        return found

    def primary(self) -> Node:
        token = self.take()
        match token.kind:
            case "int" if cast(int, token.value) > INT_MAX:
                raise TextError(token.at, f"{token.value} does not fit into 64 bits", f"a number up to {INT_MAX}")
            case "int" | "float" | "string":
                return Literal(token.at, token.value)
            case "name":
                return self.named(token)
            case "(":
                node = self.expression()
                self.expect(")", ")")
                return node
            case "[":
                return ListOf(token.at, tuple(self.arguments("]")))
            case "{":
                return self.map_literal(token.at)
            case _:
                raise TextError(token.at, f"{_shown(token)} does not belong here", _VALUE)

    def map_literal(self, at: int) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self.accept("}"):
            key = self.expression()
            self.expect(":", ": and a value")
            entries.append((key, self.expression()))
            if not self.accept(","):
                self.expect("}", ", or }")
                break
        return MapOf(at, tuple(entries))

    def named(self, token: Token) -> Node:
        name = str(token.value)
        if name in _CONSTANTS:
            return Literal(token.at, _CONSTANTS[name])
        if name in _RESERVED:
            raise TextError(token.at, f"{name!r} is a reserved word", _VALUE)
        if self.accept("("):
            return self.call(token.at, name)
        for bound, slot in reversed(self.bound):
            if bound == name:
                return Bound(token.at, name, slot)
        return Variable(token.at, name)

    def call(self, at: int, name: str) -> Node:
        arguments = self.arguments(")")
        if name != "has":
            return FunctionCall(at, name, tuple(arguments))
        if len(arguments) != 1 or not isinstance(arguments[0], Select):
            raise TextError(at, "has() asks for a field of something", "has(something.field)")
        selected = arguments[0]
        return Select(at, selected.operand, selected.field, test=True)


def _shown(token: Token) -> str:
    return "the end" if token.kind == "end" else repr(str(token.value)[:40])
