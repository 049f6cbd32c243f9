"""Forgetting messages for good, on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class ForgetRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """The messages of a queue to forget: those that match every given field. With ``dryRun`` they are only counted.

    ``seqs`` are single seqs and ranges of them, both ends included: ``[4, [10, 20]]``. ``log`` is the log they are of, as the bounds of
    the log name it: the seqs of a queue that was made anew since are not taken for others.
    """

    seqs: list[int | tuple[int, int]] | None = None
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None
    log: int | None = None
    dry_run: bool = False


class ForgetResponse(Struct, rename="camel"):
    """How many messages were forgotten, or would be: ``forgotten`` is all of them, wherever they were.

    ``messages`` were in the log, ``deadLetters`` stem from these, and replays had made the ``copies``. In a dry run by partition or ids
    the copies count as messages. ``operations`` are queued pushes to the partition, which are cancelled whole.
    """

    queue: str
    log: int
    dry_run: bool
    forgotten: int
    messages: int
    dead_letters: int
    copies: int
    scheduled: int
    operations: int


class TombstoneView(Struct, rename="camel"):
    """A range of seqs whose messages were forgotten, both ends included, and when."""

    position: int
    first_seq: int
    last_seq: int
    forgotten_at: datetime


class ForgottenResponse(Struct):
    """A page of forgotten seqs, in the order in which they were forgotten; no seq comes twice.

    ``after`` is the position where the next page starts, null when there is none. ``log`` names the log.
    """

    queue: str
    log: int
    forgotten: list[TombstoneView]
    after: int | None
