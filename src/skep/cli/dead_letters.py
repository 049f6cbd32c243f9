"""`skep dlq`: look at dead letters, replay and purge them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from skep.cli.connection import LISTED, Limit, ServerOptions
from skep.cli.consent import Consent
from skep.cli.exits import NOTHING, OK, note
from skep.cli.messages import show_whole
from skep.cli.output import Columns, counted, excerpt, print_one, print_rows, print_said
from skep.cli.progress import progress
from skep.cli.when import Since, Until, instant
from skep.errors import Code, SkepError
from skep.model import QUEUE_MODE_GROUP

if TYPE_CHECKING:
    from msgspec import Raw

    from skep.client import Client
    from skep.wire.dead_letters import DeadLetterView, PurgeResponse, ReplayResponse, ReplayView

dead_letter_app = App(name="dlq", help="Look at dead letters, replay and purge them.", help_format="plaintext")

AT_ONCE = 500
"""Dead letters in one request: few enough that no request takes long, and the progress bar moves."""

LetterQueue = Annotated[
    str, Parameter(help="A queue (its own dead letters), or a dead-letter queue (all dead letters in it).")
]
Letters = Annotated[
    list[str] | None,
    Parameter(negative="", help="The seqs or ids of dead letters; without any, all that match the filters."),
]

_GROUP = Group("Which dead letters", sort_key=50)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class DeadLetterFilters:
    """Filters of dead letters. A dead letter must match all of them."""

    source_queue: str | None = None
    """Only dead letters from this queue."""
    partition: str | None = None
    """Only messages of this partition."""
    group: str | None = None
    """Only dead letters of this group: it gave them up."""
    reason: Literal["max_attempts", "rejected", "expired", "invalid", "operation_failed"] | None = None
    """Only dead letters with this reason."""
    error: str | None = None
    """Only dead letters whose error contains this text."""
    since: Since = None
    until: Until = None

    def query(self) -> dict[str, Any]:
        """These filters as arguments of the client, which leaves out those that are None."""
        return {
            "source_queue": self.source_queue,
            "partition": self.partition,
            "group": self.group,
            "reason": self.reason,
            "error": self.error,
            "since": None if self.since is None else instant(self.since),
            "until": None if self.until is None else instant(self.until),
        }


@dead_letter_app.command(name="list")
def list_letters(
    queue: LetterQueue,
    /,
    *,
    which: DeadLetterFilters = DeadLetterFilters(),
    limit: Limit = LISTED,
    to: ServerOptions = ServerOptions(),
) -> None:
    """List dead letters, the oldest one first.

    For example:
        skep dlq list orders --reason max_attempts --since 2h

    Parameters
    ----------
    limit
        The largest number of dead letters to list.
    """
    with to.open() as client:
        letters = client.dead_letters(queue, **which.query())
        print_rows(to, islice(letters, limit), COLUMNS, empty="there are no dead letters")


@dead_letter_app.command
def show(queue: LetterQueue, letter: str, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Show a dead letter with its payload.

    For example:
        skep dlq show orders 3

    Parameters
    ----------
    letter
        The seq or id of the dead letter.
    """
    with to.open() as client:
        print_one(to, client.dead_letter(queue, letter), show_whole)


@dead_letter_app.command
def replay(
    queue: LetterQueue,
    letters: Letters = None,
    /,
    *,
    payload: str | None = None,
    which: DeadLetterFilters = DeadLetterFilters(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Send dead letters back to their queues, in order.

    Each dead letter goes to the group that gave it up. Its attempts start
    from zero.
    Exit code 4 when there are none.

    For example:
        skep dlq replay orders --reason max_attempts --dry-run
        skep dlq replay orders 3 4 7 --yes
        skep dlq replay orders 3 --payload '{"customer": 7}'

    Parameters
    ----------
    payload
        JSON that goes back instead of the dead letter's own payload. Name one dead letter.
    """
    edited = None if payload is None else _edited(payload, letters, which)
    wish = _wish(letters, which)
    with to.open() as client:
        found = client.replay(queue, **wish, dry_run=True)
        if not found.count:
            return _none()
        if not consent.dry_run:
            consent.ask(f"this sends {counted(found.count, 'dead letter')} of {queue!r} back")
            found = client.replay_edited(queue, *edited) if edited else _replayed(client, queue, wish, found)
    print_said(to, found, f"{'would send' if found.dry_run else 'sent'} {counted(found.count, 'dead letter')} back")
    return OK


@dead_letter_app.command
def replays(
    queue: LetterQueue,
    /,
    *,
    source_queue: str | None = None,
    limit: Limit = LISTED,
    to: ServerOptions = ServerOptions(),
) -> None:
    """List replayed dead letters, and the outcome of each replay.

    The newest dead letters come first. Each record is kept for 90 days.

    For example:
        skep dlq replays orders --limit 20

    Parameters
    ----------
    source_queue
        Only dead letters that went back to this queue.
    limit
        The largest number of dead letters to list.
    """
    with to.open() as client:
        found = client.replays(queue, source_queue=source_queue)
        print_rows(to, islice(found, limit), REPLAY_COLUMNS, empty="no dead letter was replayed")


@dead_letter_app.command
def purge(
    queue: LetterQueue,
    letters: Letters = None,
    /,
    *,
    which: DeadLetterFilters = DeadLetterFilters(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Delete dead letters for good. Exit code 4 when there are none.

    For example:
        skep dlq purge orders --until 7d --dry-run
    """
    wish = _wish(letters, which)
    with to.open() as client:
        found = client.purge(queue, **wish, dry_run=True)
        if not found.count:
            return _none()
        if not consent.dry_run:
            consent.ask(f"this deletes {counted(found.count, 'dead letter')} of {queue!r} for good")
            found = _purged(client, queue, wish, found)
    print_said(to, found, f"{'would delete' if found.dry_run else 'deleted'} {counted(found.count, 'dead letter')}")
    return OK


def _wish(letters: list[str] | None, which: DeadLetterFilters) -> dict[str, Any]:
    wish = which.query()
    seqs = [int(letter) for letter in letters or [] if letter.isascii() and letter.isdecimal()]
    ids = [letter for letter in letters or [] if not (letter.isascii() and letter.isdecimal())]
    return {**wish, **({"seqs": seqs} if seqs else {}), **({"ids": ids} if ids else {})}


def _edited(payload: str, letters: list[str] | None, which: DeadLetterFilters) -> tuple[str, Raw]:
    from skep.cli import payloads

    if letters is None or len(letters) != 1 or which != DeadLetterFilters():
        raise SkepError(
            Code.INVALID_REQUEST, "--payload goes with one dead letter, named by its seq or id, and with no filter"
        )
    return letters[0], payloads.payload(payload.encode(), "--payload")


def _none() -> int:
    note("there are no such dead letters")
    return NOTHING


def _replayed(client: Client, queue: str, wish: dict[str, Any], asked: ReplayResponse) -> ReplayResponse:
    from skep.wire.dead_letters import ReplayResponse

    done, count = ReplayResponse(dry_run=False, count=0, replayed=[]), asked.count
    with progress("replaying", count) as bar:
        for part in _parts(client, queue, wish, asked):
            answer = client.replay(queue, **part)
            done.count += answer.count
            done.replayed += answer.replayed
            bar.reached(done.count, f"{done.count:,} of {count:,}")
    return done


def _purged(client: Client, queue: str, wish: dict[str, Any], asked: PurgeResponse) -> PurgeResponse:
    from skep.wire.dead_letters import PurgeResponse

    done, count = PurgeResponse(dry_run=False, count=0), asked.count
    with progress("purging", count) as bar:
        for part in _parts(client, queue, wish, asked):
            done.count += client.purge(queue, **part).count
            bar.reached(done.count, f"{done.count:,} of {count:,}")
    return done


def _parts(
    client: Client, queue: str, wish: dict[str, Any], asked: ReplayResponse | PurgeResponse
) -> Iterator[dict[str, Any]]:
    """Divide a replay or purge into requests.

    A small one, or one that names its dead letters, stays whole. A large one becomes requests of at most AT_ONCE seqs, in order.
    Messages that died after the count are left out (``up_to_seq``).
    """
    mark = {} if asked.up_to_seq is None else {"up_to_seq": asked.up_to_seq}
    if asked.count <= AT_ONCE or "seqs" in wish or "ids" in wish:
        yield {**wish, **mark}
        return
    letters = client.dead_letters(queue, **wish, preview=0)
    left = asked.count
    while left > 0 and (seqs := [letter.seq for letter in islice(letters, min(AT_ONCE, left))]):
        left -= len(seqs)
        yield {"seqs": seqs, **mark}


COLUMNS: Columns[DeadLetterView] = {
    "seq": lambda one: one.seq,
    "from": lambda one: f"{one.source_queue} {one.source_seq}",
    "partition": lambda one: one.partition,
    "group": lambda one: None if one.consumer_group == QUEUE_MODE_GROUP else one.consumer_group,
    "reason": lambda one: one.reason,
    "attempts": lambda one: one.attempts,
    "error": lambda one: None if one.error is None else one.error.partition("\n")[0],
    "payload": lambda one: excerpt(one.payload, one.preview),
}

REPLAY_COLUMNS: Columns[ReplayView] = {
    "letter": lambda one: one.dead_seq,
    "replayed at": lambda one: one.replayed_at,
    "became": lambda one: f"{one.queue or 'a deleted queue'} {one.seq}",
    "group": lambda one: None if one.consumer_group == QUEUE_MODE_GROUP else one.consumer_group,
    "result": lambda one: one.replay_result,
    "reason": lambda one: one.reason,
    "attempts": lambda one: one.attempts,
    "error": lambda one: one.error,
}
