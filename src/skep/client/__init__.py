"""The client: pushes, pops and settles over HTTP. It imports and runs without anything of the server.

The core says what to send and how to read what comes back, and decides about retries, failover and circuits, without sending
anything; `Client` and `AsyncClient` are thin shells around it that do.
"""

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
