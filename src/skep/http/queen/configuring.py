"""`configure`: Queen's options as our settings."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.errors import Code, SkepError
from skep.http.queen.door import QueenDoor
from skep.http.queen.shapes import QueenConfigure, QueenConfigured
from skep.http.request.call import Answer, Call, json_answer
from skep.model import Queue, QueueChanges, QueueSettings

_PLAIN = {
    "leaseTime": "lease_seconds",
    "priority": "priority",
    "delayedProcessing": "delayed_processing_seconds",
    "windowBuffer": "window_buffer_seconds",
    "maxSize": "max_depth",
    "maxQueueSize": "max_depth",
    "retentionSeconds": "retention_seconds",
    "completedRetentionSeconds": "completed_retention_seconds",
    "maxWaitTimeSeconds": "max_wait_seconds",
    "encryptionEnabled": "encryption_enabled",
}
"""Options that are a setting under another name. `maxQueueSize` was the name of `maxSize` in earlier clients."""
_ALIASES = frozenset({"maxQueueSize"})
RETRY_LIMIT, RETRY_DELAY = "retryLimit", "retryDelay"

_decode = msgspec.json.Decoder(QueenConfigure)


async def configure(door: QueenDoor, call: Call) -> Answer:
    """Make a queue, or change its options. Options that we have nothing for are ignored."""
    request = await call.json(_decode)
    key = call.queue(request.queue)
    queue = await door.engine.configure_queue(key, changes_of(request))
    told = QueenConfigured(True, queue.key.name, queue.settings.namespace, queue.settings.task, options_of(queue))
    return json_answer(told)


def changes_of(request: QueenConfigure) -> QueueChanges:
    """The settings that a request is for. Queen delivers what failed after ``retryDelay`` milliseconds each time, at once by default."""
    given: dict[str, Any] = {"namespace": request.namespace or None, "task": request.task or None}
    options = request.options or {}
    for option, name in _PLAIN.items():
        if (value := options.get(option)) is not None:
            given[name] = _value(option, value, name)
    if (limit := options.get(RETRY_LIMIT)) is not None:
        given["max_attempts"] = _value(RETRY_LIMIT, limit, "max_attempts") + 1
    delay = options.get(RETRY_DELAY)
    delay_ms = 0 if delay is None else _value(RETRY_DELAY, delay, "initial_backoff_ms")
    given["initial_backoff_ms"] = given["max_backoff_ms"] = delay_ms
    return QueueChanges(**given)


def _value(option: str, value: object, setting: str) -> Any:
    """The value of an option in the type of the setting."""
    kind = type(getattr(QueueSettings(), setting))
    if kind is not bool and type(value) is float and value.is_integer():
        value = int(value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        what = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise SkepError(Code.INVALID_SETTING, f"the option {option} is {what}")
    if option == RETRY_LIMIT and value < 0:  # type: ignore[operator]  # it is an int here
        raise SkepError(Code.INVALID_SETTING, f"the option {option} is 0 or more")
    return value


def options_of(queue: Queue) -> dict[str, Any]:
    """The options of a queue as Queen names them. One that retries for ever has no retry limit."""
    settings = queue.settings
    told = {option: _plain(getattr(settings, name)) for option, name in _PLAIN.items() if option not in _ALIASES}
    told[RETRY_LIMIT] = settings.max_attempts - 1 if settings.max_attempts else None
    told[RETRY_DELAY] = settings.initial_backoff_ms
    return told


def _plain(value: object) -> object:
    """A number of seconds as a whole one, where it is: clients compare it."""
    return int(value) if type(value) is float and value.is_integer() else value
