"""Exit codes of the commands that talk to a server, and the one line that shows an error."""

from __future__ import annotations

import sys

from skep.errors import Code, SkepError

OK = 0
USER = 1
"""The command or its input is wrong: the user has to change it."""
SERVER = 2
"""The server, or a lake, cannot be reached, or cannot answer the call now."""
AUTHENTICATION = 3
NOTHING = 4
"""The queue, message or other thing that was named does not exist, or there is nothing to do."""
INTERRUPTED = 130

_CODES = dict.fromkeys((Code.UNAUTHENTICATED, Code.FORBIDDEN), AUTHENTICATION)
_CODES |= dict.fromkeys(
    (
        Code.QUEUE_NOT_FOUND, Code.GROUP_NOT_FOUND, Code.MESSAGE_NOT_FOUND, Code.APP_NOT_FOUND, Code.ENTITY_NOT_FOUND,
        Code.WEBHOOK_NOT_FOUND, Code.PIPELINE_NOT_FOUND, Code.KEY_NOT_FOUND, Code.OPERATION_NOT_FOUND,
    ),
    NOTHING,
)  # fmt: skip
_CODES |= dict.fromkeys(
    (
        Code.SERVER_UNREACHABLE, Code.LAKE_UNREACHABLE, Code.STORE_UNAVAILABLE, Code.STORE_BUSY, Code.STORE_CORRUPT, Code.STORE_FULL,
        Code.SERVER_BUSY, Code.STOPPING, Code.INTERNAL, Code.REQUEST_TIMEOUT, Code.TOO_MANY_REQUESTS,
        # A missing route means that something else than a Skep server answers there.
        Code.ROUTE_NOT_FOUND, Code.METHOD_NOT_ALLOWED,
    ),
    SERVER,
)  # fmt: skip


def exit_code(code: Code) -> int:
    """The exit code of a command after this error."""
    return _CODES.get(code, USER)


def complain(error: SkepError) -> None:
    """Say on one line of stderr what went wrong."""
    cure = " Show one with --token or SKEP_TOKEN." if error.code is Code.UNAUTHENTICATED else ""
    note(f"{error.shown}{cure}")


def note(text: str) -> None:
    """One line on stderr, so that stdout has results only."""
    sys.stderr.write(f"skep: {printable(' '.join(text.split()))}\n")


def printable(text: str) -> str:
    """Replace characters that could steer a terminal. Names, errors and payloads come from others."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
