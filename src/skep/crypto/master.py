"""Master keys: they wrap the data keys of queues, and come from outside: a file, a variable, or a command's output.

The text has a key per line, `NAME:BASE64` with 32 bytes in the base64; empty lines and those that begin with # do not count. The
first key wraps new data keys; the others unwrap those that they wrapped before. Master keys are never stored or logged.
"""

from __future__ import annotations

import base64
import binascii
import os
import re

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from skep.crypto.envelope import KEY_BYTES, DataKey, associated
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import QueueKey

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NONCE_BYTES = 12


class MasterKeys:
    """The master keys of a server, by name; the first is the current one."""

    def __init__(self, text: str) -> None:
        """Raise INVALID_SETTING when the text is malformed; the error repeats nothing of it."""
        self._ciphers: dict[str, AESGCM] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                name, secret = _parse(line.strip(), number)
                if name in self._ciphers:
                    raise SkepError(
                        Code.INVALID_SETTING, f"line {number} of the master keys names one for the second time"
                    )
                self._ciphers[name] = AESGCM(secret)
        if not self._ciphers:
            raise SkepError(Code.INVALID_SETTING, "there is no master key in what should hold one")
        self.current = next(iter(self._ciphers))

    @property
    def names(self) -> frozenset[str]:
        """The names of all master keys."""
        return frozenset(self._ciphers)

    def wrap(self, id_: Id, queue: QueueKey, secret: bytes) -> bytes:
        """A data key's secret under the current master key, bound to its queue."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[self.current].encrypt(nonce, secret, associated(id_, queue))

    def unwrap(self, name: str, id_: Id, queue: QueueKey, wrapped: bytes) -> bytes:
        """The secret of a data key that the master key of this name wrapped."""
        cipher = self._cipher(name)
        try:
            return cipher.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], associated(id_, queue))
        except (InvalidTag, ValueError):
            raise SkepError(
                Code.KEY_UNAVAILABLE, f"the master key {name!r} is not the one that wrapped the key of {queue.name!r}"
            ) from None

    def _cipher(self, name: str) -> AESGCM:
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise SkepError(
                Code.KEY_UNAVAILABLE,
                f"the master key {name!r} is not in encryption.master_keys: add it there, after the current one",
            )
        return cipher

    def seal(self, label: str, secret: bytes) -> bytes:
        """A secret that is no data key under the current master key, bound to what its label names."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[self.current].encrypt(nonce, secret, label.encode())

    def open(self, name: str, label: str, sealed: bytes) -> bytes:
        """The secret that the master key of this name sealed; KEY_UNAVAILABLE without that key, or when it was moved or changed."""
        cipher = self._cipher(name)
        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode())
        except (InvalidTag, ValueError):
            raise SkepError(
                Code.KEY_UNAVAILABLE, f"the master key {name!r} is not the one that sealed the secret of {label}"
            ) from None


def new_secret() -> bytes:
    """A fresh data key's secret."""
    return AESGCM.generate_key(8 * KEY_BYTES)


def new_master_line(name: str) -> str:
    """A fresh master key, as a line of the text."""
    return f"{name}:{base64.b64encode(new_secret()).decode()}"


def data_key(masters: MasterKeys, name: str, id_: Id, queue: QueueKey, wrapped: bytes) -> DataKey:
    """A data key, unwrapped."""
    return DataKey(id_, queue, masters.unwrap(name, id_, queue, wrapped))


def _parse(line: str, number: int) -> tuple[str, bytes]:
    name, colon, text = line.partition(":")
    try:
        secret = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not colon or not _NAME.fullmatch(name) or len(secret) != KEY_BYTES:
        raise SkepError(
            Code.INVALID_SETTING,
            f"line {number} of the master keys is not NAME:BASE64 with {KEY_BYTES} bytes; `skep encryption master` makes one",
        )
    return name, secret
