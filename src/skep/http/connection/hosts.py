"""Which host names the server answers to (protection against DNS rebinding).

With DNS rebinding, the name of a foreign web page points to this machine, and its browser takes the page for one of this server. The page
cannot change the name in `Host`. So a server without keys answers only to names of loopback and to names in the settings. It always
answers to an address: a browser that asks for an address reaches that address and no other.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

import structlog

from skep.errors import Code, SkepError
from skep.http.connection.refusal import Refused

ANSWERED = 1_000
"""Spellings of hosts that are remembered as answered; each may have any port."""
TOLD = 100
"""Names that the log tells of, once each."""
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::[0-9]{0,5})?")
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_TARGET = re.compile(rb"https?://([^/?#]*)/", re.IGNORECASE)
_EVERY = "*"
_LOOPBACK = ("localhost", "*.localhost")

log = structlog.get_logger("skep.http")


class Hosts:
    """The host names that the server answers to."""

    __slots__ = ("_ends", "_every", "_exact", "_told", "answered")

    def __init__(self, configured: str | None, *, is_guarded: bool, listens_on: str = "") -> None:
        """With a gate every name is answered until some are configured: a rebound page has no key, and gets no cookie."""
        given = [] if configured is None else [_read(name) for name in configured.split(",") if name.strip()]
        names = [*given, *_LOOPBACK, *([listens_on.lower().rstrip(".")] if listens_on else [])]
        self._every = _EVERY in given or (is_guarded and not given)
        self._exact = frozenset(names)
        self._ends = tuple(name[1:] for name in names if name.startswith("*."))
        self._told: set[str] = set()
        self.answered: set[bytes] = set()
        """Hosts as they were sent and found to be answered, so that a usual request costs one look."""

    def examine(self, host: bytes) -> None:
        """Refuse a host that is none, or that is not answered; remember one that is."""
        found = _HOST.fullmatch(host)
        if found is None:
            raise Refused(400, Code.MALFORMED, "the header Host names no host")
        if found[1] is not None:
            name = _address(found[1].decode("ascii"))
            if name is None:
                raise Refused(400, Code.MALFORMED, "the header Host names no host")
        else:
            name = found[2].decode("ascii").lower().removesuffix(".")
            if _address(name) is None and not self._is_answered(name):
                self._tell(name)
                raise Refused(
                    421, Code.HOST_UNKNOWN,
                    f"this server does not answer to the name {name!r}: ask for it by its address or as localhost, or name it "
                    "in the setting http.hosts",
                )  # fmt: skip
        if len(self.answered) >= ANSWERED:
            self.answered.clear()
        self.answered.add(host)

    def _is_answered(self, name: str) -> bool:
        return self._every or name in self._exact or name.endswith(self._ends)

    def _tell(self, name: str) -> None:
        if name not in self._told and len(self._told) < TOLD:
            self._told.add(name)
            log.warning("a request named a host that this server does not answer to; see http.hosts", host=name)


def check_target(target: bytes, host: bytes) -> None:
    """Refuse a request target with a host that differs from `Host`: a proxy that reads the other one would see another request."""
    found = _TARGET.match(target)
    if found is None or found[1].lower() != host.lower():
        raise Refused(400, Code.MALFORMED, "the request's target is a path, or names the same host as the header Host")


def _address(text: str) -> str | None:
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _read(name: str) -> str:
    read = name.strip().lower().removesuffix(".")
    if read != _EVERY and not _NAME.fullmatch(read):
        raise SkepError(
            Code.INVALID_SETTING,
            f"http.hosts: {name.strip()!r} is no name of a host: say skep.example, *.skep.example or *, without a port",
        )
    return read
