"""Commands in Python: a function, the type of its input, and how it is called."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import msgspec
from msgspec import Struct

from skep.client.decoding import decode_json
from skep.client.message_data import MessageData
from skep.client.outgoing import encode
from skep.client.worker.signatures import is_async, name_of, parameters, payload_type
from skep.client.worker.threads import in_thread
from skep.errors import Code, SkepError


class CommandFunction(Struct, frozen=True):
    """A function for a command. ``type`` is the annotation of its first parameter; a dict without one."""

    name: str
    function: Callable[..., Any]
    type: Any
    wants_message: bool
    is_async: bool

    def argument(self, input_: dict[str, object]) -> Any:
        """The input as the function's type; MAPPING_FAILED when it does not fit."""
        if self.type is None:
            return input_
        try:
            return decode_json(encode(input_), self.type)
        except SkepError as error:
            raise SkepError(Code.MAPPING_FAILED, f"the input of {self.name}: {error.message}") from error

    async def call(self, argument: Any, message: MessageData | None, pool: Executor) -> Any:
        """Call the function, here or in a thread with the same context variables, and return its result."""
        arguments = (argument, message) if self.wants_message else (argument,)
        if self.is_async:
            return await self.function(*arguments)
        return await in_thread(pool, self.function, *arguments)


def command_function(name: str, function: Callable[..., Any]) -> CommandFunction:
    """Read a function's signature: the input, and perhaps the message. INVALID_REQUEST when it cannot be called so."""
    what = f"the function for {name},"
    found = parameters(function, what)
    if found[0].is_message:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{what} {name_of(function)!r} takes the message first: let it take the input and, if it wants, the message.",
        )
    kind = None if found[0].kind is None else payload_type(function, what, found[0])
    plain = kind in (None, dict) or kind == dict[str, Any] or kind == dict[str, object]
    return CommandFunction(name, function, None if plain else kind, len(found) > 1, is_async(function))


def result_of(returned: Any) -> object:
    """The result of a function, as `then` reads it; MAPPING_FAILED when it cannot be JSON."""
    if returned is None:
        return None
    try:
        return msgspec.json.decode(encode(returned))
    except SkepError as error:
        raise SkepError(Code.MAPPING_FAILED, f"the command's result: {error.message}") from error
