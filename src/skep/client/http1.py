"""HTTP/1.1 as far as a client of Skep needs it: a request as bytes, and an answer out of bytes as they come. Nothing here sends.

It is for plain ``http://``: no TLS, no proxies, no redirects, no compression. Those are pyreqwest's (`skep.client.transport`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from skep.client.exchange import NO_CONTENT, OK, ApiResponse

HEAD_BYTES = 64 * 1024
"""The most that the head of an answer, or the line that begins a chunk, may have."""

_END = b"\r\n\r\n"
_LINE = b"\r\n"
_NOT_MODIFIED = 304
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_METHOD = re.compile(r"[A-Za-z]+")
_TARGET = re.compile(r"/[!-\"$-~]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*")
_PLAIN_PUNCTUATION = "%/?&=:;,@!$'()*+~"


class BrokenAnswerError(Exception):
    """The bytes are not a valid answer, or ended before it was whole."""


def header_lines(headers: Mapping[str, str]) -> str:
    """Headers as they stand in a request; ValueError when one would break it."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    for line in lines:
        if not _HEADER.fullmatch(line):
            raise ValueError(f"{line.partition(':')[0]!r} is no header, or its value has control characters")
    return "".join(f"{line}\r\n" for line in lines)


def request_line(method: str, target: str) -> str:
    """The first line of a request; ValueError when there is no such."""
    if not _TARGET.fullmatch(target):
        target = quote(target, safe=_PLAIN_PUNCTUATION)
    if not _METHOD.fullmatch(method) or not target.startswith("/"):
        raise ValueError(f"{method!r} {target!r} is no method and path")
    return f"{method} {target} HTTP/1.1\r\n"


def length_line(method: str, body: bytes | None) -> str:
    """The header with the body's length; empty where no body is expected."""
    return "" if body is None and method in ("GET", "HEAD") else f"content-length: {len(body or b'')}\r\n"


class AnswerReader:
    """The answer to one request, read as its bytes come."""

    __slots__ = ("_body", "_chunked", "_has_body", "_left", "_retry_after", "_status", "_unread", "reusable")

    def __init__(self, method: str) -> None:
        self._has_body = method != "HEAD"
        self._unread = b""
        """Bytes that are not read yet: of a head, or of a chunk."""
        self._status = 0
        """Zero until the head was read."""
        self._left: int | None = None
        """How much of the body is missing; None when it ends with the connection."""
        self._chunked = False
        self._body: list[bytes] = []
        self._retry_after: str | None = None
        self.reusable = True
        """Whether another request may follow over the same connection."""

    def feed(self, data: bytes) -> ApiResponse | None:
        """Read what came; the answer, once it is whole."""
        while not self._status:
            data, self._unread = self._unread + data, b""
            end = data.find(_END)
            if end < 0:
                self._keep(data)
                return None
            self._read_head(data[:end])
            data = data[end + len(_END) :]
        if self._chunked:
            return self._answer() if self._read_chunks(self._unread + data) else None
        if data:
            self._body.append(data)
        if self._left is None:
            return None
        self._left -= len(data)
        if self._left < 0:
            raise BrokenAnswerError("more came than the answer has")
        return None if self._left else self._answer()

    def ended(self) -> ApiResponse:
        """The connection ended: that may be how the answer ends."""
        if not self._status or self._chunked or self._left is not None:
            raise BrokenAnswerError("the connection was closed before the answer was whole")
        return self._answer()

    def _answer(self) -> ApiResponse:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return ApiResponse(self._status, body, self._retry_after)

    def _keep(self, data: bytes) -> None:
        if len(data) > HEAD_BYTES:
            raise BrokenAnswerError(f"a head of more than {HEAD_BYTES} bytes")
        self._unread = data

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(_LINE)
        if not first.startswith(b"HTTP/1.") or not first[9:12].isdigit():
            raise BrokenAnswerError(f"not HTTP/1.1, but {first[:40]!r}")
        status = int(first[9:12])
        if status < OK:
            return  # what an interim answer says is of no use to us; the answer follows
        self._status = status
        self.reusable = first.startswith(b"HTTP/1.1")
        for line in lines:
            name, _, value = line.partition(b":")
            self._read_header(name.lower(), value.strip())
        if not self._has_body or status in (NO_CONTENT, _NOT_MODIFIED):
            self._left, self._chunked = 0, False
        elif self._left is None:
            self.reusable = self.reusable and self._chunked

    def _read_header(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            if not value.isdigit():
                raise BrokenAnswerError(f"a body of {value[:40]!r} bytes")
            self._left = int(value)
        elif name == b"transfer-encoding":
            self._chunked = True
            if value.lower() != b"chunked":
                raise BrokenAnswerError(f"a body encoded as {value[:40]!r}")
        elif name == b"connection" and b"close" in value.lower():
            self.reusable = False
        elif name == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def _read_chunks(self, data: bytes) -> bool:
        """Take whole chunks; whether the last one is there."""
        at = 0
        while (line := data.find(_LINE, at)) >= 0:
            said = data[at:line].partition(b";")[0].rstrip()
            if not _SIZE.fullmatch(said):  # which is stricter than `int`: that takes signs and underscores
                raise BrokenAnswerError(f"a chunk of {said[:40]!r} bytes")
            size = int(said, 16)
            start = line + len(_LINE)
            if not size:
                end = start + len(_LINE) if data.startswith(_LINE, start) else data.find(_END, start) + len(_END)
                if end < start + len(_LINE):
                    break
                if len(data) > end:
                    raise BrokenAnswerError("more came than the answer has")
                return True
            if len(data) < start + size + len(_LINE):
                break
            self._body.append(data[start : start + size])
            at = start + size + len(_LINE)
        self._unread = data[at:]
        return False
