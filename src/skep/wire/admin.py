"""`/admin` on the wire, with the names of its first users."""

from __future__ import annotations

from msgspec import Raw, Struct


class AdminQueue(Struct):
    """The main figures of a queue."""

    name: str
    depth: int
    in_flight: int
    oldest_message_age_seconds: float
    messages_per_minute: float


class AdminQueues(Struct):
    """A page by name; ``after`` is where the next one starts, null when there is none."""

    queues: list[AdminQueue]
    after: str | None


class AdminPreview(Struct):
    """The payload, or the beginning of it as a text when it is long or no JSON."""

    payload: Raw


class AdminDeadLetter(Struct):
    """A dead letter; ``failed_at`` is in seconds since 1970."""

    id: str
    failed_at: int
    error: str | None
    attempts: int
    preview: AdminPreview


class AdminDeadLetters(Struct):
    """A page, oldest dead letter first; ``after`` is where the next one starts, null when there is none."""

    dead_letters: list[AdminDeadLetter]
    after: int | None


class AdminReplayed(Struct):
    """The message that a replayed dead letter became."""

    ok: bool
    new_message_id: str


class AdminDone(Struct):
    """The call is done."""

    ok: bool
