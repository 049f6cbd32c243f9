"""Reading the payload of a view: of a message, a scheduled message or a dead letter."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import Raw, Struct

from skep.errors import Code, SkepError


class Shown(Struct):
    """A view with a payload. It has no fields of its own: each view declares them."""

    def content(self) -> bytes:
        """The payload as it was pushed."""
        if getattr(self, "preview", None) is not None:
            size = getattr(self, "payload_bytes", 0)
            raise SkepError(
                Code.INVALID_PAYLOAD, f"only a part of the payload is here; ask without preview for all {size} bytes"
            )
        payload: Raw = getattr(self, "payload")  # noqa: B009 - the views have it, and in their own order
        if getattr(self, "content_type", None) is None:
            return bytes(payload)
        return base64.b64decode(msgspec.json.decode(payload, type=str))

    def json(self) -> Any:
        """The payload as plain Python values; INVALID_PAYLOAD when it is not JSON."""
        try:
            return msgspec.json.decode(self.content())
        except msgspec.DecodeError as error:
            raise SkepError(Code.INVALID_PAYLOAD, f"the payload is not JSON: {error}") from error
