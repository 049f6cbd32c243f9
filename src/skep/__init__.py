"""Skep: a message queue for Python teams whose messages end up in Spark.

The names of the client are loaded when they are first used, so that importing `skep` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

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


def _loading(
    package: "dict[str, Any]", homes: "Mapping[str, str]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """The `__getattr__` and `__dir__` of a package, given its globals, whose names are loaded from these modules when first used."""

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(home), name)
        return value

    return get, lambda: sorted({*package, *homes})


if not TYPE_CHECKING:  # or every misspelt name would have a type
    __getattr__, __dir__ = _loading(globals(), _HOMES)
