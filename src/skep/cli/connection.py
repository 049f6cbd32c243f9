"""Where the server is, and how results are printed: the options that every command takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter, Token

from skep.cli.exits import INTERRUPTED
from skep.cli.interrupts import end_at_once

if TYPE_CHECKING:
    from skep.client import Client

ATTEMPTS = 3
"""Tries of one call. Fewer than a program's: a person at a terminal wants to know soon."""
TIMEOUT_SECONDS = 120.0
"""How long one call may take: counting and deleting much takes its time."""

Format = Literal["table", "json", "ndjson"]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""A flag without a negative form."""


class SaidUrl(str):
    """A URL that was typed, as `--url`: unlike a variable's, it is meant for this very command."""

    __slots__ = ()


def _read_url(kind: type, tokens: Sequence[Token]) -> str:  # noqa: ARG001 - as cyclopts calls it
    return tokens[0].value if tokens[0].source == "env" else SaidUrl(tokens[0].value)


_GROUP = Group("Connection and output", sort_key=100)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class Connection:
    """Options of every command that talks to a server."""

    url: Annotated[str, Parameter(env_var="SKEP_URL", converter=_read_url)] = "http://127.0.0.1:6632"
    """The URL of the server. Separate several servers of one store with commas."""
    tenant: Annotated[str, Parameter(env_var="SKEP_TENANT")] = "default"
    """The tenant of the queues."""
    token: Annotated[str | None, Parameter(env_var="SKEP_TOKEN")] = field(default=None, repr=False)
    """The key or token; it is sent as a bearer token."""
    output: Annotated[Format | None, Parameter(name=["--output", "-o"])] = None
    """How to print: a table on a terminal, JSON otherwise."""

    def __post_init__(self) -> None:
        """An empty SKEP_TOKEN is none."""
        object.__setattr__(self, "token", self.token or None)

    @property
    def said_urls(self) -> list[str]:
        """The servers that somebody named on the command line; none when the URL is a variable's or the default."""
        return self.urls if isinstance(self.url, SaidUrl) else []

    @property
    def urls(self) -> list[str]:
        """The servers."""
        from skep.client.settings import split_urls

        return list(split_urls(self.url))

    def open(self, interrupted: int = INTERRUPTED) -> Client:
        """A client of that server; close it, or use it in a ``with``. ``interrupted`` is the exit code of Ctrl-C."""
        from stamina.instrumentation import set_on_retry_hooks

        from skep.client import Client

        # A try that failed and is made again is nobody's business here, least of all stdout's.
        set_on_retry_hooks([])
        end_at_once(interrupted)
        return Client(
            self.urls, tenant=self.tenant, token=self.token, attempts=ATTEMPTS, timeout_seconds=TIMEOUT_SECONDS
        )
