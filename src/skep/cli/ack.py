"""`skep ack`: settle popped messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from skep.cli.connection import Flag, ServerOptions
from skep.cli.exits import OK, USER, note
from skep.cli.output import Columns, print_rows, print_said
from skep.cli.when import deadline
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.wire.messages import Ack, AckResult

Status = Literal["completed", "failed", "retry", "dlq"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AckOptions:
    """The outcome of messages."""

    status: Status = "completed"
    """completed, failed (again after the queue's backoff), retry (again at once or at --retry-at), or dlq (dead letter)."""
    error: str | None = None
    """The error: why the messages failed."""
    retry_at: str | None = None
    """When the messages come again: 2026-01-31T12:00:00Z, or 10m for in ten minutes. Only with --status retry."""

    def of_messages(self, lease: str, seqs: list[int]) -> list[Ack]:
        """Acks with this outcome, one for each message."""
        from skep.wire.messages import Ack, AckStatus

        if self.retry_at is not None and self.status != "retry":
            raise SkepError(Code.INVALID_REQUEST, "--retry-at goes with --status retry")
        again_at = None if self.retry_at is None else deadline(self.retry_at)
        return [Ack(lease, seq, AckStatus(self.status), self.error, again_at) for seq in seqs]

    def of_lease(self, lease: str, through: int | None) -> list[Ack]:
        """The ack of a whole lease, or of its messages up to a seq."""
        from msgspec import UNSET

        from skep.wire.messages import Ack

        if self != AckOptions():
            raise SkepError(
                Code.INVALID_REQUEST, "a lease can only be completed: give the seqs of the messages that failed"
            )
        return [Ack(lease, through_seq=UNSET if through is None else through)]


def ack(
    lease: str,
    seqs: Annotated[list[int] | None, Parameter(negative="")] = None,
    /,
    *,
    whole: Flag = False,
    through: int | None = None,
    outcome: AckOptions = AckOptions(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Settle popped messages: say whether they were completed or failed.

    Name the messages by their lease and seqs, as `skep pop` prints them,
    or complete a whole lease. Exit code 1 when a message was refused:
    its lease has ended, or the message is settled already.

    For example:
        skep ack LEASE 17 18
        skep ack LEASE 17 --status failed --error 'the bank is closed'
        skep ack LEASE --whole
        skep ack LEASE --through 17

    Parameters
    ----------
    lease
        The id of the lease.
    seqs
        The seqs of the messages.
    whole
        Complete all messages of the lease.
    through
        Complete the messages of the lease up to this seq.
    """
    if bool(seqs) + whole + (through is not None) != 1:
        raise SkepError(
            Code.INVALID_REQUEST,
            "name the messages by their seqs, or say --whole for the lease or --through for it up to a seq",
        )
    acks = outcome.of_messages(lease, seqs) if seqs else outcome.of_lease(lease, through)
    with to.open() as client:
        results = client.settle(acks)
    print_rows(to, results, COLUMNS if seqs else LEASE_COLUMNS)
    refused = [result for result in results if result.code is not None]
    for result in refused:
        note(f"{result.code}: {'The lease' if result.seq is None else f'Seq {result.seq}'} was not settled.")
    return USER if refused else OK


def release(lease: str, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Release a lease: its messages are delivered again at once.

    The consumer that holds the lease can no longer settle its messages.
    The delivery counts as an attempt.

    For example:
        skep release LEASE

    Parameters
    ----------
    lease
        The id of the lease, as `skep pop` prints it.
    """
    from skep.wire.messages import Released

    with to.open() as client:
        client.release(lease)
    print_said(to, Released(lease, True), "released the lease; its messages will be redelivered")


LEASE_COLUMNS: Columns[AckResult] = {
    "status": lambda one: one.status,
    "code": lambda one: one.code,
    "messages": lambda one: one.messages or None,
}
COLUMNS: Columns[AckResult] = {
    "seq": lambda one: one.seq,
    "status": lambda one: one.status,
    "code": lambda one: one.code,
    "again at": lambda one: one.retry_at,
    "dead-letter queue": lambda one: one.dead_letter_queue,
}
