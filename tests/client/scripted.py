"""A server on a real socket that answers as it was told to: with an error, with half an answer, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

HANG_UP = b""
"""Close the connection instead of answering."""


class Received(NamedTuple):
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def transaction_ids(self) -> list[str | None]:
        """Those of the pushed messages."""
        return [item.get("transactionId") for item in self.json["items"]]


Script = Callable[[Received], bytes]


def reply(status: int, value: object = None, **headers: str) -> bytes:
    """An answer with JSON in it."""
    body = b"" if value is None else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: int, code: str, **headers: str) -> bytes:
    """An error as Skep tells it."""
    return reply(status, {"error": {"code": code, "message": "as the script says", "details": {}}}, **headers)


def stored(request: Received) -> bytes:
    """The answer to a push that was stored."""
    messages = [
        {"transaction_id": id_, "status": "stored", "message_id": "m", "trace_id": None, "seq": number}
        for number, id_ in enumerate(request.transaction_ids, 1)
    ]
    return reply(201, {"pushed": True, "qos0": False, "dbHealthy": True, "messages": messages, "queues": {}})


class ScriptedServer:
    """Answers each request with the next part of its script; the last part stays."""

    def __init__(self, *script: bytes | Script) -> None:
        self._script = list(script)
        self._lock = threading.Lock()
        self.requests: list[Received] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._conversing: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Listen no more and hang up on everybody."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._conversing:
            thread.join()

    @property
    def connections(self) -> int:
        """How many were made."""
        return len(self._connections)

    def hang_up(self) -> None:
        """Close all connections that are idle, and see that they are closed."""
        for connection, thread in zip(self._connections, self._conversing, strict=True):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def tell(self, *script: bytes | Script) -> None:
        """A new script."""
        with self._lock:
            self._script = list(script)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._converse, args=[connection])
            self._conversing.append(thread)
            thread.start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            while (line := stream.readline()) not in (b"", b"\r\n"):
                method, target, _ = line.decode().split()
                headers = {}
                while (header := stream.readline()) not in (b"", b"\r\n"):
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", "0")))
                answer = self._next(Received(method, target, headers, body))
                if answer == HANG_UP:
                    return
                connection.sendall(answer)

    def _next(self, request: Received) -> bytes:
        with self._lock:
            self.requests.append(request)
            part = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return part if isinstance(part, bytes) else part(request)


def unused_url() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
