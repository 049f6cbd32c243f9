"""Scheduled (delayed) messages: listing them, and changing them until they are due. Reached as ``engine.scheduled``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from skep.clock import Clock, Instant
from skep.config import MEBIBYTE, Limits
from skep.engine import validate
from skep.engine.chores import Chores
from skep.engine.encryption import Encryption
from skep.engine.inflight import InFlight
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import SEALED_TYPE, QueueKey
from skep.model.scheduled import (
    MARK_MAX,
    Change,
    Changed,
    ScheduledFilter,
    ScheduledMessage,
    ScheduledPage,
    ScheduledPosition,
)
from skep.store.protocol.scheduled import ScheduledStore

PREVIEWED_BYTES = 16 * MEBIBYTE
"""How many bytes of sealed payloads are opened for the previews of one page; further payloads stay sealed."""


class Rescheduled(msgspec.Struct, frozen=True):
    """How many scheduled messages were changed, or would be; ``changed`` names the first of them.

    Messages that were scheduled or moved after the ``mark`` were left alone.
    """

    count: int
    mark: int
    changed: list[Changed]


@dataclass(eq=False)
class Scheduled:
    """Messages that wait for their time."""

    _store: ScheduledStore
    _clock: Clock
    _in_flight: InFlight
    _limits: Limits
    _encryption: Encryption
    _chores: Chores
    _wake: Callable[[QueueKey], None]
    """Called for queues whose log got messages."""

    async def page(
        self,
        wanted: ScheduledFilter,
        *,
        after: ScheduledPosition | None = None,
        limit: int = 100,
        preview_bytes: int | None = None,
    ) -> ScheduledPage:
        """A page in the order of time; it may be short and not the last."""
        with self._in_flight:
            self._check(wanted)
            validate.check_page(limit, self._limits)
            page = await self._store.page(wanted, after, limit, preview_bytes)
            return ScheduledPage(await self._opened(page.messages, preview_bytes), page.after)

    async def message(self, key: QueueKey, id_: Id) -> ScheduledMessage:
        """One message with its whole payload; MESSAGE_NOT_FOUND when none waits under this id."""
        wanted = ScheduledFilter(tenant=key.tenant, queue=key.name, ids=[id_])
        found = (await self.page(wanted, limit=1)).messages
        if not found:
            raise SkepError(
                Code.MESSAGE_NOT_FOUND,
                f"no message of {key.name!r} is scheduled under this id; it may have entered the log",
            )
        return found[0]

    async def count(self, wanted: ScheduledFilter) -> Rescheduled:
        """How many messages a change would affect now, and the mark that limits a later change to these messages."""
        with self._in_flight:
            self._check(wanted)
            marked = await self._marked(wanted)
            count, after = 0, None
            while True:
                part = await self._store.count(marked, after)
                count += part.count
                if (after := part.after) is None:
                    return Rescheduled(count, marked.mark or 0, [])

    async def change(self, wanted: ScheduledFilter, what: Change, deliver_at: Instant | None = None) -> Rescheduled:
        """Cancel, run, forget, or move to ``deliver_at`` all matching messages that are scheduled by now, in bounded transactions.

        If one transaction fails, the changes of earlier ones stay; the error's details have their number.
        """
        with self._in_flight:
            self._check(wanted)
            _check_time(what, deliver_at)
            marked = await self._marked(wanted)
            count, named = 0, list[Changed]()
            after: ScheduledPosition | None = None
            while True:
                now = self._clock.now()
                try:
                    step = await self._store.change(marked, what, deliver_at, after, self._limits.replay_batch, now)
                except SkepError as error:
                    raise SkepError(error.code, error.message, **{**error.details, "changed": count}) from error
                count += len(step.changed)
                named += step.changed[: self._limits.replays_listed - len(named)]
                if step.changed:
                    self._tell(wanted.key, what, deliver_at, now)
                if (after := step.after) is None:
                    return Rescheduled(count, marked.mark or 0, named)

    def _tell(self, key: QueueKey, what: Change, deliver_at: Instant | None, now: Instant) -> None:
        if what in (Change.RUN, Change.MOVE):
            self._chores.pushed(key, now, deliver_at)
        if what is Change.RUN:
            self._wake(key)

    async def _marked(self, wanted: ScheduledFilter) -> ScheduledFilter:
        """The filter with a mark, so that messages scheduled meanwhile do not match."""
        if wanted.mark is not None:
            return wanted
        return msgspec.structs.replace(wanted, mark=await self._store.mark(wanted.key))

    def _check(self, wanted: ScheduledFilter) -> None:
        validate.check_name(wanted.tenant, "tenant")
        if wanted.queue is not None:
            validate.check_name(wanted.queue)
        validate.check_texts((wanted.partition, wanted.transaction_id))
        if wanted.ids is not None and len(wanted.ids) > self._limits.page:
            raise SkepError(Code.INVALID_REQUEST, f"one call names at most {self._limits.page} ids")
        if wanted.mark is not None and not 0 <= wanted.mark <= MARK_MAX:
            raise SkepError(Code.INVALID_REQUEST, "the mark is not one that a dry run gave")

    async def _opened(self, found: list[ScheduledMessage], preview_bytes: int | None) -> list[ScheduledMessage]:
        """The messages with opened previews: a sealed payload is read and opened whole, then cut."""
        room, shown = PREVIEWED_BYTES, []
        for one in found:
            if one.content_type != SEALED_TYPE:
                shown.append(one)
                continue
            whole = one
            if len(one.payload) < one.payload_bytes:
                whole = (
                    await self._whole(one) if one.payload_bytes <= room else msgspec.structs.replace(one, payload=b"")
                )
                room -= one.payload_bytes
            shown.append(await self._open(whole, preview_bytes))
        return shown

    async def _whole(self, one: ScheduledMessage) -> ScheduledMessage:
        wanted = ScheduledFilter(tenant=one.queue.tenant, queue=one.queue.name, ids=[one.id])
        found = (await self._store.page(wanted, None, 1, None)).messages
        return found[0] if found else msgspec.structs.replace(one, payload=b"")

    async def _open(self, one: ScheduledMessage, preview_bytes: int | None) -> ScheduledMessage:
        """The opened payload and content type; an empty payload and `SEALED_TYPE` when it cannot be opened."""
        try:
            await self._encryption.prepare([one])
            payload, content_type = self._encryption.open(one, None)
        except SkepError:
            return msgspec.structs.replace(one, payload=b"")
        return msgspec.structs.replace(
            one, payload=payload[:preview_bytes], payload_bytes=len(payload), content_type=content_type
        )


def _check_time(what: Change, deliver_at: Instant | None) -> None:
    if (what is Change.MOVE) != (deliver_at is not None):
        raise SkepError(Code.INVALID_TIME, "a message is moved to a time, and nothing else needs one")
    if deliver_at is not None and not 0 <= deliver_at <= validate.INSTANT_MAX:
        raise SkepError(Code.INVALID_TIME, "deliver_at is out of range")
