"""From the spool into the store: in order, each record once, whatever dies when (I13).

Records are stored in the order in which they were spooled. A record that cannot be stored now holds back later records of its
partitions, and no others. When the store is busy, each queue is tried by itself, as only one queue's log may be locked. A record that
can never be stored, or has failed by its own fault for a long time (`skep.engine.push.patience`), goes to the dead-letter queue, or
is set aside. A record is stored with a receipt, so storing it again does nothing. A record that was tried before it was spooled is
first looked up in the log.
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
    SEALED_TYPE,
    Ordering,
    PushBatch,
    PushOutcome,
    QueueKey,
)
from skep.model.operation import refusal
from skep.model.record import Receipt, ReceiptKey
from skep.store.protocol.connection import ConnectionVerbs
from skep.store.protocol.push import PushVerbs
from skep.store.protocol.queues import QueueVerbs

RETRY_SECONDS = 0.5
HELD_SECONDS = 0.1
"""How long a record behind an operation waits before it is tried again."""
LONGEST_WAIT_SECONDS = 30.0
BELIEVED_SECONDS = 2.0
"""How long a queue's settings are cached."""
APART_SECONDS = 5.0
"""After this time, one step tries no further queue by itself."""
KEPT_HERE = frozenset({Code.QUEUE_NOT_FOUND, Code.NOT_ENCRYPTED})
"""Refusals whose messages are set aside as a file: no queue is made only for dead letters, and no plain text goes to an encrypted one."""

log = structlog.get_logger("skep.spool")


class WaitingRecord(Struct):
    """A record on its way into the store."""

    slot: Slot
    number: int
    record: Record
    given_up: str | None = None
    """Why an earlier run gave the record up, if it did not finish that."""
    code: Code | None = None
    failed_at: Instant | None = None
    """When the record first failed with ``code``."""
    retry_at: Instant = Instant(0)
    alone: bool = False

    def fails(self, code: Code, now: Instant) -> Instant:
        """Note a failure with this code; returns when the record first failed with it."""
        self.failed_at = self.failed_at if self.code is code and self.failed_at is not None else now
        self.code = code
        return self.failed_at


class Given(Struct, frozen=True):
    """A record that is given up, and the reason."""

    waiting: WaitingRecord
    error: str
    to_dead_letters: bool


class KnownQueue(Struct, frozen=True):
    """The drain's cached settings of a queue: whether it has one partition, and whether it can be full."""

    fifo: bool
    limited: bool
    until: Instant


class SpoolStore(ConnectionVerbs, QueueVerbs, PushVerbs, Protocol):
    """The part of a store that the spool uses."""


class Drain:
    """Decides which records are stored next, and stores them."""

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
        """Busy queues (another call holds their log), and when each is tried again."""
        self.queues: dict[QueueKey, KnownQueue] = {}
        self.attempts: dict[bytes, int] = {}
        """The attempts (`StoreLink.attempt`) of records that this server tried, by record id."""

    def forget(self) -> None:
        """Forget the cached queues, as the spool is empty."""
        self.queues.clear()
        self._busy.clear()

    async def learn(self, work: Sequence[WaitingRecord]) -> None:
        """Read the settings of the queues of some records."""
        now = self._clock.steady()
        for key in {message.queue for one in work for message in one.record.batch.messages}:
            known = self.queues.get(key)
            if known is None or known.until <= now:
                queue = await self._store.get_queue(key)
                fifo = queue is not None and queue.settings.ordering is Ordering.FIFO
                limited = queue is not None and queue.settings.max_depth > 0
                self.queues[key] = KnownQueue(fifo, limited, Instant(now + seconds(BELIEVED_SECONDS)))

    def groups(self, record: Record) -> set[Group]:
        """The partitions of a record in the store: a fifo queue has one partition."""
        return {
            (queue, DEFAULT_PARTITION if (known := self.queues.get(queue)) is not None and known.fifo else partition)
            for queue, partition in record.groups()
        }

    def choose(self, work: Sequence[WaitingRecord]) -> list[WaitingRecord]:
        """The records to store now, in order. No record overtakes a waiting one of the same partition."""
        now = self._clock.steady()
        chosen: list[WaitingRecord] = []
        held: set[Group] = set()
        limited: set[QueueKey] = set()
        plain: set[Group] = set()
        messages = self._limits.merged_messages
        for one in work:
            groups = self.groups(one.record)
            queues = {queue for queue, _ in groups if self.queues[queue].limited}
            full = bool(chosen) and (len(one.record.batch.ids) > messages or one.alone)
            sealed = {message.content_type == SEALED_TYPE for message in one.record.batch.messages}
            # If the queue is encrypted by now, a plain record is refused, and a sealed one behind it would overtake it.
            overtakes = True in sealed and groups & plain
            if one.retry_at > now or full or overtakes or groups & held or queues & limited or self._waits(groups, now):
                held |= groups
                continue
            chosen.append(one)
            messages -= len(one.record.batch.ids)
            # Only one record of a limited queue at a time: if the queue is full for the first, a smaller second could overtake it.
            limited |= queues
            plain |= groups if False in sealed else set()
            if one.alone:
                break
        return chosen

    async def store_them(
        self, chosen: Sequence[WaitingRecord], stored: Callable[[WaitingRecord, PushOutcome], None]
    ) -> list[Given]:
        """Store records. The others wait, or are given up and returned."""
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
            # A record that shares a queue with a late record is late, too, and so stays behind it.
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
        """Handle the store's outcomes: a record is stored, waits, or is given up and returned."""
        for queue in queues_of(ready):
            self._busy.pop(queue, None)
        given = []
        for one, outcome in zip(ready, outcomes, strict=True):
            if outcome.held:
                # An operation of the same partition was accepted earlier, and comes first.
                one.retry_at = Instant(self._clock.steady() + seconds(HELD_SECONDS))
            elif not outcome.refused:
                stored(one, outcome)
            else:
                given += await self._refused(one, outcome)
        return given

    def _found_busy(self, ready: Sequence[WaitingRecord], error: SkepError) -> None:
        """Let records of busy queues wait. The queue is noted as busy only if there is one; of several it is unknown which."""
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
        """Make sure that earlier attempts of these records are over for good, before the log is searched for them."""
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
        """The batch with a receipt that outlives the record's file."""
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
            # One record may have spoiled the call for all: from now on each is tried by itself.
            for one in chosen:
                one.alone = True
            return []
        return self._again_or_never(chosen[0], error.code, str(error))

    def _again_or_never(self, one: WaitingRecord, code: Code, error: str) -> list[Given]:
        """Let a failed record wait, which holds its partitions, or give it up."""
        now = self._clock.steady()
        since = one.fails(code, now)
        if not self._patience.lasts(code, since, now):
            return [Given(one, error, to_dead_letters=code not in KEPT_HERE)]
        one.retry_at = self._patience.retry_at(since, now)
        if code is not Code.QUEUE_FULL:
            log.warning("a spooled push failed, and is tried again", record=one.record.name, error=error)
        return []

    async def _refused(self, one: WaitingRecord, outcome: PushOutcome) -> list[Given]:
        """Handle a refused record: it is sealed if its queue is encrypted, else it waits or is given up."""
        code, reason = refusal(outcome)
        try:
            sealed = await self._encryption.sealed_anew(one.record.batch, outcome)
        except SkepError as error:
            # The record cannot be sealed now, as its key or the store is missing. It must not be set aside for that.
            log.warning("a spooled push cannot be encrypted", record=one.record.name, error=str(error))
            return self._again_or_never(one, error.code, str(error))
        if sealed is not None:
            # The next step stores it, not this one: a call has many records, and a refused one holds back those behind it.
            one.record = msgspec.structs.replace(one.record, batch=sealed)
            return []
        return self._again_or_never(one, code, f"{code}: {reason}")

    async def bury(self, given: Given) -> bool:
        """Put the messages of a record into the dead-letter queues; False when a message is not taken.

        Each message has a receipt. The first message has the receipt of the record and comes last. So a repeat goes on where the
        first try ended, and the record counts as done when all its messages are.
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
            if (await self._encryption.quarantine(message, id_, given.error, receipt, now)).refused:
                return False
        return True


def queues_of(records: Sequence[WaitingRecord]) -> set[QueueKey]:
    """The queues of some records."""
    return {message.queue for one in records for message in one.record.batch.messages}


def by_queues(records: Sequence[WaitingRecord]) -> list[list[WaitingRecord]]:
    """The records in parts with the same queues. Records with a common queue stay in their order."""
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
