"""Find the dead letters that a request selects, and check whether the caller may."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.engine import Engine
from skep.engine.replaying import Replay
from skep.errors import Code, SkepError
from skep.http.producer import edited
from skep.http.request import parameters
from skep.http.request.call import Call
from skep.http.views import wanted_id
from skep.model import (
    DEAD_LETTER_SUFFIX,
    NO_DEAD_LETTER_QUEUE,
    DeadLetter,
    DeadLetterFilter,
    DeadReason,
    Edited,
    NewMessage,
    QueueKey,
    Seq,
)
from skep.model.key import Verb
from skep.wire.dead_letters import DeadLetterSelection
from skep.wire.times import to_instant

LETTERS_NAMED = 20
"""The largest number of replayed or purged dead letters that an audit entry names."""


async def meant(engine: Engine, wanted: DeadLetterFilter, call: Call) -> DeadLetterFilter | None:
    """As `resolved`, if the caller may use the dead-letter queue, or the source queue of the dead letters.

    A caller that may use neither of the named queues is refused before anything is read.
    """
    source = None if wanted.source_queue is None else QueueKey(wanted.source_queue, wanted.queue.tenant)
    if source is None or not call.may(source):
        call.check(wanted.queue)
    found = await resolved(engine, wanted)
    if found is not None and not call.may(found.queue):
        # The caller may not use all of that queue: only the letters of a source queue that the caller may use.
        call.check(found.queue if found.source_queue is None else QueueKey(found.source_queue, found.queue.tenant))
    call.check(wanted.queue if source is None or call.may(wanted.queue) else source)
    return found


async def resolved(engine: Engine, wanted: DeadLetterFilter) -> DeadLetterFilter | None:
    """The filter with the dead-letter queue in place of its source; None when there is no such queue, as no message died yet.

    For a queue that holds no dead letters, its own dead letters are meant, unless the filter names another source.
    """
    queue = await engine.get_queue(wanted.queue)
    if queue.holds_dead_letters:
        return wanted
    name = queue.settings.dead_letter_queue
    if name == NO_DEAD_LETTER_QUEUE:
        raise SkepError(
            Code.NOT_A_DEAD_LETTER_QUEUE, f"queue {queue.key.name!r} neither holds nor keeps dead letters",
            queue=queue.key.name,
        )  # fmt: skip
    key = QueueKey(name or queue.key.name + DEAD_LETTER_SUFFIX, queue.key.tenant)
    try:
        there = await engine.get_queue(key)
    except SkepError as error:
        # A name with the suffix may be too long for a queue: then there can be none.
        if error.code not in (Code.QUEUE_NOT_FOUND, Code.INVALID_NAME):
            raise
        return None
    if not there.holds_dead_letters:
        return None
    return msgspec.structs.replace(wanted, queue=key, source_queue=wanted.source_queue or queue.key.name)


async def found(
    engine: Engine, wanted: DeadLetterFilter, after: Seq | None, limit: int, call: Call
) -> tuple[list[DeadLetter], Seq | None]:
    """A page of dead letters, and the seq after which the next page starts. A page of large letters is short."""
    filter_ = await meant(engine, wanted, call)
    if filter_ is None:
        return [], None
    most = engine.settings.limits.page_bytes
    letters = await engine.dead_letters.page(filter_, after=after, limit=limit, max_bytes=most)
    if not letters:
        return [], None
    last = letters[-1].seq
    # Encrypted payloads have another size in the store, so it cannot be known from these.
    is_last = len(letters) < limit and not await engine.dead_letters.page(filter_, after=last, limit=1)
    return letters, None if is_last else last


def page_bytes(engine: Engine) -> int:
    """The most bytes of a page of dead letters: its last letter may be large, and the letter after it is read, too."""
    limits = engine.settings.limits
    return limits.page_bytes + 2 * limits.payload_bytes


async def one(engine: Engine, key: QueueKey, name: str, call: Call) -> DeadLetter:
    """The dead letter with this seq or id; MESSAGE_NOT_FOUND when there is none."""
    letters, _ = await found(engine, named(key, name), None, 1, call)
    if not letters:
        raise missing(key, name)
    return letters[0]


async def replay_edited(engine: Engine, letter: DeadLetter, payload: bytes, call: Call) -> Replay:
    """Send one dead letter back with another payload, which its queue must take, and its caller may push there."""
    source = QueueKey(letter.source_queue, letter.queue.tenant)
    call.check(source, Verb.PUSH)  # what it says is new
    if engine.declared is not None:
        await engine.declared.fit([NewMessage(source, payload)])
    changed = Edited(payload, headers=edited(letter.headers, call.principal))
    done = await engine.dead_letters.replay_edited(DeadLetterFilter(queue=letter.queue, seqs=[letter.seq]), changed)
    call.note(count=done.count, target=named_letters(letter.queue, [letter.seq]))
    return done


def named(key: QueueKey, name: str) -> DeadLetterFilter:
    """The filter for one seq or id."""
    if name.isascii() and name.isdecimal():
        return DeadLetterFilter(queue=key, seqs=_seqs([parameters.position({"seq": name}, "seq") or 0]))
    return DeadLetterFilter(queue=key, ids=[wanted_id(name)])


def named_letters(key: QueueKey, letters: Sequence[object]) -> str | None:
    """Dead letters as the audit log names them, by seq or id; None when there are too many to tell, or they were not named."""
    if not letters or len(letters) > LETTERS_NAMED:
        return None
    return f"dead letter{'' if len(letters) == 1 else 's'} {', '.join(map(str, letters))} of queue {key.name}"


def missing(key: QueueKey, name: str) -> SkepError:
    """The error when a dead letter is not there."""
    return SkepError(Code.MESSAGE_NOT_FOUND, f"there is no dead letter {name[:100]!r} of {key.name!r}", queue=key.name)


def of_query(query: dict[str, str], tenant: str) -> DeadLetterFilter:
    """The filter of a query."""
    return DeadLetterFilter(
        queue=QueueKey(parameters.needed(query, "queue"), tenant),
        source_queue=query.get("sourceQueue"),
        partition=query.get("partition"),
        group=query.get("consumerGroup"),
        reason=parameters.choice(query, "reason", DeadReason),
        error_contains=query.get("error"),
        since=parameters.time(query, "since"),
        until=parameters.time(query, "until"),
    )


def of_selection(selection: DeadLetterSelection, tenant: str) -> DeadLetterFilter:
    """The filter of a body."""
    return DeadLetterFilter(
        queue=QueueKey(selection.queue, tenant),
        ids=None if selection.ids is None else [wanted_id(text) for text in selection.ids],
        seqs=None if selection.seqs is None else _seqs(selection.seqs),
        source_queue=selection.source_queue,
        partition=selection.partition,
        group=selection.consumer_group,
        reason=selection.reason,
        error_contains=selection.error,
        since=None if selection.since is None else to_instant(selection.since),
        until=None if selection.until is None else to_instant(selection.until),
        up_to=None if selection.up_to_seq is None else _seqs([selection.up_to_seq])[0],
    )


async def marked(engine: Engine, wanted: DeadLetterFilter) -> DeadLetterFilter:
    """The filter with a mark of this moment. A dry run counts these dead letters, and the next call touches no later ones."""
    if wanted.up_to is not None:
        return wanted
    return msgspec.structs.replace(wanted, up_to=await engine.dead_letters.mark(wanted.queue))


def _seqs(seqs: Sequence[int]) -> list[Seq]:
    if any(not 0 <= seq <= parameters.POSITION_MAX for seq in seqs):
        raise SkepError(Code.INVALID_REQUEST, "a seq is out of range")
    return [Seq(seq) for seq in seqs]
