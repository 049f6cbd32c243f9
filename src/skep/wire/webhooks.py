"""What a webhook answers to its sender. Its names are those that senders know from elsewhere, in small letters."""

from __future__ import annotations

from msgspec import Struct


class HookResponse(Struct, gc=False):
    """The message is stored; a repeat with the same key gets the same answer and stores nothing."""

    queued: bool
    idempotency_key: str | None
    message_id: str


class QuarantineResponse(Struct):
    """The message did not fit its queue, and is stored among the queue's dead letters for someone to look at."""

    queued: bool
    quarantined: bool
    idempotency_key: str | None
    message_id: str


class ChallengeResponse(Struct):
    """What Slack wants to read back when it is given the address of a webhook."""

    challenge: str
