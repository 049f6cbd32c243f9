"""Whether an object store can be connected to. Its clients wait for a store that is busy or slow, and cannot tell it from one that is not there."""

from __future__ import annotations

import socket
import ssl
import time
from urllib.parse import urlsplit

from skep.errors import Code, SkepError

REACH_SECONDS = 10.0
"""How long a connection to an object store is tried for."""
CONNECT_SECONDS = 5.0
"""How long one try may take."""
PAUSE_SECONDS = 1.0
PORTS = {"http": 80, "https": 443}


def check_reached(url: str, what: str, cure: str) -> None:
    """Connect to the host of a URL, and end the connection. LAKE_UNREACHABLE when that cannot be done within some seconds."""
    deadline = time.monotonic() + REACH_SECONDS
    while True:
        try:
            _connect(url)
            return
        except (OSError, ValueError) as error:  # a name or port that cannot be one is a ValueError
            if time.monotonic() + PAUSE_SECONDS > deadline or isinstance(error, ValueError):
                raise SkepError(
                    Code.LAKE_UNREACHABLE, f"{what} cannot be reached at {url}: {_why(error)}. {cure}"
                ) from None
        time.sleep(PAUSE_SECONDS)


def _connect(url: str) -> None:
    asked = urlsplit(url)
    host, port = asked.hostname or "", asked.port or PORTS.get(asked.scheme, PORTS["https"])
    with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
        if asked.scheme == "https":
            with _trusting().wrap_socket(connection, server_hostname=host):
                return


def _trusting() -> ssl.SSLContext:
    """TLS with whoever answers. Nothing is said to them; the client of the store looks at the certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
