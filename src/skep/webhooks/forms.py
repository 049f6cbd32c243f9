"""Forms: JSON that comes as the field `payload` of an `application/x-www-form-urlencoded` body.

GitHub posts such forms unless its content type is set to JSON; Slack does for interactive messages. The signature, and the
hash for deduplication, are of the body as it came.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from skep.errors import Code, SkepError
from skep.webhooks.signatures import Headers

FORM = b"application/x-www-form-urlencoded"
CHUNK_BYTES = 64 * 1024
"""The piece that is decoded at a time: each escape takes an object while it is decoded."""
_PAYLOAD = re.compile(rb"(?:\A|&)payload=([^&]*)")
_STARTS_OF_JSON = b'{["'


def is_form(headers: Headers, body: bytes) -> bool:
    """Whether a body is a form with a payload. JSON under a form's content type, as some senders have it, is none."""
    return _is_named(headers) and body.lstrip()[:1] not in _STARTS_OF_JSON and _PAYLOAD.search(body) is not None


def explained(headers: Headers, error: SkepError) -> SkepError:
    """The error of a body that is not JSON. For a form, the error says that the field `payload` is missing."""
    if _is_named(headers) and error.message.startswith("the body is not JSON"):
        return SkepError(Code.MALFORMED, "the body is a form without the field payload, and is not JSON")
    return error


def payload_of(body: bytes) -> bytes:
    """The JSON in a form; other fields are passed over. MALFORMED when `payload` comes twice: readers could take different ones."""
    found = _PAYLOAD.finditer(body)
    payload = next(found).group(1)
    if next(found, None) is not None:
        raise SkepError(Code.MALFORMED, "the form has the field payload twice; send it once")
    return _decoded(payload)


def _is_named(headers: Headers) -> bool:
    """Whether the first content type is that of a form."""
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    return kind.partition(b";")[0].strip().lower() == FORM


def _decoded(text: bytes) -> bytes:
    made, at = bytearray(), 0
    while at < len(text):
        chunk = text[at : at + CHUNK_BYTES]
        if at + len(chunk) < len(text):  # an escape is three bytes, and is not to be cut
            cut = chunk.find(b"%", len(chunk) - 2)
            chunk = chunk if cut < 0 else chunk[:cut]
        made += unquote_to_bytes(chunk.replace(b"+", b" "))
        at += len(chunk)
    return bytes(made)
