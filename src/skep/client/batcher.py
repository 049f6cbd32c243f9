"""The waiting messages of a buffer: bounded, in order, and taken batch by batch. A state machine that sends nothing.

A batch that is being sent stays here until it is stored, so that a failed batch can be tried again or shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from skep.client.failures import AnsweredError
from skep.client.outgoing import encode
from skep.errors import Code, SkepError
from skep.model import PushStatus
from skep.wire.messages import PushedMessage, PushItem

MEBIBYTE = 1024 * 1024
BATCH_BYTES = 4 * MEBIBYTE
"""The largest size of a batch: well below the largest request of a server."""

_ABOUT_CONTENT = frozenset({400, 413, 422})
"""Statuses of a request that could not be read, or was too large."""


class BufferOptions(TypedDict, total=False):
    """How a buffer behaves.

    It holds at most ``max_messages`` and ``max_bytes`` and blocks when full; it pushes as soon as ``batch`` messages wait, or
    when the first has waited for ``linger_ms``.
    """

    max_messages: int
    max_bytes: int
    batch: int
    linger_ms: float


class BatcherSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options with their defaults."""

    max_messages: int = 10_000
    max_bytes: int = 16 * MEBIBYTE
    batch: int = 500
    linger_ms: float = 5.0

    def __post_init__(self) -> None:
        if min(self.max_messages, self.max_bytes, self.batch) < 1 or self.linger_ms < 0:
            raise SkepError(Code.INVALID_REQUEST, "the bounds of a buffer are at least 1, linger_ms at least 0")


BUFFER_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(BatcherSettings)}


class Batcher:
    """The messages of one buffer. Not safe for threads by itself."""

    def __init__(self, settings: BatcherSettings) -> None:
        self.settings = settings
        self._waiting: deque[tuple[PushItem, int]] = deque()
        self._bytes = 0
        self._taken = 0
        self._most = settings.batch
        self.failed: list[PushedMessage] = []
        """Messages that the server refused for good, with their reasons."""
        self.error: SkepError | None = None
        """Why the first of them was refused."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unsent(self) -> list[PushItem]:
        """The messages that are not stored yet, in order."""
        return [item for item, _ in self._waiting]

    @property
    def ready(self) -> bool:
        """Whether there is a whole batch."""
        return len(self._waiting) >= self.settings.batch or self.full

    @property
    def full(self) -> bool:
        """Whether nothing more fits. A single message always does, however large."""
        return len(self._waiting) >= self.settings.max_messages or self._bytes >= self.settings.max_bytes

    def add(self, item: PushItem) -> None:
        """Add one message."""
        size = len(encode(item))
        self._waiting.append((item, size))
        self._bytes += size

    def take(self) -> list[PushItem]:
        """The next batch; it stays here until `stored` or `refused`."""
        batch: list[PushItem] = []
        size = 0
        for item, bytes_ in self._waiting:
            if batch and (len(batch) >= self._most or size + bytes_ > BATCH_BYTES):
                break
            batch.append(item)
            size += bytes_
        self._taken = len(batch)
        return batch

    def stored(self) -> None:
        """The batch is in the log."""
        for _ in range(self._taken):
            self._bytes -= self._waiting.popleft()[1]
        self._taken, self._most = 0, self.settings.batch

    def refused(self, error: SkepError, results: Sequence[PushedMessage]) -> None:
        """The batch was refused for good: put the refused messages aside, and keep the others for the next try."""
        if self._taken > 1 and _unspecific(error):
            # Nothing was stored, and the error names no message: halve the batch until a single message is refused.
            self._taken, self._most = 0, self._taken // 2
            return
        kept = [
            entry
            for entry, result in zip(list(self._waiting)[: self._taken], results, strict=True)
            if not self._guilty(result)
        ]
        rest = list(self._waiting)[self._taken :]
        self.failed += [result for result in results if self._guilty(result)]
        self.error = self.error or error
        self._waiting = deque([*kept, *rest])
        self._bytes = sum(size for _, size in self._waiting)
        self._taken, self._most = 0, self.settings.batch

    def raise_failed(self) -> None:
        """Raise the error of messages that were refused since the last call, if there are any."""
        error, failed = self.error, self.failed
        if error is not None:
            self.error, self.failed = None, []
            raise SkepError(error.code, error.message, failed=failed) from error

    @staticmethod
    def _guilty(result: PushedMessage) -> bool:
        return result.status is PushStatus.REFUSED and result.code is not Code.BATCH_REFUSED


def _unspecific(error: SkepError) -> bool:
    """Whether the request was refused for its content, and the error does not name the message."""
    return isinstance(error, AnsweredError) and error.status in _ABOUT_CONTENT and "messages" not in error.details
