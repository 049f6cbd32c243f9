"""Read a function's signature when it is registered. A function that cannot be called is refused at once.

A function with the wrong arguments would fail with every message. A function that only makes a coroutine or a generator would
complete every message without any work.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from skep.client.async_message import AsyncMessage
from skep.client.decoding import check_decodable
from skep.client.message import Message
from skep.client.message_data import MessageData
from skep.errors import Code, SkepError

Function = Callable[..., Any]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MESSAGES: dict[str, type[MessageData]] = {"Message": Message, "AsyncMessage": AsyncMessage, "Delivered": MessageData}
_UNKNOWN = object()


class FunctionParameter(Struct, frozen=True):
    """A parameter of a function: its name, and the type it is annotated with, if that is known."""

    name: str
    kind: Any = None
    text: str = ""
    """The annotation as it is written, when nobody can tell what it names."""

    @property
    def is_message(self) -> bool:
        """Whether it wants the message."""
        return bool(self.messages)

    @property
    def messages(self) -> list[type[MessageData]]:
        """The kinds of messages that it takes."""
        if self.kind is _UNKNOWN:
            named = _MESSAGES.get(self.text.rpartition(".")[2])  # imported for type checkers only
            return [] if named is None else [named]
        kinds = get_args(self.kind) if get_origin(self.kind) in (Union, UnionType) else [self.kind]
        return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, MessageData)]


def is_async(function: Function) -> bool:
    """Whether it runs in the event loop, not in a thread: an async function, or an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def parameters(function: Function, what: str) -> list[FunctionParameter]:
    """The parameters of a function, one or two; INVALID_REQUEST when it takes anything else.

    A second one that has a default counts when it asks for the message by its name or its type.
    """
    if not callable(function):
        raise _refused(function, what, "is no function")
    if inspect.isgeneratorfunction(_called(function)) or inspect.isasyncgenfunction(_called(function)):
        raise _refused(function, what, "is a generator, which does nothing until somebody asks it: use no yield")
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [FunctionParameter("message")]  # something built in, which does not tell
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in found):
        raise _refused(function, what, "has an argument that can only be given by its name")
    positional = [_parameter(one, function) for one in found if one.kind in _POSITIONAL]
    required = sum(one.default is one.empty for one in found if one.kind in _POSITIONAL)
    if required > 2 or not (positional or any(one.kind is one.VAR_POSITIONAL for one in found)):
        raise _refused(function, what, f"takes {required or 'no'} arguments")
    taken = positional[: max(required, 1)]
    if required < 2 <= len(positional) and (positional[1].is_message or positional[1].name == "message"):
        taken = positional[:2]
    taken = taken or [FunctionParameter("message")]  # *arguments
    _check_messages(function, what, taken)
    return taken


def payload_type(function: Function, what: str, taken: FunctionParameter) -> Any:
    """The type that a parameter wants the payload as; None when it has no annotation. INVALID_REQUEST when no payload can be decoded to it."""
    if taken.kind is _UNKNOWN:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{what} {name_of(function)!r}: nobody knows the type {taken.text!r} of its argument {taken.name!r}. Define it at "
            "the top of the module, and import it not only for type checkers.",
        )
    check_type(function, what, taken.kind)
    return taken.kind


def check_type(function: Function, what: str, kind: Any) -> None:
    """INVALID_REQUEST when no payload can be decoded to the type."""
    try:
        check_decodable(kind)
    except TypeError as error:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{what} {name_of(function)!r}: a payload cannot be decoded to {kind_name(kind)}: {error}. Use a dataclass, a "
            "TypedDict, a msgspec struct, a pydantic model or plain types; or take a skep.Message, and decode its payload.",
        ) from error


def ran(returned: Any, function: Function) -> Any:
    """The result of a function; TypeError when it only made a coroutine or a generator, and so did nothing yet."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError(f"{name_of(function)} returned a coroutine that nobody awaits: make it an async function")
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise TypeError(f"{name_of(function)} returned a generator, which does nothing until somebody asks it")
    return returned


def kind_name(kind: Any) -> str:
    """A type as people write it."""
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def name_of(function: Function) -> str:
    """A function's name, or what it looks like."""
    return getattr(function, "__qualname__", None) or repr(function)


def _called(function: Function) -> Any:
    """The code that a call runs: the function of a partial, or the method `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return getattr(function, "__call__", function)  # noqa: B004 - the method is wanted, not whether there is one


def _parameter(one: inspect.Parameter, function: Function) -> FunctionParameter:
    if one.annotation is one.empty:
        return FunctionParameter(one.name)
    kind = _resolved(one.annotation, function)
    return FunctionParameter(one.name, None if kind in (Any, object) else kind, str(one.annotation))


def _resolved(annotation: Any, function: Function) -> Any:
    """The type that an annotation names. Each annotation is resolved alone: one that only type checkers can resolve hides no other."""
    called: Any = _called(function)
    called = inspect.unwrap(vars(called).get("__init__", called) if isinstance(called, type) else called)
    try:
        alone = SimpleNamespace(__annotations__={"it": annotation})
        return get_type_hints(alone, called.__globals__, _around(called), include_extras=True)["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return _UNKNOWN if isinstance(annotation, str) else annotation


def _around(function: Any) -> dict[str, Any]:
    """The variables of enclosing functions that it uses and that have a value by now."""
    around = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has none yet
            around[name] = cell.cell_contents
    return around


def _check_messages(function: Function, what: str, taken: list[FunctionParameter]) -> None:
    if len(taken) == 2 and taken[0].is_message:
        raise _refused(function, what, "takes the message first")
    if len(taken) == 2 and taken[1].kind is not None and not taken[1].is_message and taken[1].kind is not _UNKNOWN:
        raise _refused(function, what, f"takes a second argument {taken[1].name!r} that is no message")
    unfit = Message if is_async(function) else AsyncMessage
    kinds = taken[-1].messages
    if kinds and all(kind is unfit for kind in kinds):
        wanted = "skep.AsyncMessage, whose methods are awaited" if is_async(function) else "skep.Message"
        raise _refused(function, what, f"is {'async' if is_async(function) else 'not async'}, so it gets a {wanted}")


def _refused(function: Function, what: str, why: str) -> SkepError:
    return SkepError(
        Code.INVALID_REQUEST,
        f"{what} {name_of(function)!r} {why}. It takes the payload, the message, or the payload and then the message.",
    )
