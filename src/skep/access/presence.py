"""The presence file: with it a server proves to `skep key` that it holds the SQLite file.

The server writes a private file beside the database: where it listens, and a secret that it made at its start. An account that can
read that file could open the database itself. An address alone says nothing, since any program may listen there once the
server is gone. So the server answers a challenge first, by an HMAC with the secret. The secret is shown only after the right answer, on
the same connection. A file that a crashed server left behind does no harm: no program can answer the challenge.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.runtime.private_files import FILE_MODE, OTHERS
from skep.wire.access import HolderProof

ENDING = ".server"
"""The suffix of the file's name after the name of the database."""
PATH = "/api/v1/holder"
SECRET_BYTES = 32
CHALLENGE_BYTES = 32
PROOF_SECONDS = 20.0
"""How long the proof may take. A program that takes longer counts as another one, even while it goes on sending."""
_FILE_BYTES = 4_096
_ANSWER_BYTES = 4_096
_PURPOSE = b"this server holds the store\n"


class Presence(Struct, frozen=True):
    """The contents of the file. ``machine`` is the machine where the address leads to the server."""

    address: str
    secret: str
    machine: str | None = None

    def __repr__(self) -> str:
        """Without the secret, since logs show this text."""
        return f"Presence(address={self.address!r}, machine={self.machine!r})"


class Proved(Struct, frozen=True):
    """A connection whose other end knows the secret, and whether that server asks for keys."""

    connection: HTTPConnection
    asks_for_keys: bool


def file_of(database: Path) -> Path:
    """The file of the server that has a database."""
    return Path(f"{database}{ENDING}")


def new_presence(address: str) -> Presence:
    """The presence of a server that starts now."""
    return Presence(address, secrets.token_urlsafe(SECRET_BYTES), this_machine())


def announce(path: Path, presence: Presence) -> None:
    """Write the file, for its owner alone, whole or not at all, over one that was left behind."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(draft, flags, FILE_MODE), "wb") as file:
            file.write(msgspec.json.encode(presence))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def withdraw(path: Path) -> None:
    """Delete the file. Only the server that holds the store may do this."""
    with suppress(OSError):
        path.unlink()


def find(database: Path) -> Presence | None:
    """The contents of the file beside a database; None when there is none that can be read.

    FORBIDDEN when others can read the file or have written it: they could answer in the server's place.
    """
    path = file_of(database)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        _check_private(path, os.fstat(descriptor), database)
        text = file.read(_FILE_BYTES)
    try:
        return msgspec.json.decode(text, type=Presence)
    except msgspec.DecodeError:
        return None


def _check_private(path: Path, about: os.stat_result, database: Path) -> None:
    owners = {os.geteuid()}
    with suppress(OSError):
        owners.add(database.stat().st_uid)
    if not stat.S_ISREG(about.st_mode) or about.st_mode & OTHERS or about.st_uid not in owners:
        raise SkepError(
            Code.FORBIDDEN,
            f"other accounts can read {path} or have written it, so they could answer in the server's place: delete the file and "
            "start the server anew, or show the key of an admin (--token)",
        )


def proof(secret: str, challenge: str) -> str:
    """The proof that a server knows the secret."""
    return hmac.new(secret.encode(), _PURPOSE + challenge.encode(), hashlib.sha256).hexdigest()


def proved(presence: Presence, url: str | None = None, *, seconds: float = PROOF_SECONDS) -> Proved | None:
    """A connection to the server of a file, or to another ``url``, once it has proved that it knows the secret; None when it did not.

    The secret is not sent. What follows goes over the same connection, so that nobody can step in between. No proxy is used.
    """
    if presence.machine != this_machine():
        return None  # the same address may lead to another server here
    try:
        parts = urlsplit(url or presence.address)
        if parts.scheme != "http" or parts.hostname is None:
            return None
        connection = HTTPConnection(parts.hostname, parts.port or 80, timeout=seconds)
    except ValueError:
        return None
    found = None
    try:
        connection.connect()
        with _deadline(connection.sock, seconds):
            found = _challenged(connection, presence.secret)
    except (OSError, HTTPException, msgspec.DecodeError):
        pass
    finally:
        if found is None:
            connection.close()
    return found


def _challenged(connection: HTTPConnection, secret: str) -> Proved | None:
    challenge = secrets.token_hex(CHALLENGE_BYTES)
    connection.auto_open = 0  # a connection that ended is not quietly replaced by one to somebody else
    body = msgspec.json.encode({"challenge": challenge})
    connection.request("POST", PATH, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read(_ANSWER_BYTES)
    if response.status != 200 or response.read(1):
        return None
    said = msgspec.json.decode(answer, type=HolderProof)
    if not hmac.compare_digest(said.proof.encode(), proof(secret, challenge).encode()):
        return None
    if connection.sock is None:
        return None  # it is stopping: it has closed the connection, and nothing can follow on it
    return Proved(connection, said.asks_for_keys)


@contextmanager
def _deadline(sock: socket.socket, seconds: float) -> Iterator[None]:
    """End a conversation that takes too long: a timeout of the socket counts anew with every byte."""

    def end() -> None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def this_machine() -> str | None:
    """The identity of this machine since its start, and of its network: each container has its own addresses. None where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return None
