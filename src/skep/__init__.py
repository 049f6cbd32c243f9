"""Skep: a message queue for Python teams whose messages end up in Spark.

The names of the client are loaded when they are first used, so that importing `skep` costs nothing.
"""

from typing import TYPE_CHECKING

from skep._lazy import lazy_names

if TYPE_CHECKING:
    from skep.client import (
        AsyncClient,
        AsyncMessage,
        Client,
        Message,
        NewMessage,
        Pushed,
        Queued,
        Reject,
        Retry,
        RetryAt,
        Worker,
    )
    from skep.errors import Code, SkepError
    from skep.worker import App

__version__ = "0.1.0"

__all__ = [
    "App", "AsyncClient", "AsyncMessage", "Client", "Code", "Message", "NewMessage", "Pushed", "Queued", "Reject", "Retry",
    "RetryAt", "SkepError", "Worker",
]  # fmt: skip

_HOMES = dict.fromkeys(__all__, "skep.client") | {
    "App": "skep.worker", "Code": "skep.errors", "SkepError": "skep.errors"
}  # fmt: skip


if not TYPE_CHECKING:  # or every misspelt name would have a type
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
