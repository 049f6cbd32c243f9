"""A plain socket that speaks as much HTTP as a test wants, well or badly."""

from __future__ import annotations

import json
import select
import socket
from typing import Any, NamedTuple

READ_SECONDS = 30.0


class RawReply(NamedTuple):
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of the error it tells of."""
        return str(json.loads(self.body)["error"]["code"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def ends_connection(self) -> bool:
        return self.headers.get("connection") == "close"


class Wire:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(READ_SECONDS)
        self._unread = b""
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Wire:
        self.socket.sendall(data)
        return self

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        host: str = "localhost",
    ) -> Wire:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        return self.send(head.encode() + body)

    def trickle(self, data: bytes, pause_seconds: float = 0.05) -> bool:
        """Send byte by byte until the server has something to say; whether it had before the data ended."""
        for byte in data:
            try:
                self.socket.sendall(bytes([byte]))
            except OSError:
                return True
            if select.select([self.socket], [], [], pause_seconds)[0]:
                return True
        return False

    def reply(self) -> RawReply:
        """The next response."""
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self._unread) < length:
            self._more()
        body, self._unread = self._unread[:length], self._unread[length:]
        return RawReply(int(first.split(" ")[1]), headers, body)

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError(f"the server closed the connection after {self._unread!r}")
        self._unread += data

    def is_ended(self) -> bool:
        """Wait for the server to end the connection; False when it says something instead."""
        try:
            return not self._unread and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
