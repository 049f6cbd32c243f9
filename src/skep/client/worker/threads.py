"""Run plain functions in threads, with the caller's context variables."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from skep.client.worker.signatures import ran


async def in_thread(pool: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the function. Whatever it raises is raised here, a StopIteration too: a future cannot hold one, and whoever
    waits for it would wait for ever. A SystemExit in a future would end the event loop before anybody can catch it.
    """
    context = contextvars.copy_context()

    def called() -> tuple[Any, BaseException | None]:
        try:
            return ran(context.run(function, *arguments), function), None
        except BaseException as error:
            return None, error

    returned, error = await asyncio.get_running_loop().run_in_executor(pool, called)
    if error is not None:
        raise error
    return returned
