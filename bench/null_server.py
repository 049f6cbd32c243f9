"""A server that does nothing: it answers every push as stored, as fast as Python can, so that the client is what is measured.

`python -m bench.null_server` prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from skep.model import PushStatus
from skep.runtime.loop import run
from skep.wire.messages import PushedMessage, PushResponse, QueueDepth

ROOT = Path(__file__).resolve().parents[1]
ID = "01a1de02-7b1f-7061-b55a-489bc83b0732"
BODY = msgspec.json.encode(
    PushResponse(True, False, True, [PushedMessage(ID, PushStatus.STORED, ID, ID, 1)], {"orders": QueueDepth(1, None)})
)
ANSWER = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


class Nothing(asyncio.Protocol):
    """One connection: reads whole requests and answers each with the same bytes."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody came."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole by now."""
        assert self._transport is not None
        self._buffer += data
        while (length := request_bytes(self._buffer)) is not None:
            self._buffer = self._buffer[length:]
            self._transport.write(ANSWER)


def request_bytes(buffer: bytes) -> int | None:
    """How long the first request is, head and body; None while it is not whole."""
    head = buffer.find(b"\r\n\r\n")
    if head < 0:
        return None
    length = head + 4
    for line in buffer[:head].lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length += int(line[15:])
    return length if len(buffer) >= length else None


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Nothing, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def running_null_server() -> Iterator[str]:
    """The URL of one in a process of its own."""
    command = [sys.executable, "-m", "bench.null_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    run(serve())
