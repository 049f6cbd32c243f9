"""The client: pushes, pops and settles over HTTP. It imports and runs without anything of the server.

The core builds requests, reads answers, and decides about retries, failover and circuit breakers, without sending anything. `Client`
and `AsyncClient` are thin shells that send. Names are loaded when they are first used: a program that needs only one of the two
does not wait for the rest.
"""

from typing import TYPE_CHECKING

from skep._lazy import lazy_names

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
    name: f"skep.client.{module}"
    for module, names in {
        "async_client": ["AsyncClient"], "async_message": ["AsyncMessage"], "async_queue": ["AsyncQueue"],
        "client": ["Client"], "message": ["Message"], "outgoing": ["NewMessage"], "pushed": ["Pushed", "Queued"],
        "queue": ["Queue"], "worker": ["Reject", "Retry", "RetryAt", "Worker"],
    }.items()
    for name in names
}  # fmt: skip

if not TYPE_CHECKING:  # or every misspelt name would have a type
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
