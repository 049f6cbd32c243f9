"""Forgetting messages for good, and the tombstones that tell of it. Reached as ``engine.forgetting``.

Who names seqs names messages of one log. Any other selection is resolved to seqs here, page by page: messages of the log, dead letters,
scheduled messages, and queued pushes. Each step of the store is one transaction over a bounded number of messages, so a call that fails
half way has forgotten some of them whole, and the same call again does the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import Struct

from skep.clock import Clock, Instant
from skep.config import Limits
from skep.engine import validate
from skep.engine.inflight import InFlight
from skep.engine.push.operations import Operations
from skep.engine.scheduled import Scheduled
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import MessageFilter, QueueKey, Seq
from skep.model.forgetting import (
    FIRST_LETTER,
    ForgetFilter,
    Forgotten,
    FoundLetter,
    LetterPlace,
    SeqRange,
    check_log,
    merged,
    runs_of,
)
from skep.model.operation import OperationFilter, OperationKind, OperationStatus
from skep.model.queue import no_queue
from skep.model.scheduled import Change, ScheduledFilter
from skep.store.protocol.browse import BrowseVerbs
from skep.store.protocol.dead_letters import DeadLetterSourceVerbs
from skep.store.protocol.log import LogVerbs
from skep.store.protocol.queues import QueueVerbs

PAGE = 1_000
NAMED_RANGES = 100
"""How many ranges of seqs a report names."""
_PATIENT = (OperationStatus.PENDING, OperationStatus.BLOCKED)
"""The operations that can be cancelled."""


class ForgettingVerbs(LogVerbs, DeadLetterSourceVerbs, BrowseVerbs, QueueVerbs, Protocol):
    """The store's verbs for forgetting."""


class ForgetReport(Struct):
    """How many messages were forgotten, or would be: of the log, dead letters, messages that replays had made, scheduled messages, and
    queued pushes (operations).

    ``ranges`` are the first of the log's seqs; ``log`` names the log.
    """

    log: Instant
    messages: int = 0
    letters: int = 0
    copies: int = 0
    scheduled: int = 0
    operations: int = 0
    ranges: list[SeqRange] = []

    @property
    def count(self) -> int:
        """All messages, wherever they were."""
        return self.messages + self.letters + self.copies + self.scheduled

    def name(self, ranges: Iterable[SeqRange]) -> None:
        """Add ranges to those that are named."""
        self.ranges = merged([*self.ranges, *ranges])[:NAMED_RANGES]


@dataclass(eq=False)
class Forgetting:
    """Forgets messages of all queues."""

    _store: ForgettingVerbs
    _clock: Clock
    _in_flight: InFlight
    _limits: Limits
    _scheduled: Scheduled
    _operations: Operations
    _inspect: Callable[[QueueKey], None]
    _wake: Callable[[QueueKey], None]
    """Both are called for queues where messages may have become ready."""

    async def forget(self, wanted: ForgetFilter, *, dry_run: bool = False) -> ForgetReport:
        """Forget all messages that match now; with ``dry_run`` only count them."""
        with self._in_flight:
            self._check(wanted)
            queue = await self._store.get_queue(wanted.queue)
            if queue is None:
                raise no_queue(wanted.queue.name)
            check_log(wanted.queue.name, wanted.log, queue.created_at)
            wanted = msgspec.structs.replace(
                wanted, log=queue.created_at, ranges=None if wanted.ranges is None else merged(wanted.ranges)
            )
            report = ForgetReport(queue.created_at)
            if wanted.names == ["seq"]:
                await self._forget(wanted, report, wanted.ranges or [], dry_run)
            elif dry_run:
                await self._count(wanted, report)
            else:
                await self._forget_matches(wanted, report)
            return report

    async def tombstones(self, key: QueueKey, *, after: int = 0, limit: int = 100) -> Forgotten:
        """A page of the seqs that were forgotten, in the order in which they were; those after the position ``after``."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_page(limit, self._limits)
            return await self._store.tombstones(key, after, limit)

    def _check(self, wanted: ForgetFilter) -> None:
        validate.check_key(wanted.queue)
        validate.check_texts((wanted.partition, wanted.transaction_id))
        if not wanted.names:
            raise SkepError(
                Code.INVALID_REQUEST, "say which messages to forget: by seq, partition, transaction id or trace id"
            )
        if wanted.ranges:
            validate.check_count(len(wanted.ranges), self._limits.page, "the number of seqs and ranges")
        for first, last in wanted.ranges or ():
            if not 0 < first <= last <= validate.SEQ_MAX:
                raise SkepError(
                    Code.INVALID_REQUEST, "a range of seqs begins at 1 or later, and ends where it began, or later"
                )

    async def _forget(
        self, wanted: ForgetFilter, report: ForgetReport, ranges: Sequence[SeqRange], dry_run: bool = False
    ) -> None:
        """Forget messages by their seqs, step by step."""
        after = Seq(0) if ranges else None
        while after is not None:
            now = self._clock.now()
            try:
                step = await self._store.forget(
                    wanted.queue, wanted.log, ranges, after, self._limits.replay_batch, now, dry_run
                )
            except SkepError as error:
                raise SkepError(error.code, error.message, **{**error.details, "forgotten": report.count}) from error
            report.messages += step.messages
            report.letters += step.letters
            report.copies += step.copies
            for key in () if dry_run else step.queues:
                # The messages behind them, and their neighbours in a lease, may be ready now.
                self._inspect(key)
                self._wake(key)
            after = step.after
        report.name(ranges)

    async def _forget_matches(self, wanted: ForgetFilter, report: ForgetReport) -> None:
        """Forget what matches. First what may enter the log, then letters, which a replay may bring there; last what died meanwhile."""
        if wanted.ranges is None:
            await self._forget_operations(wanted, report)
            report.scheduled = (await self._scheduled.change(_scheduled(wanted), Change.FORGET)).count
        await self._forget_letters(wanted, report)
        async for seqs in self._in_log(wanted):
            await self._forget(wanted, report, runs_of(seqs))
        await self._forget_letters(wanted, report)

    async def _forget_letters(self, wanted: ForgetFilter, report: ForgetReport) -> None:
        async for letters in self._letters(wanted):
            if seqs := [letter.source_seq for letter in letters if letter.source_seq]:
                await self._forget(wanted, report, runs_of(seqs))
            for key in {letter.queue for letter in letters if not letter.source_seq}:
                # Their messages never entered the log, so only the letters have a seq.
                mine = [letter.seq for letter in letters if letter.queue == key and not letter.source_seq]
                buried = ForgetReport(report.log)
                await self._forget(ForgetFilter(queue=key), buried, runs_of(mine))
                report.letters += buried.messages + buried.letters
                report.copies += buried.copies

    async def _count(self, wanted: ForgetFilter, report: ForgetReport) -> None:
        """Count what matches. What replays made has the partition and the ids of its origin, so it counts as messages of the log."""
        if wanted.ranges is None:
            report.scheduled = (await self._scheduled.count(_scheduled(wanted))).count
            async for ids in self._operations_of(wanted):
                report.operations += len(ids)
        async for letters in self._letters(wanted):
            report.letters += len(letters)
        async for seqs in self._in_log(wanted):
            report.messages += len(seqs)
            report.name(runs_of(seqs))

    async def _in_log(self, wanted: ForgetFilter) -> AsyncIterator[list[Seq]]:
        """The seqs of messages of the log that match, page by page."""
        look = MessageFilter(
            queue=wanted.queue, partition=wanted.partition, transaction_id=wanted.transaction_id, trace_id=wanted.trace_id,
            limit=PAGE, preview_bytes=0, cleared=True,
        )  # fmt: skip
        while True:
            page = await self._store.messages(look, self._clock.now())
            if seqs := [message.seq for message in page.messages if _is_in(wanted, message.seq)]:
                yield seqs
            if page.after is None:
                return
            look = msgspec.structs.replace(look, after=page.after)

    async def _letters(self, wanted: ForgetFilter) -> AsyncIterator[list[FoundLetter]]:
        """The dead letters that match, look by look."""
        after: LetterPlace | None = FIRST_LETTER
        while after is not None:
            look = await self._store.letters_of_source(wanted, after)
            if letters := [letter for letter in look.letters if _is_in(wanted, letter.source_seq)]:
                yield letters
            after = look.after

    async def _operations_of(self, wanted: ForgetFilter) -> AsyncIterator[list[Id]]:
        """The ids of queued pushes to a partition that nobody performs now. What is in one is not looked at."""
        if wanted.partition is None or wanted.names != ["partition"]:
            return
        for status in _PATIENT:
            look = OperationFilter(
                tenant=wanted.queue.tenant, kind=OperationKind.PUSH, queue=wanted.queue.name, partition=wanted.partition, status=status
            )  # fmt: skip
            after: int | None = None
            while True:
                page = await self._operations.page(look, after, PAGE)
                yield [one.id for one in page.operations]
                if (after := page.after) is None:
                    break

    async def _forget_operations(self, wanted: ForgetFilter, report: ForgetReport) -> None:
        async for ids in self._operations_of(wanted):
            for id_ in ids:
                try:
                    await self._operations.cancel(wanted.queue.tenant, id_)
                except SkepError as error:
                    # It was performed meanwhile: then its messages are in the log.
                    if error.code not in (Code.OPERATION_NOT_PENDING, Code.OPERATION_NOT_FOUND):
                        raise
                else:
                    report.operations += 1


def _is_in(wanted: ForgetFilter, seq: int) -> bool:
    return wanted.ranges is None or any(first <= seq <= last for first, last in wanted.ranges)


def _scheduled(wanted: ForgetFilter) -> ScheduledFilter:
    return ScheduledFilter(
        tenant=wanted.queue.tenant, queue=wanted.queue.name, partition=wanted.partition, transaction_id=wanted.transaction_id,
        trace_id=wanted.trace_id,
    )  # fmt: skip
