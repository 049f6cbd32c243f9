"""Functions for webhooks without a queue. The server's process calls them with the input alone, and answers with their result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from skep.client.outgoing import encode
from skep.client.worker.failing import failed
from skep.client.worker.verdict import Reject, Retry, RetryAt
from skep.entities.refusal import unfit_input
from skep.errors import Code, SkepError
from skep.spec import Validator, compile_validator, misfit_of
from skep.spec.messages import with_defaults
from skep.worker.app import App
from skep.worker.functions import CommandFunction

AtOnce = Callable[[dict[str, object]], Awaitable[bytes]]

log = logging.getLogger("skep.worker")


def inline_functions(app: App, pool: Executor) -> dict[tuple[str, str], AtOnce]:
    """The functions that webhooks of an app call, by app and command. COMMAND_UNAVAILABLE when a command has neither function nor entity."""
    found: dict[tuple[str, str], AtOnce] = {}
    for webhook, declared in app.spec.webhooks.items():
        call = declared.command
        if call is None:
            continue
        name = f"{call.entity}.{call.command}"
        function, entity = app.functions.get(name), app.spec.entities.get(call.entity)
        if function is None and entity is None:
            raise SkepError(
                Code.COMMAND_UNAVAILABLE,
                f"nothing carries out {name}, which the webhook {webhook} runs: declare the entity, or give a function with "
                f'@app.command("{name}")',
                commands=[name],
            )
        if function is None:
            continue
        if function.wants_message:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the function for {name} takes a message, and the webhook {webhook} has none: let it take the input alone",
            )
        validator = compile_validator(entity.commands[call.command].input) if entity is not None else None
        found[app.name, name] = _called(function, validator, pool)
    return found


def _called(function: CommandFunction, validator: Validator | None, pool: Executor) -> AtOnce:
    async def call(input_: dict[str, object]) -> bytes:
        if validator is not None:
            if (unfit := misfit_of(validator, input_)) is not None:
                raise unfit_input(unfit, function.name)
            input_ = with_defaults(validator, dict(input_))
        argument = function.argument(input_)
        try:
            return encode(await function.call(argument, None, pool))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            log.warning("%s was cancelled by something that it waited for", function.name)
        except Reject as error:
            failed(logging.INFO, f"{function.name} refused a request", error)
            raise SkepError(Code.GUARD_REJECTED, f"{function.name} refused this request") from None
        except (Retry, RetryAt) as error:
            failed(logging.INFO, f"{function.name} is to be tried again", error)
            raise SkepError(Code.COMMAND_UNAVAILABLE, f"{function.name} cannot be carried out now") from None
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException as error:  # also `sys.exit()`: a request from outside must not end the server
            failed(logging.WARNING, f"{function.name} failed", error)
        # The cause goes into the log, and is not shown to the sender.
        raise SkepError(Code.COMMAND_FAILED, f"{function.name} failed") from None

    return call
