"""Performing operations: a loop claims some and performs them, until none is left.

Operations of one claim are performed in one transaction. If it fails, each is performed by itself, so that a failing operation does not
hold up the others; only later operations of its partition wait. An operation that the store cannot take now is blocked, and keeps its
place without a time limit (I13). An operation ends as failed only when it can never be done, or has failed by its own fault for a long
time; its messages become dead letters. Each server has one loop; servers share the work by their claims.
"""

from __future__ import annotations

import asyncio
import os
import socket
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from skep.clock import MICROS_PER_SECOND, Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.announcer import Announcer
from skep.engine.encryption import Encryption
from skep.engine.push.patience import Patience
from skep.errors import Code, Outlook, SkepError, outlook
from skep.ids import IdMint, id_text
from skep.model import QueueKey, Token
from skep.model.operation import (
    Claimed,
    ClaimLimits,
    GivenBack,
    OperationKind,
    OperationLane,
    Performed,
    decode_result,
    encode_push,
    lane_of,
)
from skep.store.protocol.operations import OperationVerbs

Lease = tuple[QueueKey, Token]
OnEnded = Callable[[Counter[OperationKind], Iterable[Lease]], None]

FIRST_RATE = 100.0
"""The assumed rate, in operations per second, before any was performed."""
NEWEST_SHARE = 0.3

log = structlog.get_logger("skep.operations")


class NotPerformed(NamedTuple):
    """The reason why an operation was not performed."""

    code: Code
    reason: str


class Blocked(NamedTuple):
    """Operations that the store cannot take now: the tried one, and the others that would fail for the same reason."""

    operations: list[Claimed]
    failure: NotPerformed

    def concerns(self, other: Claimed) -> bool:
        """Whether another operation would fail for the same reason. STORE_BUSY concerns only operations of the same queue."""
        return self.failure.code is not Code.STORE_BUSY or self.operations[0].queue == other.queue


class Performer:
    """The loop that performs operations. It has a task only while it has work."""

    def __init__(
        self,
        store: OperationVerbs,
        clock: Clock,
        ids: IdMint,
        settings: EngineSettings,
        announcer: Announcer,
        on_ended: OnEnded,
        encryption: Encryption,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._settings = settings.operations
        self._create_queues = settings.create_queues_on_push
        self._limits = ClaimLimits(
            self._settings.claim_operations, self._settings.claim_messages, self._settings.claim_bytes
        )
        self._patience = Patience(
            self._settings.full_seconds,
            self._settings.fault_seconds,
            self._settings.backoff_seconds,
            self._settings.max_backoff_seconds,
        )
        self._announcer = announcer
        self._on_ended = on_ended
        self._encryption = encryption
        self._worker = f"{socket.gethostname()}:{os.getpid()}"
        self._woken = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._unsure: tuple[Token, list[Claimed]] | None = None
        self.held_up: Code | None = None
        """Why no operation can be performed now: the store refused a claim. None otherwise."""
        self.rate = FIRST_RATE
        self.completed: Counter[OperationKind] = Counter()
        self.failed: Counter[OperationKind] = Counter()

    @property
    def idle(self) -> bool:
        """Whether no operation is being performed."""
        return self._task is None

    def wake(self) -> None:
        """Start the loop, as there may be operations."""
        if not self._settings.drain or self._stopping:
            return
        self._woken = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish the operations under way."""
        self._stopping = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._woken and not self._stopping:
                self._woken = False
                while await self._next():
                    pass
        except SkepError as error:
            # The next look of `Operations` wakes the loop again.
            self.held_up = error.code if error.outlook is Outlook.LATER else None
            log.warning("operations cannot be performed just now", error=str(error))
        except Exception:
            log.error("performing operations failed unexpectedly", traceback=traceback.format_exc(limit=-8))
        finally:
            self._task = None

    async def _next(self) -> bool:
        """Claim and perform once; whether there were operations, or may be more."""
        if self._stopping:
            return False
        started = self._clock.steady()
        more = False
        if self._unsure is not None:
            token, claimed = self._unsure
        else:
            token = Token(bytes(self._ids.mint()))
            claim = await self._store.claim_operations(self._worker, token, self._limits, self._clock.now())
            claimed, more = claim.operations, claim.more
        self.held_up = None
        if not claimed:
            return more
        # If the store is lost meanwhile, the outcome is unknown. The claim is kept and tried again; its token makes sure that each
        # operation is performed once. A claim is kept also when a busy or full store does not take it back, so no try is lost.
        self._unsure = token, claimed
        try:
            await self._work(token, claimed)
        except SkepError as error:
            if error.outlook is not Outlook.LATER:
                self._unsure = None
            raise
        except Exception:
            self._unsure = None
            raise
        self._unsure = None
        elapsed = self._clock.steady() - started
        if elapsed > 0:
            self.rate += (len(claimed) * MICROS_PER_SECOND / elapsed - self.rate) * NEWEST_SHARE
        return True

    async def _work(self, token: Token, claimed: list[Claimed]) -> None:
        now = self._clock.now()
        worn_out = [one for one in claimed if self._is_worn_out(one, now)]
        if worn_out:
            tries = worn_out[0].tries - 1
            await self._give_up(token, worn_out, f"given up after {tries} tries: no server that had it ever came back")
        todo = [one for one in claimed if one not in worn_out]
        if not todo:
            return
        if len(todo) > 1:
            try:
                performed = await self._store.perform(token, todo, self._clock.now(), self._create_queues)
            except SkepError as error:
                if error.code is Code.STORE_UNAVAILABLE:
                    raise
                log.info("operations could not be performed together", operations=len(todo), error=str(error))
            except Exception as error:
                _told(error)
            else:
                self._done(todo, performed)
                if not performed.refused:
                    return
        await self._one_by_one(token, todo)

    def _is_worn_out(self, one: Claimed, now: Instant) -> bool:
        """Whether servers have died with this operation again and again for a long time, so that it must be the cause."""
        since = one.blocked_since(Code.INTERNAL, now)
        return one.exhausted and not self._patience.lasts(Code.INTERNAL, since, now)

    async def _one_by_one(self, token: Token, todo: Sequence[Claimed]) -> None:
        """Perform each operation in its own transaction, while the claim is fresh. No operation overtakes a failed one."""
        until = self._clock.steady() + seconds(min(one.timeout_seconds for one in todo)) // 2
        held: set[tuple[OperationLane, QueueKey, str]] = set()
        untried: list[Claimed] = []
        blocked: list[Blocked] = []
        for one in todo:
            place = lane_of(one.kind), one.queue, one.partition
            same = next((found for found in blocked if found.concerns(one)), None)
            if same is not None:
                same.operations.append(one)
            elif place in held or self._stopping or self._clock.steady() >= until:
                held.add(place)
                untried.append(one)
            else:
                done, failure = await self._alone(token, one)
                if failure is not None:
                    blocked.append(Blocked([one], failure))
                if not done:
                    held.add(place)
        for found in blocked:
            await self._block(token, *found)
        if untried:
            back = [GivenBack(one.position, Instant(0), untried=True) for one in untried]
            await self._store.give_back(token, back, self._clock.now())
            self._woken = True

    async def _alone(self, token: Token, one: Claimed) -> tuple[bool, NotPerformed | None]:
        """Perform one operation. Returns whether later ones of its partition may go on, and why the store cannot take it now."""
        try:
            performed = await self._store.perform(token, [one], self._clock.now(), self._create_queues)
        except SkepError as error:
            if error.code is Code.STORE_UNAVAILABLE:
                raise
            failure = NotPerformed(error.code, error.message)
        except Exception as error:
            failure = NotPerformed(Code.INTERNAL, _told(error))
        else:
            self._done([one], performed)
            if not performed.refused:
                return not performed.lost, None
            failure = NotPerformed(*performed.refused[one.position])
        if failure.code is Code.NOT_ENCRYPTED:
            try:
                sealed = await self._sealed(one)
            except SkepError as error:
                failure = NotPerformed(error.code, error.message)
            else:
                if sealed is not None:
                    return await self._alone(token, sealed)
        if outlook(failure.code) is Outlook.LATER:
            return False, failure
        return await self._failed(token, one, *failure), None

    async def _sealed(self, one: Claimed) -> Claimed | None:
        """The operation with its messages encrypted, as its queue was encrypted while it waited; None when they are already."""
        batch = one.batch
        sealed = await self._encryption.seal_batch(batch, {message.queue for message in batch.messages})
        if sealed is None:
            return None
        return msgspec.structs.replace(one, payload=encode_push(sealed, range(len(sealed.ids))))

    async def _failed(self, token: Token, one: Claimed, code: Code, reason: str) -> bool:
        """Retry a failed operation later, or give it up. Returns whether later ones of its partition may go on now."""
        now = self._clock.now()
        since = one.blocked_since(code, now)
        is_hopeless = outlook(code) is Outlook.NEVER
        if is_hopeless or (one.tries > one.max_retries and not self._patience.lasts(code, since, now)):
            return await self._give_up(token, [one], reason, code)
        retry_at = self._patience.retry_at(since, now)
        log.warning(
            "operation failed, and is tried again", **_described(one), code=code, error=reason,
            retry_seconds=(retry_at - now) / MICROS_PER_SECOND,
        )  # fmt: skip
        await self._store.give_back(token, [GivenBack(one.position, retry_at, reason, code, blocked_at=since)], now)
        return False

    async def _block(self, token: Token, blocked: Sequence[Claimed], failure: NotPerformed) -> None:
        """Give back operations that the store cannot take now. They lose no try, and keep their places."""
        now = self._clock.now()
        back = []
        for one in blocked:
            since = one.blocked_since(failure.code, now)
            retry_at = self._patience.retry_at(since, now)
            back.append(GivenBack(one.position, retry_at, failure.reason, failure.code, untried=True, blocked_at=since))
        log.warning(
            "operations are blocked: the store cannot take them now", operations=len(blocked), **_described(blocked[0]),
            code=failure.code, error=failure.reason,
        )  # fmt: skip
        await self._store.give_back(token, back, now)

    async def _give_up(self, token: Token, given_up: Sequence[Claimed], error: str, code: Code = Code.INTERNAL) -> bool:
        """End operations as failed; False when an operation must wait, as its messages cannot be encrypted now."""
        back = [GivenBack(one.position, None, error, code, payload=one.payload) for one in given_up]
        try:
            ended: list[list[int] | None] = [await self._store.give_back(token, back, self._clock.now())]
        except SkepError as refused:
            if refused.code is not Code.NOT_ENCRYPTED:
                raise
            ended = [await self._give_up_sealed(token, one, error, code) for one in given_up]
        ours = {position for positions in ended for position in positions or ()}
        for one in given_up:
            if one.position in ours:
                log.warning("operation failed for good", **_described(one), code=code, error=error)
                self._count(self.failed, [one])
        return None not in ended

    async def _give_up_sealed(self, token: Token, one: Claimed, error: str, code: Code) -> list[int] | None:
        """End an operation as failed, with encrypted messages in the dead letters; None when it must wait for encryption."""
        payload = one.payload
        if one.kind is OperationKind.PUSH:
            try:
                payload = (await self._sealed(one) or one).payload
            except msgspec.DecodeError:  # this may be the failure; then no message is buried
                pass
            except SkepError as failure:
                if failure.code is Code.STORE_UNAVAILABLE or failure.outlook is not Outlook.LATER:
                    raise
                await self._block(token, [one], NotPerformed(failure.code, failure.message))
                return None
        back = GivenBack(one.position, None, error, code, payload=payload)
        return await self._store.give_back(token, [back], self._clock.now())

    def _done(self, todo: Sequence[Claimed], performed: Performed) -> None:
        """Announce performed operations to waiting polls and timers, and count them."""
        done = [one for one in todo if one.position in performed.done]
        for one in done:
            if lane_of(one.kind) is OperationLane.PUSH:
                batch = one.batch
                due = [m.deliver_at for m in batch.messages if m.deliver_at is not None]
                self._announcer.pushed(batch, min(due, default=None))
            else:
                settlements = one.settlements
                results = decode_result(performed.done[one.position]).settled or []
                self._announcer.settled(settlements, results)
                self._announcer.died(settlements, results)
        self._count(self.completed, done)

    def _count(self, counter: Counter[OperationKind], ended: Sequence[Claimed]) -> None:
        kinds = Counter(one.kind for one in ended)
        counter.update(kinds)
        self._on_ended(kinds, {lease for one in ended for lease in _leases(one)})


def _leases(one: Claimed) -> set[Lease]:
    if lane_of(one.kind) is OperationLane.PUSH:
        return set()
    try:
        return {(settlement.queue, settlement.token) for settlement in one.settlements}
    except msgspec.DecodeError:  # this may be why it failed
        return set()


def _told(error: Exception) -> str:
    log.error("operation failed unexpectedly", traceback=traceback.format_exc(limit=-8))
    return f"it failed unexpectedly: {type(error).__name__}"


def _described(one: Claimed) -> dict[str, object]:
    return {
        "operation": id_text(one.id), "kind": one.kind.value, "queue": one.queue.name, "tenant": one.queue.tenant,
        "partition": one.partition, "tries": one.tries,
    }  # fmt: skip
