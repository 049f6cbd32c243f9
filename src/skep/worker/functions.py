"""Commands in Python: a function, what it wants to be given, and how it is called."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from skep.client.decoding import decode_json
from skep.client.delivered import Delivered
from skep.client.outgoing import encode
from skep.errors import Code, SkepError


class CommandFunction(Struct, frozen=True):
    """A function for a command. ``type`` is what its first parameter is annotated with; a dict when it says nothing."""

    name: str
    function: Callable[..., Any]
    type: Any
    wants_message: bool

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop, not in a thread."""
        return inspect.iscoroutinefunction(self.function)

    def argument(self, input_: dict[str, object]) -> Any:
        """The input as the function wants it; MAPPING_FAILED when it does not fit."""
        if self.type is None:
            return input_
        try:
            return decode_json(encode(input_), self.type)
        except SkepError as error:
            raise SkepError(Code.MAPPING_FAILED, f"the input of {self.name}: {error.message}") from error

    async def call(self, argument: Any, message: Delivered | None, pool: Executor) -> Any:
        """What the function returns: called here, or in a thread with the same context variables."""
        arguments = (argument, message) if self.wants_message else (argument,)
        if self.is_async:
            return await self.function(*arguments)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, lambda: context.run(self.function, *arguments))


def command_function(name: str, function: Callable[..., Any]) -> CommandFunction:
    """What a function's signature says: the input, and perhaps the message."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(positional) != len(parameters) or not 1 <= len(positional) <= 2:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a function for {name} takes the input and, if it wants, the message; {function!r} takes something else",
        )
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise SkepError(Code.INVALID_REQUEST, f"the types of {function!r} cannot be found: {error}") from error
    kind = hints.get(positional[0].name)
    plain = kind in (None, dict, Any) or kind == dict[str, Any] or kind == dict[str, object]
    return CommandFunction(name, function, None if plain else kind, len(positional) > 1)


def result_of(returned: Any) -> object:
    """What a function returned, as `then` reads it; MAPPING_FAILED when it is nothing that JSON can hold."""
    if returned is None:
        return None
    try:
        return msgspec.json.decode(encode(returned))
    except SkepError as error:
        raise SkepError(Code.MAPPING_FAILED, f"the command's result: {error.message}") from error
