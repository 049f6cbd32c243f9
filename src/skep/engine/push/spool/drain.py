"""From the spool into the store: in order, each record once, whatever dies when (I13).

Records go in the order they were spooled in. One that cannot be stored now holds back those of the same partitions and no others, for
as long as that takes. When the store is busy, each queue is tried by itself: somebody may hold the log of one, and the others do not
wait for it. One that can never be stored, or has failed of itself for a long time (`skep.engine.push.patience`), goes to the
dead-letter queue, or is set aside. A record is stored with a receipt, so doing it again does nothing; one that was tried before it was spooled is looked for in the log first.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct

from skep.clock import Clock, Instant, seconds
from skep.config import Limits, SpoolSettings
from skep.engine.encryption import Encryption
from skep.engine.push.patience import Patience
from skep.engine.push.spool.record import SCOPE, Group, Record
from skep.engine.push.spool.slot import Slot
from skep.engine.push.spool.store_link import StoreLink
from skep.errors import Code, Outlook, SkepError
from skep.model import (
    DEFAULT_PARTITION,
    Ordering,
    PushBatch,
    PushOutcome,
    QueueKey,
)
from skep.model.operation import refusal
from skep.model.record import Receipt, ReceiptKey
from skep.store.protocol.connection import ConnectionVerbs
from skep.store.protocol.dead_letters import DeadLetterVerbs
from skep.store.protocol.push import PushVerbs
from skep.store.protocol.queues import QueueVerbs

RETRY_SECONDS = 0.5
HELD_SECONDS = 0.1
"""How long a record waits that has an operation before it."""
LONGEST_WAIT_SECONDS = 30.0
BELIEVED_SECONDS = 2.0
"""How long a queue's settings are believed."""
APART_SECONDS = 5.0
"""After how long one step tries no further queue by itself."""
KEPT_HERE = frozenset({Code.QUEUE_NOT_FOUND, Code.NOT_ENCRYPTED})
"""A refusal for which the messages are set aside: a queue must not be made for its dead letters, nor show what is to be secret."""

log = structlog.get_logger("skep.spool")


class WaitingRecord(Struct):
    """A record on its way into the store."""

    slot: Slot
    number: int
    record: Record
    given_up: str | None = None
    """Why an earlier run gave it up, when that one did not get to the end of it."""
    code: Code | None = None
    failed_at: Instant | None = None
    """Since when it fails with this code."""
    retry_at: Instant = Instant(0)
    alone: bool = False

    def fails(self, code: Code, now: Instant) -> Instant:
        """Note that it fails with this code; since when it does."""
        self.failed_at = self.failed_at if self.code is code and self.failed_at is not None else now
        self.code = code
        return self.failed_at


class Given(Struct, frozen=True):
    """A record that cannot be stored, and why."""

    waiting: WaitingRecord
    error: str
    to_dead_letters: bool


class KnownQueue(Struct, frozen=True):
    """What the drain must know of a queue: whether it has one partition, and whether it can be full."""

    fifo: bool
    limited: bool
    until: Instant


class SpoolStore(ConnectionVerbs, QueueVerbs, PushVerbs, DeadLetterVerbs, Protocol):
    """A store as far as the spool needs it."""


class Drain:
    """Decides what is stored next, and stores it."""

    def __init__(
        self,
        store: SpoolStore,
        clock: Clock,
        link: StoreLink,
        settings: SpoolSettings,
        limits: Limits,
        create_queues: bool,
        encryption: Encryption,
    ) -> None:
        self._store = store
        self._clock = clock
        self._link = link
        self._settings = settings
        self._patience = Patience(settings.full_seconds, settings.fault_seconds, RETRY_SECONDS, LONGEST_WAIT_SECONDS)
        self._limits = limits
        self._create_queues = create_queues
        self._encryption = encryption
        self._fenced: set[str] = set()
        self._busy: dict[QueueKey, Instant] = {}
        """Queues whose log somebody holds, and when each is tried again."""
        self.queues: dict[QueueKey, KnownQueue] = {}
        self.attempts: dict[bytes, int] = {}
        """Of records that were tried by this server: which attempt (`Link.attempt`) that was, by their id."""

    def forget(self) -> None:
        """Forget the queues: nothing waits for them any more."""
        self.queues.clear()
        self._busy.clear()

    async def learn(self, work: Sequence[WaitingRecord]) -> None:
        """Read what must be known of the queues of some records."""
        now = self._clock.steady()
        for key in {message.queue for one in work for message in one.record.batch.messages}:
            known = self.queues.get(key)
            if known is None or known.until <= now:
                queue = await self._store.get_queue(key)
                fifo = queue is not None and queue.settings.ordering is Ordering.FIFO
                limited = queue is not None and queue.settings.max_depth > 0
                self.queues[key] = KnownQueue(fifo, limited, Instant(now + seconds(BELIEVED_SECONDS)))

    def groups(self, record: Record) -> set[Group]:
        """The partitions of a record as the store has them: a fifo queue has one."""
        return {
            (queue, DEFAULT_PARTITION if (known := self.queues.get(queue)) is not None and known.fifo else partition)
            for queue, partition in record.groups()
        }

    def choose(self, work: Sequence[WaitingRecord]) -> list[WaitingRecord]:
        """What may be stored now, in order: nothing overtakes a record of the same partition that has to wait."""
        now = self._clock.steady()
        chosen: list[WaitingRecord] = []
        held: set[Group] = set()
        limited: set[QueueKey] = set()
        messages = self._limits.merged_messages
        for one in work:
            groups = self.groups(one.record)
            queues = {queue for queue, _ in groups if self.queues[queue].limited}
            full = bool(chosen) and (len(one.record.batch.ids) > messages or one.alone)
            if one.retry_at > now or full or groups & held or queues & limited or self._waits(groups, now):
                held |= groups
                continue
            chosen.append(one)
            messages -= len(one.record.batch.ids)
            # Of two for a queue that gets full in between, the second could fit where the first did not.
            limited |= queues
            if one.alone:
                break
        return chosen

    async def store_them(
        self, chosen: Sequence[WaitingRecord], stored: Callable[[WaitingRecord, PushOutcome], None]
    ) -> list[Given]:
        """Store records; those that are not stored have to wait, or are given up and returned."""
        given: list[Given] = []
        held: set[Group] = set()
        parts = self._parts(chosen)
        until = self._clock.steady() + seconds(APART_SECONDS)
        while parts and self._clock.steady() <= until:
            ready = self._ready(parts.pop(0), held)
            if not ready:
                continue
            try:
                outcomes = await self._push(ready)
            except SkepError as error:
                apart = by_queues(ready)
                if error.code is Code.STORE_BUSY and len(apart) > 1:
                    parts = apart + parts
                    until = self._clock.steady() + seconds(APART_SECONDS)
                    continue
                if error.code is Code.STORE_BUSY:
                    self._found_busy(ready, error)
                elif error.outlook is Outlook.LATER:
                    return given + self._failed([*ready, *chain(*parts)], error)
                else:
                    given += self._failed(ready, error)
                waiting = ready
            else:
                given += await self._ended(ready, outcomes, stored)
                waiting = [one for one, outcome in zip(ready, outcomes, strict=True) if outcome.held or outcome.refused]
            held |= {group for one in waiting for group in self.groups(one.record)}
        for one in chain(*parts):
            one.retry_at = Instant(self._clock.steady() + seconds(RETRY_SECONDS))
        return given

    def _parts(self, chosen: Sequence[WaitingRecord]) -> list[list[WaitingRecord]]:
        """Records that are stored together. Records of busy queues come last, each queue by itself."""
        sound: list[WaitingRecord] = []
        suspect: list[WaitingRecord] = []
        late = set(self._busy)
        for one in chosen:
            queues = queues_of([one])
            # What shares a queue with an earlier one that comes late is late, too, and so stays behind it.
            if one.code is Code.STORE_BUSY or queues & late:
                late |= queues
                suspect.append(one)
            else:
                sound.append(one)
        return ([sound] if sound else []) + by_queues(suspect)

    def _ready(self, part: Sequence[WaitingRecord], held: set[Group]) -> list[WaitingRecord]:
        """The records that may be stored now; partitions of the other records are added to ``held``."""
        now = self._clock.steady()
        ready = []
        for one in part:
            groups = self.groups(one.record)
            if groups & held or self._waits(groups, now):
                held |= groups
            else:
                ready.append(one)
        return ready

    def _waits(self, groups: set[Group], now: Instant) -> bool:
        """Whether one of the queues is busy, and not to be tried again yet."""
        return any(self._busy.get(queue, now) > now for queue, _ in groups)

    async def _push(self, ready: Sequence[WaitingRecord]) -> list[PushOutcome]:
        """Store records in one call. Raises nothing but `SkepError`."""
        try:
            await self._fence(ready)
            now = self._clock.now()
            return await self._store.push([self._once(one.record, now) for one in ready], now, self._create_queues)
        except SkepError:
            raise
        except Exception as error:
            log.error("storing what was spooled failed", traceback=traceback.format_exc(limit=-8))
            raise SkepError(Code.INTERNAL, type(error).__name__) from error

    async def _ended(
        self,
        ready: Sequence[WaitingRecord],
        outcomes: Sequence[PushOutcome],
        stored: Callable[[WaitingRecord, PushOutcome], None],
    ) -> list[Given]:
        """The store has decided about these: they are stored, wait, or are given up and returned."""
        for queue in queues_of(ready):
            self._busy.pop(queue, None)
        given = []
        for one, outcome in zip(ready, outcomes, strict=True):
            if outcome.held:
                # An operation of the same partition was accepted before it, and comes first.
                one.retry_at = Instant(self._clock.steady() + seconds(HELD_SECONDS))
            elif not outcome.refused:
                stored(one, outcome)
            else:
                given += await self._refused(one, outcome)
        return given

    def _found_busy(self, ready: Sequence[WaitingRecord], error: SkepError) -> None:
        """Records of the same queues cannot be stored now: they wait. Of several queues nobody knows which one is busy."""
        now = self._clock.steady()
        queues = queues_of(ready)
        log.warning(
            "storing what was spooled has to wait", records=len(ready), queues=sorted(queue.name for queue in queues),
            error=str(error),
        )  # fmt: skip
        since = min([one.fails(error.code, now) for one in ready])
        for one in ready:
            one.retry_at = self._patience.retry_at(since, now)
        if len(queues) == 1:
            self._busy |= dict.fromkeys(queues, ready[0].retry_at)

    async def _fence(self, chosen: Sequence[WaitingRecord]) -> None:
        """Before a record that was tried is looked for in the log, its attempt must be over for good."""
        tried = [one.record for one in chosen if one.record.batch.tried is not None]
        own = [self.attempts[record.id] for record in tried if record.id in self.attempts]
        if own:
            await self._link.fence(max(own))
        sessions = {
            record.batch.tried.session
            for record in tried
            if record.batch.tried is not None and record.id not in self.attempts
        }
        if not sessions <= self._fenced:
            await self._store.fence(sorted(sessions - self._fenced))
            self._fenced |= sessions

    def _once(self, record: Record, now: Instant) -> PushBatch:
        """The batch with a receipt that lives long enough for the file of the record to be gone by then."""
        expires_at = Instant(now + seconds(self._settings.receipt_seconds))
        own = record.batch.receipt
        if own is None:
            receipt = Receipt(ReceiptKey(SCOPE, record.name), b"{}", expires_at)
        else:
            receipt = Receipt(own.key, own.answer, max(own.expires_at, expires_at))
        return msgspec.structs.replace(record.batch, receipt=receipt)

    def _failed(self, chosen: Sequence[WaitingRecord], error: SkepError) -> list[Given]:
        if error.code is Code.STORE_UNAVAILABLE:
            self._link.doubt()
        if error.outlook is Outlook.LATER:
            now = self._clock.steady()
            log.warning("storing what was spooled has to wait", records=len(chosen), error=str(error))
            for one in chosen:
                one.retry_at = Instant(now + seconds(RETRY_SECONDS))
            return []
        if len(chosen) > 1:
            # One of several may have spoiled it for all: from now on each is tried by itself.
            for one in chosen:
                one.alone = True
            return []
        return self._again_or_never(chosen[0], error.code, str(error))

    def _again_or_never(self, one: WaitingRecord, code: Code, error: str) -> list[Given]:
        """A record that could not be stored by itself: it waits, and holds its partitions, or it is given up."""
        now = self._clock.steady()
        since = one.fails(code, now)
        if not self._patience.lasts(code, since, now):
            return [Given(one, error, to_dead_letters=code not in KEPT_HERE)]
        one.retry_at = self._patience.retry_at(since, now)
        if code is not Code.QUEUE_FULL:
            log.warning("a spooled push failed, and is tried again", record=one.record.name, error=error)
        return []

    async def _refused(self, one: WaitingRecord, outcome: PushOutcome) -> list[Given]:
        """A record that the store refused: it is sealed when that is what is missing, it waits, or it is given up."""
        code, reason = refusal(outcome)
        try:
            sealed = await self._encryption.sealed_anew(one.record.batch, outcome)
        except SkepError as error:
            # Without its key, or a store to make one in, it cannot be sealed now; it must not be set aside for that.
            log.warning("a spooled push cannot be encrypted", record=one.record.name, error=str(error))
            return self._again_or_never(one, error.code, str(error))
        if sealed is not None:
            one.record = msgspec.structs.replace(one.record, batch=sealed)
            return []
        return self._again_or_never(one, code, f"{code}: {reason}")

    async def bury(self, given: Given) -> bool:
        """Put the messages of a record into the dead-letter queues; False when there is none that takes them.

        Each has a receipt, and the first message, which has that of the record, comes last: so doing it again goes on where
        it ended, and the record counts as done when all are.
        """
        record = given.waiting.record
        batch = record.batch
        now = self._clock.now()
        whole = self._once(record, now).receipt
        assert whole is not None
        numbered = list(enumerate(zip(batch.messages, batch.ids, strict=True)))
        for number, (message, id_) in [*numbered[1:], *numbered[:1]]:
            receipt = (
                Receipt(ReceiptKey(SCOPE, f"{record.name}/{number}"), b"{}", whole.expires_at) if number else whole
            )
            try:
                outcome = await self._store.quarantine(message, id_, given.error, receipt, now)
            except SkepError as error:
                if error.code is not Code.NOT_ENCRYPTED:
                    raise
                sealed = await self._encryption.seal_batch(PushBatch([message], [id_]), [message.queue])
                if sealed is None:
                    return False
                outcome = await self._store.quarantine(sealed.messages[0], id_, given.error, receipt, now)
            if outcome.refused:
                return False
        return True


def queues_of(records: Sequence[WaitingRecord]) -> set[QueueKey]:
    """The queues that some records are for."""
    return {message.queue for one in records for message in one.record.batch.messages}


def by_queues(records: Sequence[WaitingRecord]) -> list[list[WaitingRecord]]:
    """Records in parts, each for the same queues. Those that have a queue in common stay in their order."""
    parts: list[list[WaitingRecord]] = []
    latest: dict[QueueKey, int] = {}
    for one in records:
        queues = queues_of([one])
        place = max((latest[queue] for queue in queues if queue in latest), default=None)
        if place is None or queues_of(parts[place][:1]) != queues:
            place = len(parts)
            parts.append([])
        parts[place].append(one)
        latest |= dict.fromkeys(queues, place)
    return parts
