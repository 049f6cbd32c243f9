"""The options that every command takes (the server's URL, the tenant, the token, the output format), and arguments of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from skep.cli.exits import INTERRUPTED
from skep.cli.interrupts import end_at_once

if TYPE_CHECKING:
    from skep.client import Client

ATTEMPTS = 3
"""Tries of one call. A program tries more often; a person at a terminal wants to know soon."""
TIMEOUT_SECONDS = 120.0
"""How long one call may take. Counting or deleting many messages takes long."""

Format = Literal["table", "json", "ndjson"]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""A flag without a negative form."""
Output = Annotated[
    Literal["table", "json"] | None,
    Parameter(name=["--output", "-o"], help="The output format; by default a table on a terminal, else JSON."),
]
"""The option of commands that talk to no server."""
LISTED = 100
"""How many rows a list has by default."""
Limit = Annotated[int, Parameter(validator=Number(gte=1))]
Queue = Annotated[str, Parameter(help="The queue.")]
GroupName = Annotated[str, Parameter(help="The group.")]


class SaidUrl(str):
    """A URL that the user typed as `--url`. Unlike the URL of a variable, it is meant for this very command."""

    __slots__ = ()


def _read_url(kind: type, tokens: Sequence[Token]) -> str:  # noqa: ARG001 - as cyclopts calls it
    return tokens[0].value if tokens[0].source == "env" else SaidUrl(tokens[0].value)


_GROUP = Group("Connection and output", sort_key=100)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of every command that talks to a server."""

    url: Annotated[str, Parameter(env_var="SKEP_URL", converter=_read_url)] = "http://127.0.0.1:6632"
    """The URL of the server. Separate several servers of one store with commas."""
    tenant: Annotated[str, Parameter(env_var="SKEP_TENANT")] = "default"
    """The tenant of the queues."""
    token: Annotated[str | None, Parameter(env_var="SKEP_TOKEN")] = field(default=None, repr=False)
    """The key or token (sent as a bearer token)."""
    output: Annotated[Format | None, Parameter(name=["--output", "-o"])] = None
    """The output format; by default a table on a terminal, else JSON."""

    def __post_init__(self) -> None:
        """Take an empty SKEP_TOKEN for no token."""
        object.__setattr__(self, "token", self.token or None)

    @property
    def said_urls(self) -> tuple[str, ...]:
        """The servers that the user typed as `--url`; none when the URL comes from a variable or is the default."""
        return self.urls if isinstance(self.url, SaidUrl) else ()

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the servers."""
        from skep.client.settings import split_urls

        return split_urls(self.url)

    def open(self, interrupted: int = INTERRUPTED) -> Client:
        """A client of the server; close it, or use it in a ``with``. ``interrupted`` is the exit code of Ctrl-C."""
        from stamina.instrumentation import set_on_retry_hooks

        from skep.client import Client

        # Retries are not logged: a user of the command line need not see them, and stdout has results only.
        set_on_retry_hooks([])
        end_at_once(interrupted)
        return Client(
            list(self.urls), tenant=self.tenant, token=self.token, attempts=ATTEMPTS, timeout_seconds=TIMEOUT_SECONDS
        )
