"""Dead letters on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from skep.model import DeadReason, MessageState
from skep.model.record import Buried as Buried  # it is the answer, as it is kept
from skep.wire.payloads import Shown


class DeadLetterView(Shown, rename="camel"):
    """A message given up on. When only a part of the payload is shown, ``payload`` is null and ``preview`` is that part."""

    queue: str
    seq: int
    id: str
    source_queue: str
    source_seq: int
    partition: str
    consumer_group: str
    reason: DeadReason
    error: str | None
    attempts: int
    transaction_id: str | None
    trace_id: str
    created_at: datetime
    failed_at: datetime
    headers: Raw
    content_type: str | None
    payload_bytes: int
    payload: Raw
    preview: str | None


class DeadLettersResponse(Struct, rename="camel"):
    """A page, oldest dead letter first; ``after`` is where the next one starts, null when there is none."""

    dead_letters: list[DeadLetterView]
    after: int | None


class DeadLetterSelection(Struct, rename="camel", forbid_unknown_fields=True):
    """A filter of dead letters. A dead letter must match all given fields.

    ``queue`` is a queue (its own dead letters), or a dead-letter queue (all dead letters in it). ``error`` is a part of the error's text.
    ``up_to_seq`` comes from the answer of a dry run: only the dead letters that the dry run counted match.
    """

    queue: str
    ids: list[str] | None = None
    seqs: list[int] | None = None
    source_queue: str | None = None
    partition: str | None = None
    consumer_group: str | None = None
    reason: DeadReason | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    dry_run: bool = False
    up_to_seq: int | None = None


class ReplayEditedRequest(Struct, forbid_unknown_fields=True):
    """The payload that a dead letter goes back with, instead of its own."""

    payload: Raw


class UnfitMessage(Struct, forbid_unknown_fields=True):
    """A message of the log by its seq, and the error of its reader."""

    seq: int
    error: str


class BuryRequest(Struct, forbid_unknown_fields=True):
    """Messages of a queue's log that its reader cannot use, to be dead-lettered. A repeat with the same ``name`` does nothing."""

    queue: str
    name: str
    letters: list[UnfitMessage]


class ReplayedMessage(Struct, rename="camel"):
    """A dead letter that went back to its queue as a new message."""

    dead_seq: int
    queue: str
    seq: int
    id: str


class ReplayResponse(Struct, rename="camel"):
    """The number of replayed dead letters, or of those that would be; ``replayed`` has the first ones. ``up_to_seq`` marks a dry run."""

    dry_run: bool
    count: int
    replayed: list[ReplayedMessage]
    up_to_seq: int | None = None


class ReplayView(Struct, rename="camel"):
    """A dead letter that went back to its queue, the reason of its death, and the message that it became.

    ``replayResult`` is the state of that message in the group. It is null when it is unknown: the message, its queue or
    its group is gone, or it went to all groups. ``queue`` is null when that was deleted, ``reason`` and ``attempts`` when nobody
    wrote them down.
    """

    dead_letter_queue: str
    dead_seq: int
    dead_id: str
    queue: str | None
    seq: int
    id: str
    consumer_group: str
    reason: DeadReason | None
    error: str | None
    attempts: int | None
    replayed_at: datetime
    replay_result: MessageState | None


class ReplaysResponse(Struct):
    """A page, the newest letters first; ``after`` is where the next one starts, null when there is none."""

    replays: list[ReplayView]
    after: int | None


class PurgeResponse(Struct, rename="camel"):
    """The number of deleted dead letters, or of those that would be. ``up_to_seq`` marks a dry run."""

    dry_run: bool
    count: int
    up_to_seq: int | None = None
