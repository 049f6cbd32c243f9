"""Read the client's bytes as requests: the parser's findings become cycles, within limits of size and time.

A head or a body that is not complete after a piece gets a deadline, and a bound on its size. The parser is C and calls this class for each
finding. These calls are most of the cost of a small request, so they do as little as they can.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import chain
from typing import Any, Protocol
from urllib.parse import unquote

import httptools

from skep.config import HttpLimits
from skep.errors import Code
from skep.http.connection.cycle import Cycle, CycleConnection
from skep.http.connection.hosts import Hosts, check_target
from skep.http.connection.refusal import Refused
from skep.http.connection.timers import Deadline
from skep.http.request.origin import BROWSER, TOLD_BY_BROWSERS
from skep.http.request.scope import REPEATED, name_headers

FRAMING_BYTES = 64 * 1024
FRAMING_PER_BYTE = 8
"""The most bytes of chunk sizes, extensions and trailers: a fixed part, and a part for each byte of the body."""
HOST = b"host"
ASGI = {"version": "3.0", "spec_version": "2.3"}

_VERSIONS = ("1.1", "1.0")
_CONTINUE = b"100-continue"

Place = tuple[str, int]


class Readable(CycleConnection, Protocol):
    """The calls that the reader makes to its connection."""

    def begin(self, cycle: Cycle) -> None:
        """Run a request now, or after the earlier requests of the connection."""

    def is_running(self, cycle: Cycle) -> bool:
        """Whether this is the request that is being answered."""

    def refuse(self, refused: Refused) -> None:
        """Answer in place of the application, and read no more."""


class RequestReader:
    """Reads one connection."""

    def __init__(
        self,
        connection: Readable,
        limits: HttpLimits,
        hosts: Hosts,
        deadline: Deadline,
        client: Place | None,
        server: Place | None,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._hosts = hosts
        self._deadline = deadline
        self._client = client
        self._server = server
        self._parser = self._new_parser()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._wire_bytes = 0
        self._body_bytes = 0
        self._is_upgrade = False
        self.is_in_head = True
        """Whether the reader waits for a head, or is in one, and not in a body."""
        self.cycle: Cycle | None = None
        """The last request whose head was read."""

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # A request that asks to close the connection is answered, whatever bytes came after it.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def feed(self, data: bytes) -> None:
        """Read a piece of what the client sends; raise `Refused` when the request is too large, or is not HTTP."""
        size = len(data)
        self._head_bytes += size
        self._wire_bytes += size
        self._parse(data)
        if not self.is_in_head:
            if self._wire_bytes - self._body_bytes > FRAMING_BYTES + FRAMING_PER_BYTE * self._body_bytes:
                raise Refused(413, Code.PAYLOAD_TOO_LARGE, "the body is mostly chunk extensions or trailers")
            self.expect_body()
        elif self._head_bytes:
            if self._head_bytes > self._limits.url_bytes + self._limits.headers_bytes:
                raise self._head_too_large()
            if self._deadline.handle is None:
                self.expect_head()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            parsed: int = upgrade.args[0]
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            text = str(error)
            raise Refused(400, Code.MALFORMED, f"the request is not HTTP: {text[:1].lower()}{text[1:]}") from None
        else:
            return
        # Not while the upgrade is handled: what the parser raises would have that for its context, and not its cause.
        self._parse(self._head_without_upgrade() + data[parsed:])

    def _head_without_upgrade(self) -> bytes:
        """Ignore an upgrade to another protocol, as Java's client asks for HTTP/2, and go on in HTTP/1.1.

        The parser stops at such a request and takes its body for the other protocol, so a new one is given this head.
        """
        version = self._parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self._parser.get_method(), self._url, version)]
        lines += [b"%s: %s" % header for header in self._headers if header[0] not in (b"upgrade", b"connection")]
        said = b",".join(value for name, value in self._headers if name == b"connection")
        if b"close" in {option.strip().lower() for option in said.split(b",")}:
            lines.append(b"connection: close")
        self._parser = self._new_parser()
        self._is_upgrade = False
        self._url, self._headers = b"", []
        return b"\r\n".join([*lines, b"\r\n"])

    # the parser's findings

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        self._url += url
        if len(self._url) > self._limits.url_bytes:
            raise Refused(414, Code.INVALID_REQUEST, f"a URL has at most {self._limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers after a chunked body are dropped."""
        if self.is_in_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Run the request, unless its head is too large or contradicts itself."""
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise Refused(505, Code.MALFORMED, "this server speaks HTTP/1.1, and HTTP/1.0")
        size = sum(map(len, chain.from_iterable(headers)))
        if size > self._limits.headers_bytes or len(headers) > self._limits.headers_count:
            raise self._head_too_large()
        scope: dict[str, Any] = {
            "type": "http", "asgi": ASGI, "http_version": version, "server": self._server, "client": self._client, "scheme": "http",
            "root_path": "", "headers": headers, "method": parser.get_method().decode("ascii"),
        }  # fmt: skip
        named = name_headers(scope, headers)
        if HOST in scope[REPEATED]:
            raise Refused(400, Code.MALFORMED, "the header Host is given twice")
        self._check_host(named.get(HOST), version)
        if not TOLD_BY_BROWSERS.isdisjoint(named):
            scope[BROWSER] = True  # for `check_page`
        if parser.should_upgrade():
            if scope["method"] == "CONNECT":
                raise Refused(400, Code.MALFORMED, "this is no proxy")
            self._is_upgrade = True
            return
        if self._deadline.handle is not None:
            self._deadline.stop()
        self._locate(scope)
        persists = version != "1.0" and parser.should_keep_alive()
        awaits_continue = b"expect" in named and named[b"expect"].lower() == _CONTINUE and version != "1.0"
        request = Cycle(self._connection, scope, persists=persists, awaits_continue=awaits_continue)
        self._connection.begin(request)
        self.cycle = request
        self.is_in_head = False
        self._wire_bytes = self._body_bytes = 0
        self._url, self._headers = b"", []

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if not self.cycle.response_complete:  # type: ignore[union-attr]  # it has a head
            self.cycle.take(body)  # type: ignore[union-attr]  # as above

    def on_message_complete(self) -> None:
        """The whole request is here."""
        if self._is_upgrade:
            return
        if self._deadline.handle is not None:
            self._deadline.stop()
        self.is_in_head = True
        self._head_bytes = 0
        if not self.cycle.response_complete:  # type: ignore[union-attr]  # it has a head
            self.cycle.end_body()  # type: ignore[union-attr]  # as above

    # the contents of a head

    def _check_host(self, host: bytes | None, version: str) -> None:
        """Ask `Hosts`, the one place that knows which names are answered."""
        if host is None:
            # Probes that speak HTTP/1.0 need not send Host, and browsers speak 1.1.
            if version == "1.0" and self._url[:1] == b"/":
                return
            raise Refused(400, Code.MALFORMED, "the header Host is missing")
        if host not in self._hosts.answered:
            self._hosts.examine(host)
        if self._url[:1] != b"/" and self._parser.get_method() != b"CONNECT":
            check_target(self._url, host)

    def _locate(self, scope: MutableMapping[str, Any]) -> None:
        """Take the URL apart."""
        try:
            url = httptools.parse_url(self._url)
            path = url.path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            raise Refused(400, Code.MALFORMED, "the request is not HTTP: its URL is none") from None
        scope["raw_path"] = url.path
        scope["path"] = unquote(path) if "%" in path else path
        scope["query_string"] = url.query or b""

    def _head_too_large(self) -> Refused:
        most = f"{self._limits.headers_bytes} bytes in {self._limits.headers_count} headers"
        return Refused(431, Code.INVALID_REQUEST, f"a request has at most {most}")

    # deadlines

    def expect_head(self) -> None:
        """A request is to come, or the rest of its head."""
        self._deadline.set(self._limits.headers_seconds, self._head_is_late)

    def expect_body(self) -> None:
        """The rest of a body is to come. While a request waits for its turn its body is not read, so the deadline does not run yet."""
        request = self.cycle
        is_due = (
            not self.is_in_head and request is not None and request.more_body and self._connection.is_running(request)
        )
        if is_due and self._deadline.handle is None:
            self._deadline.set(self._limits.body_seconds, self._body_is_late)

    def _head_is_late(self) -> None:
        if not self._head_bytes:
            self._connection.close()
            return
        within = f"{self._limits.headers_seconds:g} seconds"
        self._connection.refuse(Refused(408, Code.REQUEST_TIMEOUT, f"the headers did not arrive within {within}"))

    def _body_is_late(self) -> None:
        within = f"{self._limits.body_seconds:g} seconds"
        self._connection.refuse(Refused(408, Code.REQUEST_TIMEOUT, f"the body did not arrive within {within}"))
