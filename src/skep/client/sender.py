# Written by dev/twins.py from async_sender.py: change that, and run it.

"""A client for threads as its parts know it: it makes calls. They know no more of it, so that nothing imports in a circle."""

from __future__ import annotations

from typing import Protocol, TypeVar

from skep.client.exchange import ApiCall
from skep.client.settings import ClientSettings
from skep.clock import Clock

T = TypeVar("T")


class Sender(Protocol):
    """What messages, transactions, buffers and the groups of calls need of a client."""

    clock: Clock
    settings: ClientSettings

    def run(self, call: ApiCall[T]) -> T:
        """Make a call, again if it fails and may be made again."""
        raise NotImplementedError
