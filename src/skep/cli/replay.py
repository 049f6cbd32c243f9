"""`skep message replay`: push messages again, also those that only a lake has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from msgspec import Struct

from skep.cli.connection import Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.exits import NOTHING, OK, note
from skep.cli.old_messages import InLake, tell_gap, wanted
from skep.cli.output import counted, print_said
from skep.cli.seqs import ranges
from skep.cli.when import Since, Until, instant
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.spark.lake.old_messages import Wanted
    from skep.spark.lake.pushing_again import Found, ReplayWish


class PushedAgain(Struct, rename="camel", kw_only=True):
    """What was pushed again, or would be."""

    queue: str
    to: str
    consumer_group: str | None
    dry_run: bool
    found: int
    """The messages that fit."""
    in_lake: int
    """Those of them that only the lake has."""
    pushed: int
    """New messages. The others had been pushed again before."""
    first_seq: int
    last_seq: int


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhichMessages:
    """The messages that are meant: those that match everything given."""

    partition: str | None = None
    """Messages of this partition."""
    transaction_id: str | None = None
    """Messages with this transaction id."""
    trace_id: str | None = None
    """Messages of this trace."""
    since: Since = None
    until: Until = None

    def wanted(self, seqs: Sequence[str]) -> list[Wanted]:
        """What is chosen, for each range of seqs."""
        spans: list[tuple[int, int | None]] = [*ranges(seqs)] or [(1, None)]
        chosen: dict[str, Any] = {
            "partition": self.partition, "transaction_id": self.transaction_id, "trace_id": self.trace_id,
            "since": None if self.since is None else instant(self.since),
            "until": None if self.until is None else instant(self.until),
        }  # fmt: skip
        if not seqs and all(value is None for value in chosen.values()):
            raise SkepError(
                Code.INVALID_REQUEST,
                "say which messages: by seqs, --partition, --transaction-id, --trace-id, --since or --until",
            )
        return [wanted(**chosen, first=first, last=last) for first, last in spans]


def replay(
    queue: Queue,
    seqs: Annotated[list[str] | None, Parameter(negative="")] = None,
    /,
    *,
    group: str | None = None,
    target: Annotated[str | None, Parameter(name="--to")] = None,
    which: WhichMessages = WhichMessages(),
    label: str = "replay",
    content_type: str | None = None,
    in_lake: InLake = InLake(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Push messages again, in their order. With --lake also those that retention took from the log.

    The messages must match everything that is given. They get new seqs at the end of the log, and keep their partition, trace
    id and headers. A replay that is repeated with the same seqs changes nothing. Exit code 4 when no message matches.

    For example:
        skep message replay orders 17 20-29 --group billing --dry-run
        skep message replay orders --since 2026-01-31 --until 2026-02-01 --group billing --lake s3://bucket/lake

    Parameters
    ----------
    seqs
        Seqs, and ranges of them: 17 20-29.
    group
        The only group that gets them, as with a replayed dead letter. Without it all groups get them, as new messages.
    target
        Push them to this queue instead.
    label
        With another label, messages that were pushed again before are pushed once more.
    content_type
        The content type of messages of the lake that are no JSON: the lake keeps none.
    """
    in_lake.check()
    from skep.spark.lake.pushing_again import ReplayWish

    wishes = which.wanted(seqs or [])
    _check_group(queue, group, target, to)
    meant = ReplayWish(queue=queue, to=target, group=group, label=label, content_type=content_type)
    return _replay(meant, wishes, in_lake, consent, to)


def _check_group(queue: str, group: str | None, target: str | None, to: ServerOptions) -> None:
    """Check that the queue is there, and its group if only that gets the messages."""
    if group is not None and target is not None:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{group!r} is a group of {queue!r}: with --to, all groups of the other queue get the messages",
        )
    with to.open() as client:
        client.log_bounds(queue)
        if group is not None and all(one.consumer_group != group for one in client.groups(queue)):
            raise SkepError(Code.GROUP_NOT_FOUND, f"queue {queue!r} has no group {group!r}")


def _replay(meant: ReplayWish, wishes: list[Wanted], in_lake: InLake, consent: Consent, to: ServerOptions) -> int:
    from skep.spark.lake.pushing_again import PushingAgain

    old = in_lake.of(meant.queue, to)
    pushing = PushingAgain(in_lake.connection(to), meant, old)
    found = pushing.found(wishes)
    if not found.seqs:
        note("there are no such messages" + ("; retention may have taken them: --lake" if old is None else ""))
        return NOTHING
    if old is not None:
        tell_gap(old)
    if not consent.dry_run:
        consent.ask(f"this pushes {_told(meant, found)}")
    pushed = len(found.seqs) if consent.dry_run else pushing.push(wishes, found)
    told = PushedAgain(
        queue=meant.queue, to=meant.to or meant.queue, consumer_group=meant.group, dry_run=consent.dry_run,
        found=len(found.seqs), in_lake=found.in_lake, pushed=pushed, first_seq=found.seqs[0], last_seq=found.seqs[-1],
    )  # fmt: skip
    before = len(found.seqs) - pushed
    again = f"; {before:,} of them had been pushed again before" if before else ""
    print_said(to, told, f"{'would push' if consent.dry_run else 'pushed'} {_told(meant, found)}{again}")
    return OK


def _told(replay: ReplayWish, found: Found) -> str:
    old = f" ({found.in_lake:,} from the lake)" if found.in_lake else ""
    audience = "all groups" if replay.group is None else f"group {replay.group!r} alone"
    return f"{counted(len(found.seqs), 'message')} of queue {replay.queue!r}, seqs {found.seqs[0]} to {found.seqs[-1]}{old}, to queue {replay.to or replay.queue!r} again, for {audience}"
