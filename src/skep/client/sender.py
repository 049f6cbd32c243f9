# Written by dev/twins.py from async_sender.py: change that, and run it.

"""The part of a client for threads that makes calls. Its other parts know only this, so that there are no import cycles."""

from __future__ import annotations

from typing import Protocol, TypeVar

from skep.client.exchange import ApiCall
from skep.client.settings import ClientSettings
from skep.clock import Clock

T = TypeVar("T")


class Sender(Protocol):
    """The part of a client that messages, transactions, buffers and groups of calls use."""

    clock: Clock
    settings: ClientSettings

    def run(self, call: ApiCall[T]) -> T:
        """Make a call, with retries where it may be repeated."""
        raise NotImplementedError
