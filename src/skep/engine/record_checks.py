"""Checks of receipts, entities, apps and endpoints, before they enter a store call that several requests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.clock import Instant
from skep.config import Limits
from skep.engine import validate
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model.record import Effect, EntityKey, Receipt, ReceiptKey

KEY_BYTES = 2_500
"""The most bytes of all names of a key: an entry of a PostgreSQL index has at most 2,704 bytes."""
URL_CHARACTERS = 2_000
EVENTS_MAX = 1_000
WINDOW_SECONDS_MAX = 366 * 86_400.0
VERSION_MAX = 2**63 - 1 - EVENTS_MAX


Recording = Receipt | Callable[[Id], Receipt]
"""A receipt for a push, or a function that makes it from the id of the first message."""


def receipt_of(recording: Recording, id_: Id, limits: Limits) -> Receipt:
    """The receipt of a push whose first message has this id."""
    receipt = recording if isinstance(recording, Receipt) else recording(id_)
    _check_receipt(receipt, limits)
    return receipt


def check_receipts(receipts: Sequence[Receipt], limits: Limits) -> int:
    """Check receipts to be written; returns the bytes of their answers."""
    _check_number(receipts, limits, "receipts")
    return sum(_check_receipt(receipt, limits) for receipt in receipts)


def _check_receipt(receipt: Receipt, limits: Limits) -> int:
    check_receipt_key(receipt.key)
    if not 0 < receipt.expires_at <= validate.INSTANT_MAX:
        raise SkepError(Code.INVALID_TIME, "the time at which a receipt runs out is out of range")
    return _json_size(receipt.answer, limits, "the answer of a receipt")


def check_effects(effects: Sequence[Effect], limits: Limits) -> int:
    """Check effects to be written; returns the bytes of their states and events."""
    _check_number(effects, limits, "effects")
    size = 0
    for effect in effects:
        check_entity_key(effect.entity)
        if type(effect.version) is not int or not 0 <= effect.version <= VERSION_MAX:
            raise SkepError(Code.INVALID_REQUEST, "the version of an effect is out of range", version=effect.version)
        validate.check_count(len(effect.events), EVENTS_MAX, "the number of events of an effect")
        if effect.cause is not None and len(effect.cause) != validate.ID_BYTES:
            raise SkepError(Code.INVALID_REQUEST, "the cause of an effect is the id of a message")
        size += _json_size(effect.state, limits, "the state of an entity")
        for event in effect.events:
            validate.check_name(event.name, "event")
            size += _json_size(event.data, limits, "an event")
    return size


def check_size(size_bytes: int, limits: Limits) -> None:
    """Check the total bytes of one transaction."""
    if size_bytes > limits.request_bytes:
        raise SkepError(
            Code.PAYLOAD_TOO_LARGE, f"a transaction has at most {limits.request_bytes} bytes", size_bytes=size_bytes
        )


def check_receipt_key(key: ReceiptKey) -> None:
    """Check the key of a receipt."""
    if not (validate.is_fit(key.scope) and validate.is_fit(key.key) and validate.is_fit(key.tenant)):
        validate.check_name(key.scope, "scope")
        validate.check_name(key.key, "receipt")
        validate.check_name(key.tenant, "tenant")
    _check_key_bytes((key.scope, key.key, key.tenant))


def check_entity_key(key: EntityKey) -> None:
    """Check the key of an entity."""
    validate.check_name(key.type, "entity type")
    validate.check_name(key.id, "entity")
    validate.check_name(key.tenant, "tenant")
    _check_key_bytes((key.type, key.id, key.tenant))


def check_url(url: str, tenant: str) -> None:
    """Check a URL that messages are delivered to."""
    validate.check_name(tenant, "tenant")
    validate.check_texts((url,))
    if not 1 <= len(url) <= URL_CHARACTERS:
        raise SkepError(Code.INVALID_REQUEST, f"a URL has 1 to {URL_CHARACTERS} characters")
    _check_key_bytes((url, tenant))


def is_json(text: bytes) -> bool:
    """Whether these bytes are JSON."""
    return validate.json_refusal(text) is None


def _check_number(things: Sequence[object], limits: Limits, what: str) -> None:
    if things:
        validate.check_count(len(things), limits.settlements, f"the number of {what}")


def _check_key_bytes(names: Sequence[str]) -> None:
    # A character has at most four bytes, so most keys need not be encoded to be seen to fit.
    if 4 * sum(map(len, names)) > KEY_BYTES and sum(len(name.encode()) for name in names) > KEY_BYTES:
        raise SkepError(Code.INVALID_NAME, f"the names of a key together have at most {KEY_BYTES} bytes")


def _json_size(text: bytes, limits: Limits, what: str) -> int:
    if len(text) > limits.payload_bytes:
        raise SkepError(
            Code.PAYLOAD_TOO_LARGE, f"{what} has at most {limits.payload_bytes} bytes", size_bytes=len(text)
        )
    if not is_json(text):
        raise SkepError(Code.INVALID_REQUEST, f"{what} is JSON")
    return len(text)


def expiry(now: Instant, window_seconds: float) -> Instant:
    """When a receipt with this window runs out."""
    if not 0 < window_seconds <= WINDOW_SECONDS_MAX:
        raise SkepError(
            Code.INVALID_TIME, f"the window of a receipt is above 0 and at most {WINDOW_SECONDS_MAX:.0f} seconds"
        )
    return Instant(now + round(window_seconds * 1_000_000))
