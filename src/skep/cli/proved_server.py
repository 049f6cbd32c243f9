"""Calls about keys to the server that holds a store, over the connection on which the server proved that it does."""

from __future__ import annotations

from http.client import HTTPException
from typing import TypeVar

from skep.access.presence import Presence, Proved
from skep.cli.connection import TIMEOUT_SECONDS
from skep.client.access_calls import AccessCalls
from skep.client.exchange import ApiCall, ApiResponse
from skep.errors import Code, SkepError

T = TypeVar("T")


class ProvedServer(AccessCalls):
    """The calls about keys, made with the secret that the server left beside its store."""

    def __init__(self, presence: Presence, proved: Proved) -> None:
        self._presence = presence
        self._connection = proved.connection
        self.asks_for_keys = proved.asks_for_keys
        assert self._connection.sock is not None
        self._connection.sock.settimeout(TIMEOUT_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def run(self, call: ApiCall[T]) -> T:
        """Make a call."""
        request = call.request
        headers = {"Authorization": f"Bearer {self._presence.secret}", "Content-Type": "application/json"}
        try:
            self._connection.request(request.method, request.target, request.body, headers)
            response = self._connection.getresponse()
            answer = ApiResponse(response.status, response.read())
        except (OSError, HTTPException) as error:
            raise SkepError(Code.SERVER_UNREACHABLE, f"{self._presence.address} went away: {error}") from error
        return call.read(answer)
