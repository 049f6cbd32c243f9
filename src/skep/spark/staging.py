"""One epoch's rows on the server: staged invisibly, then published once, or dropped."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from skep.client.exchange import Call, Request, path_part
from skep.client.reading import nothing, reader
from skep.spark.link import Link


class Attempt(Struct, frozen=True):
    """What one task staged."""

    partition: int
    attempt: str


class EpochState(Struct, frozen=True):
    """Whether an epoch is visible."""

    published: bool


_state = reader(EpochState)


class Epoch:
    """The rows of one batch of one query."""

    def __init__(self, server: Link, query: str, epoch: int) -> None:
        self._server = server
        self._path = f"/api/v1/staging/{path_part(query)}/{epoch}"

    def is_published(self) -> bool:
        """Whether it is visible already: then it was done before, and staging it again is of no use."""
        return self._server.run(Call(Request("GET", self._path), _state)).published

    def stage(self, partition: int, attempt: str, chunk: int, rows: bytes, queue: str | None) -> None:
        """Keep rows, invisibly. The same chunk may be sent twice."""
        query = {"chunk": str(chunk)} | ({} if queue is None else {"queue": queue})
        self._server.send(f"{self._path}/{partition}/{attempt}", rows, nothing, query)

    def publish(self, attempts: Sequence[tuple[int, str]]) -> None:
        """Make these attempts visible, in the order of partitions, and forget all others; a repeat changes nothing."""
        body = msgspec.json.encode({"attempts": [Attempt(*one) for one in attempts]})
        self._server.run(Call(Request("POST", f"{self._path}/publish", body), nothing))

    def drop(self) -> None:
        """Forget all that was staged."""
        self._server.delete(self._path)
