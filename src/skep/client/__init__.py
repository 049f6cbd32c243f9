"""The client: pushes, pops and settles over HTTP. It imports and runs without anything of the server.

The core says what to send and how to read what comes back, and decides about retries, failover and circuits, without sending
anything; `Client` and `AsyncClient` are thin shells around it that do. Names are loaded when they are first used: who needs one of
the two, or a setting, does not wait for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skep.client.async_client import AsyncClient
    from skep.client.async_message import AsyncMessage
    from skep.client.async_queue import AsyncQueue
    from skep.client.client import Client
    from skep.client.message import Message
    from skep.client.outgoing import NewMessage
    from skep.client.pushed import Pushed, Queued
    from skep.client.queue import Queue
    from skep.client.worker import Reject, Retry, RetryAt, Worker

__all__ = [
    "AsyncClient", "AsyncMessage", "AsyncQueue", "Client", "Message", "NewMessage", "Pushed", "Queue", "Queued", "Reject",
    "Retry", "RetryAt", "Worker",
]  # fmt: skip

_HOMES = {
    "AsyncClient": "async_client", "AsyncMessage": "async_message", "AsyncQueue": "async_queue", "Client": "client",
    "Message": "message", "NewMessage": "outgoing", "Pushed": "pushed", "Queue": "queue", "Queued": "pushed",
    "Reject": "worker", "Retry": "worker", "RetryAt": "worker", "Worker": "worker",
}  # fmt: skip


if not TYPE_CHECKING:  # or every misspelt name would have a type

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'skep.client' has no attribute {name!r}")
        value = getattr(import_module(f"skep.client.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
