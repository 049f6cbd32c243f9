"""Schedules: each firing pushes one message, although every server of the store tries.

Every server knows every schedule and tries at its time. A receipt, named after the schedule and the instant, is stored with the message
and lets only one server through. After a time without servers, only the last missed firing is made up for. Firings before the app was
applied are not.
"""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import structlog
from msgspec import Struct

from skep.apps.catalogue import Catalogue
from skep.apps.compiled import CompiledApp, DeclaredSchedule
from skep.apps.firings import as_datetime, first_after, last_until
from skep.clock import Clock, Instant, seconds
from skep.engine import Engine
from skep.errors import SkepError
from skep.model import NewMessage, QueueKey
from skep.model.record import Receipt, ReceiptKey
from skep.spec import apply_mapping

RETRY_SECONDS = 1.0
RECEIPT_MARGIN_SECONDS = 7 * 86_400.0
"""How long a receipt lives after the firing after the next."""

LONGEST_SLEEP_SECONDS = 10.0
"""Schedules look at the clock this often, to see whether it was put back."""

SCOPE_CHARACTERS = 255

log = structlog.get_logger("skep.schedules")

Name = tuple[str, str]


class NextFiring(Struct):
    """A schedule and its next firing; ``try_at`` is later than ``due`` when a try has failed."""

    declared: DeclaredSchedule
    due: Instant | None
    try_at: Instant | None


class Schedules:
    """All schedules of all applied apps."""

    def __init__(self, engine: Engine, catalogue: Catalogue, clock: Clock) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._clock = clock
        self._waiting: dict[Name, NextFiring] = {}
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._firing = False
        catalogue.on_change(self._changed.set)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is due and nothing is being pushed: what tests wait for after they moved the clock."""
        earliest = self.next_at
        due = earliest is not None and earliest <= self._clock.now()
        return not (self._firing or due or self._changed.is_set())

    def start(self) -> None:
        """Begin to push."""
        self._changed.set()
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Push no more. A push under way is finished by the engine or not at all; its receipt goes with it."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def _run(self) -> None:
        latest = self._clock.now()
        while True:
            if self._clock.now() < latest:
                # The clock was put back: what was the next firing then is far away now.
                self._waiting.clear()
                self._changed.set()
            latest = self._clock.now()
            if self._changed.is_set():
                self._changed.clear()
                self._adopt()
            self._firing = True
            try:
                now = self._clock.now()
                for waiting in list(self._waiting.values()):
                    if waiting.try_at is not None and waiting.try_at <= now:
                        await self._fire(waiting)
            finally:
                self._firing = False
            await self._sleep()

    async def _sleep(self) -> None:
        """Until the next firing, or until the apps change; not for long, as the clock may be put back."""
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._changed.wait())]
        earliest = self.next_at
        if earliest is not None:
            longest = Instant(self._clock.now() + seconds(LONGEST_SLEEP_SECONDS))
            waits.append(asyncio.create_task(self._clock.sleep_until(min(earliest, longest))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @property
    def next_at(self) -> Instant | None:
        """The time of the next push, or of the next try."""
        return min((one.try_at for one in self._waiting.values() if one.try_at is not None), default=None)

    def _adopt(self) -> None:
        """Take over the catalogue's schedules. An unchanged schedule keeps its next firing."""
        found: dict[Name, NextFiring] = {}
        for app in self._catalogue.apps.values():
            for name, declared in app.schedules.items():
                known = self._waiting.get((app.name, name))
                if known is not None and _same_times(known.declared, declared):
                    found[app.name, name] = msgspec.structs.replace(known, declared=declared)
                else:
                    due = self._begin(app, declared)
                    found[app.name, name] = NextFiring(declared, due, due)
        self._waiting = found

    def _begin(self, app: CompiledApp, declared: DeclaredSchedule) -> Instant | None:
        """The last firing if it came after the app was applied: its receipt tells whether it was missed. Else the next one."""
        now = self._clock.now()
        last = last_until(declared.spec, now)
        if last is not None and last > app.applied_at:
            return last
        return first_after(declared.spec, now)

    async def _fire(self, waiting: NextFiring) -> None:
        due, declared = waiting.due, waiting.declared
        assert due is not None
        try:
            await self._push(declared, due)
        except SkepError as error:
            following = first_after(declared.spec, due)
            retry_at = Instant(self._clock.now() + seconds(RETRY_SECONDS))
            if error.retryable and (following is None or retry_at < following):
                waiting.try_at = retry_at
                return
            log.error(
                "a scheduled message was not pushed",
                app=declared.app, schedule=declared.name, due=as_datetime(due).isoformat(), code=error.code,
                error=error.message,
            )  # fmt: skip
        except Exception as error:  # one schedule must not end the others
            log.error(
                "a schedule failed unexpectedly", app=declared.app, schedule=declared.name, error=repr(error)[:500]
            )
        # Of the firings that were missed while this one failed, or while the process stood still, only the last is made up for.
        now = self._clock.now()
        last = last_until(declared.spec, now)
        if last is None or last <= due:
            last = first_after(declared.spec, max(now, due))
        waiting.due = waiting.try_at = last

    async def _push(self, declared: DeclaredSchedule, due: Instant) -> None:
        fields = apply_mapping(declared.message, {"now": as_datetime(due)})
        message = NewMessage(QueueKey(declared.spec.queue), msgspec.json.encode(fields))
        key = ReceiptKey(_scope(declared), str(due))
        outcome = await self._engine.push([message], receipt=Receipt(key, b"null", self._expiry(declared, due)))
        if outcome.refused:
            [result] = outcome.results
            raise SkepError(result.code, result.reason or "refused") if result.code else AssertionError(result)
        if outcome.recorded is None:
            log.info("pushed on schedule", app=declared.app, schedule=declared.name, due=as_datetime(due).isoformat())

    def _expiry(self, declared: DeclaredSchedule, due: Instant) -> Instant:
        """Long after anyone could take this firing for the last one."""
        end = due
        for _ in range(2):
            end = first_after(declared.spec, end) or end
        return Instant(max(end, self._clock.now()) + seconds(RECEIPT_MARGIN_SECONDS))


def _scope(declared: DeclaredSchedule) -> str:
    """The scope of a schedule's receipts; two long names together are longer than a scope may be."""
    scope = f"schedule:{declared.app}.{declared.name}"
    if len(scope) <= SCOPE_CHARACTERS:
        return scope
    return f"schedule:{hashlib.sha256(scope.encode()).hexdigest()}"


def _same_times(one: DeclaredSchedule, other: DeclaredSchedule) -> bool:
    return (one.spec.cron, one.spec.timezone) == (other.spec.cron, other.spec.timezone)
