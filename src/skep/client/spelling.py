"""Keyword arguments that are passed on, spelled out: `help` and `inspect.signature` show them by name, type and default.

Type checkers know them from the TypedDict. Whoever asks Python itself would see nothing but ``**options``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Unsaid:
    """A default that has no value: what holds then is in the words."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return f"<{self._words}>"


NOT_GIVEN = Unsaid("not given")


def spelled_out(options: type, defaults: Mapping[str, object]) -> Callable[[F], F]:
    """Let a function's signature show the keys of a TypedDict where it has ``**options``; how it is called stays the same."""

    def spell(function: F) -> F:
        signature = inspect.signature(function)
        named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        named += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name, NOT_GIVEN), annotation=_text(kind)
            )
            for name, kind in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined] # functions have no such field yet
        if options.__doc__:
            function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{inspect.cleandoc(options.__doc__)}"
        return function

    return spell


def _text(kind: object) -> object:
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
