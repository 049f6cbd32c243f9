"""The answers of a webhook to its sender. The names are in snake case, as senders know them."""

from __future__ import annotations

from msgspec import Struct


class HookResponse(Struct, gc=False):
    """The message is stored; a repeat with the same key gets the same answer and stores nothing."""

    queued: bool
    idempotency_key: str | None
    message_id: str


class QuarantineResponse(Struct):
    """The message did not fit its queue, and is stored among the queue's dead letters (quarantine)."""

    queued: bool
    quarantined: bool
    idempotency_key: str | None
    message_id: str


class ChallengeResponse(Struct):
    """The challenge of Slack, sent back to prove the address of a webhook."""

    challenge: str
