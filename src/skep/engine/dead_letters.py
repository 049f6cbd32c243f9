"""Dead letters: browsing, replaying and purging them. Reached as ``engine.dead_letters``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from skep.clock import Clock, Instant, seconds
from skep.config import Limits
from skep.engine import validate
from skep.engine.inflight import InFlight
from skep.engine.replaying import DeadLettersAndStats, Replay, purge_all, replay_all, replay_edited, with_results
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import DeadLetter, DeadLetterFilter, Edited, MessageState, NewMessage, QueueKey, Seq
from skep.model.history import ReplayRecord
from skep.model.record import MAX_BYTES, Buried, ReceiptKey, Unfit
from skep.store.protocol import PayloadVerbs

BURIALS = "burials"
"""The scope of the receipts of `bury`."""
Seal = Callable[[Sequence[NewMessage], Sequence[Id]], Awaitable[list[NewMessage]]]


@dataclass(eq=False)
class DeadLetters:
    """The engine's interface for dead letters: messages that were given up."""

    _store: DeadLettersAndStats
    _opened: PayloadVerbs
    _clock: Clock
    _ids: IdMint
    _in_flight: InFlight
    _limits: Limits
    _announce: Callable[[QueueKey, Instant], None]
    """Called for queues that got messages back."""
    _seal: Seal
    """Encrypts messages for encrypted queues."""
    _receipt_seconds: float
    """How long the receipts of `bury` live."""

    async def bury(self, key: QueueKey, unfit: Sequence[Unfit], name: str) -> Buried:
        """Copy messages of a log to the queue's dead letters, in order. A repeat with the same ``name`` does nothing."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_name(name, "burial")
            validate.check_page(len(unfit), self._limits)
            if any(not 0 < one.seq <= validate.SEQ_MAX for one in unfit):
                raise SkepError(Code.INVALID_REQUEST, "a seq is a number from 1 on")
            said = [Unfit(one.seq, validate.storable(one.error, self._limits.error_characters)) for one in unfit]
            now = self._clock.now()
            receipt = ReceiptKey(BURIALS, f"{key.name}/{name}", key.tenant)
            expires_at = Instant(now + seconds(self._receipt_seconds))
            told = await self._store.bury_unfit(key, said, receipt, expires_at, now)
            if told.dead_letter_queue is not None and told.buried:
                self._announce(QueueKey(told.dead_letter_queue, key.tenant), now)
            return told

    async def page(
        self, wanted: DeadLetterFilter, *, after: Seq | None = None, limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        """A page of dead letters by seq, after the seq ``after``. The letter that reaches ``max_bytes`` is the last of the page."""
        with self._in_flight:
            _check(wanted)
            validate.check_page(limit, self._limits)
            return await self._opened.dead_letters(wanted, after, limit, max_bytes)

    async def mark(self, key: QueueKey) -> Seq:
        """The newest seq of a dead-letter queue, as the mark of a dry run: later dead letters are beyond it."""
        with self._in_flight:
            validate.check_key(key)
            return (await self._store.queue_stats(key, self._clock.now())).last_seq

    async def count(self, wanted: DeadLetterFilter) -> int:
        """How many dead letters match."""
        with self._in_flight:
            _check(wanted)
            return await self._store.count_dead_letters(wanted)

    async def replay(self, wanted: DeadLetterFilter, *, dry_run: bool = False) -> Replay:
        """Move all dead letters that match now back to their source queues, in order and in bounded transactions.

        If one transaction fails, the letters of earlier ones stay moved; the error's details have their number.
        """
        with self._in_flight:
            _check(wanted)
            if dry_run:
                return Replay(await self._store.count_dead_letters(wanted), [])
            return await replay_all(self._store, self._clock, self._ids, self._limits, wanted, self._announce)

    async def replay_edited(self, wanted: DeadLetterFilter, edited: Edited) -> Replay:
        """Move the one dead letter that matches back to its queue, with another payload and headers."""
        with self._in_flight:
            _check(wanted)
            done = await replay_edited(
                self._store, self._opened, self._clock, self._ids, self._limits, wanted, edited, self._seal
            )
            for moved in done.replayed:
                self._announce(moved.queue, self._clock.now())
            return done

    async def replays(
        self, key: QueueKey, *, source_queue: str | None = None, before: Seq | None = None, limit: int = 100
    ) -> list[tuple[ReplayRecord, MessageState | None]]:
        """The replays from a dead-letter queue, newest letters first, each with the state of its message for its group.

        The state is None when it is unknown: the message, its queue or its group is gone, or the replay was for all groups.
        """
        with self._in_flight:
            validate.check_key(key)
            validate.check_texts((source_queue,))
            validate.check_page(limit, self._limits)
            found = await self._opened.replays(key, source_queue, before, limit)
            return await with_results(self._opened, key.tenant, found, self._clock.now())

    async def purge(self, wanted: DeadLetterFilter, *, dry_run: bool = False) -> int:
        """Delete all dead letters that match now; returns how many were deleted, or would be."""
        with self._in_flight:
            _check(wanted)
            if dry_run:
                return await self._store.count_dead_letters(wanted)
            return await purge_all(self._store, self._clock, self._limits, wanted)


def _check(wanted: DeadLetterFilter) -> None:
    validate.check_key(wanted.queue)
    validate.check_texts((wanted.source_queue, wanted.partition, wanted.group, wanted.error_contains))
    if wanted.up_to is not None and not 0 <= wanted.up_to <= validate.SEQ_MAX:
        raise SkepError(Code.INVALID_REQUEST, "a seq is out of range")
