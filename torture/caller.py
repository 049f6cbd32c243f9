"""Calls over HTTP with the real client, each noted with its answer, in the words of the store.

A call without an answer, or with one after which it may have happened all the same, is noted without an answer. Ids of messages are
the server's, which only an answer tells; those of pushes without one are found out at the end, by their payloads (`torture.resolve`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar, cast

from msgspec import UNSET, Raw, structs

from skep.client import AsyncClient, calls, message_data
from skep.client.async_message import AsyncMessage
from skep.client.calls import PopOptions, read_pushed
from skep.client.exchange import OK, ApiCall, ApiResponse
from skep.client.outgoing import NewMessage as Outgoing
from skep.client.pushed import Pushed, Queued
from skep.client.reading import reader
from skep.client.retries import may_have_happened
from skep.clock import Instant, SystemClock
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint, parse_id
from skep.model import (
    ClearScope,
    Delivery,
    NewMessage,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    Renewal,
    RenewResult,
    Seq,
    SettleResult,
    SettleStatus,
    Start,
    StartMode,
    Token,
)
from skep.model.operation import LIVE, OperationStatus
from skep.model.transaction import Transaction, TransactionOutcome
from skep.wire.messages import Ack, AckResult, AckStatus, PopResponse, PushedMessage
from skep.wire.times import to_datetime, to_instant
from torture.history import Call
from torture.load_caller import OUTCOMES, Popped

T = TypeVar("T")

SLACK_US = 50_000
"""How far the server's time may be from ours: with PostgreSQL it is the database's."""
TIMEOUT_SECONDS = 15.0
LATER = object()
"""What is noted of a call that takes effect later than its answer: that it has none."""
MOST_LOOKS = 200
LOOK_SECONDS = 0.05


_both = reader(PopResponse)


class Caller:
    """One client of a server. ``once`` makes one request per call, ``again`` repeats what may be repeated, and waits for operations."""

    def __init__(self, urls: Sequence[str], name: str) -> None:
        self._urls = urls
        self._at = 0
        """The server that ``once`` asks: the next one, when this one cannot be reached."""
        self.name = name
        self.calls: list[Call] = []
        self.clock = SystemClock()
        self._mint = IdMint(self.clock)
        self._said: set[tuple[Token, int]] = set()
        self.begin: Callable[[Call], int] = lambda _: 0
        """Called before a call is made, with what is noted when there is no answer; it gives the call a number."""
        self.end: Callable[[int], None] = lambda _: None
        """Called when the call with the number is noted."""
        never = 10**9
        self.each = [
            AsyncClient(url, attempts=1, timeout_seconds=TIMEOUT_SECONDS, breaker_failures=never, retry_on_429=False)
            for url in urls
        ]
        self.again = AsyncClient(
            list(urls), attempts=6, timeout_seconds=TIMEOUT_SECONDS, breaker_failures=never, backoff_seconds=0.02,
            max_retry_delay=0.5, retry_on_429=False, queued_operation="poll",
        )  # fmt: skip

    async def close(self) -> None:
        for client in (*self.each, self.again):
            await client.close()

    @property
    def once(self) -> AsyncClient:
        return self.each[self._at]

    @property
    def url(self) -> str:
        return self._urls[self._at]

    async def note(
        self,
        verb: str,
        request: Any,
        asked: Awaitable[T],
        read: Callable[[T], Any],
        *,
        refusal: Any = None,
        repeats: bool = False,
        server: str | None = None,
    ) -> T | None:
        """Make a call and note it; None when it failed. If it can have done nothing, it is noted with the refusal, or not at all.

        Of a call that ``repeats`` itself nobody knows: an earlier try may have done what a later one was refused, and on another server, unless
        all tries ask the same ``server``.
        """
        if server is None and (len(self._urls) == 1 or not repeats):
            server = self.url
        call = structs.replace(self._begun(verb, request), server=server)
        number = self.begin(call)
        try:
            answer = await asked
        except SkepError as error:
            if error.code is Code.SERVER_UNREACHABLE:
                self._at = (self._at + 1) % len(self._urls)
            if repeats or may_have_happened(error):
                self.calls.append(call)
            elif refusal is not None:
                self._end(call, refusal)
            return None
        else:
            told = read(answer)
            if told is LATER:
                self.calls.append(call)
            else:
                self._end(call, told)
            return answer
        finally:
            self.end(number)

    def _begun(self, verb: str, request: Any, answer: Any = None) -> Call:
        """A call that begins, as it is noted when no answer comes."""
        now = Instant(self.clock.now() - SLACK_US)
        return Call(self.name, verb, time.monotonic_ns(), None, now, request, answer, Instant(2**62))

    def _end(self, call: Call, answer: Any) -> None:
        until = Instant(self.clock.now() + SLACK_US)
        self.calls.append(structs.replace(call, ended=time.monotonic_ns(), answer=answer, until=until))

    async def note_in_vain(self, batch: PushBatch, asked: Awaitable[object]) -> None:
        """A push that may never take effect, whatever becomes of the call: noted as refused."""
        call = self._begun("push", [batch], [refused(batch)])
        number = self.begin(call)
        with suppress(SkepError):
            await asked
        self._end(call, call.answer)
        self.end(number)

    def mark(self, verb: str, request: Any) -> None:
        """Note something that is no call, at this moment."""
        self._end(self._begun(verb, request), None)

    def mint_ids(self, count: int) -> list[Id]:
        """Ids that stand for the server's until those are known."""
        return self._mint.mint_many(count)

    # pushes

    async def push_in_vain(self, queue: QueueKey, messages: Sequence[NewMessage]) -> None:
        """A push that the server has to refuse."""
        batch = PushBatch(list(messages), self.mint_ids(len(messages)))
        await self.note_in_vain(batch, self.once.push(wire_name(queue), [outgoing(message) for message in messages]))

    async def push(
        self, queue: QueueKey, messages: Sequence[NewMessage], *, repeats: bool = False, buffered: bool = False
    ) -> Pushed | None:
        """One push; with ``repeats`` the client repeats it until it is answered, which needs transaction ids."""
        client = self.again if repeats else self.once
        asked = client.push(
            wire_name(queue),
            [outgoing(message) for message in messages],
            durability="buffered" if buffered else "stored",
        )
        batch = PushBatch(list(messages), self.mint_ids(len(messages)))
        answer = await self.note(
            "push",
            [batch],
            asked,
            lambda pushed: [told(batch, pushed.messages)],
            refusal=[refused(batch)],
            repeats=repeats,
        )
        if answer is not None and not buffered and _is_accepted(self.calls[-1].answer[0]):
            self.calls[-1] = structs.replace(self.calls[-1], verb="accept", answer=None)
            if answer.queued is not None:
                await self._follow(batch, answer.queued)
        return answer

    async def _follow(self, batch: PushBatch, queued: Queued) -> None:
        """Look at the operations of a push until they have ended, and note what became of its messages."""

        async def ended() -> dict[Id, PushResult]:
            found: dict[Id, PushResult] = {}
            for part in queued.parts:
                places = part.items or range(len(batch.ids))
                results = await self._results(part.operation_id)
                found.update((batch.ids[place], one) for place, one in zip(places, results, strict=False))
            return found

        await self.note("operation", batch, ended(), lambda found: found)

    async def _results(self, operation_id: str) -> list[PushResult]:
        found = await self.again.operation(operation_id)
        for _ in range(MOST_LOOKS):
            if found.status not in LIVE:
                break
            await asyncio.sleep(LOOK_SECONDS)
            found = await self.again.operation(operation_id)
        if found.status is not OperationStatus.COMPLETED:
            raise SkepError(found.code or Code.OPERATION_NOT_PENDING, f"the operation is {found.status}")
        messages = read_pushed(ApiResponse(OK, bytes(found.result))).messages
        return [
            PushResult(one.status, parse_id(one.message_id), None if one.seq is None else Seq(one.seq))
            for one in messages
        ]

    async def transact(
        self, acked: Sequence[AsyncMessage], delivered: Sequence[Delivery], to: QueueKey, messages: Sequence[NewMessage]
    ) -> None:
        """Ack messages and push others, together or not at all."""
        transaction = self.once.transaction()
        transaction.ack(*acked)
        transaction.push(wire_name(to), [outgoing(message) for message in messages])
        batch = PushBatch(list(messages), self.mint_ids(len(messages)))
        request = [Transaction([one.settlement() for one in delivered], batch)]
        nothing = TransactionOutcome(False, [], PushOutcome([], {}))

        def read(_: None) -> list[TransactionOutcome]:
            committed = transaction.committed
            assert committed is not None
            results = [self._result(one, result) for one, result in zip(delivered, committed.results, strict=False)]
            return [TransactionOutcome(True, results, told(batch, committed.messages))]

        await self.note("transact", request, transaction.commit(), read, refusal=[nothing])

    # pops

    async def pop(
        self,
        queue: QueueKey,
        group: str,
        *,
        keys: Callable[[str], QueueKey],
        namespace: str | None = None,
        **options: Any,
    ) -> list[tuple[AsyncMessage, Delivery]]:
        """Lease messages of a queue, or of all queues of a namespace."""
        request = PopRequest(
            queue, group=group, batch=options.get("batch", 1), partition=options.get("partition"),
            lease_seconds=options.get("lease_seconds"), auto_ack=options.get("auto_ack", False),
        )  # fmt: skip
        if namespace is None:
            asked = self.once.pop(wire_name(queue), group=group, **options)
        else:
            asked = self.once.pop_matching(namespace=namespace, group=group, **options)
        found: list[tuple[AsyncMessage, Delivery]] = []

        def read(messages: list[AsyncMessage]) -> list[PopResult]:
            found.extend((message, delivery_of(message, keys(message.queue))) for message in messages)
            return [PopResult([delivery for _, delivery in found])]

        await self.note("pop", [request], asked, read)
        return found

    async def go_on(
        self, queue: QueueKey, group: str, held: Sequence[Popped], *, keys: Callable[[str], QueueKey], **options: Any
    ) -> list[tuple[AsyncMessage, Delivery]] | None:
        """Ack messages with the pop of the next ones, noted as the two calls that it stands for; None when it failed."""
        said = [(message, message_data.completed(message)) for message, _ in held]
        short = message_data.short(said)
        asked = calls.pop(wire_name(queue), cast("PopOptions", {"group": group, **options}), short.sent)
        begun: list[asyncio.Future[PopResponse]] = []
        deliveries = [delivery for _, delivery in held]
        found: list[tuple[AsyncMessage, Delivery]] = []

        def settled(both: PopResponse) -> Any:
            results = short.results(both.results or [])
            message_data.noted(said, results, None)
            # Others may have a part of a lease; then nobody was told which of its messages were completed.
            return LATER if short.is_open(both.results or []) else self._settled(deliveries, results)

        def popped(both: PopResponse) -> list[PopResult]:
            messages = message_data.held([AsyncMessage.of(one, self.once) for one in both.messages], self.once)
            found.extend((message, delivery_of(message, keys(message.queue))) for message in messages)
            return [PopResult([delivery for _, delivery in found])]

        async def first() -> PopResponse:
            begun.append(asyncio.ensure_future(self.once.run(ApiCall(asked.request, _both))))
            return await begun[0]

        async def second() -> PopResponse:
            return await begun[0]

        # The first begins the call, which takes its first step once both are noted.
        request = PopRequest(
            queue, group=group, batch=options.get("batch", 1), lease_seconds=options.get("lease_seconds")
        )
        popping = self.note("pop", [request], first(), popped)
        settling = self.note("settle", [one.settlement() for one in deliveries], second(), settled)
        both, _ = await asyncio.gather(popping, settling)
        self._said.update((delivery.token, delivery.seq) for delivery in deliveries)
        return None if both is None else found

    # settlements

    async def settle(self, said: Sequence[tuple[AsyncMessage, Delivery, AckStatus]], *, repeats: bool = True) -> None:
        """Settle messages, each with its own outcome."""
        client = self.again if repeats else self.once
        request = [delivery.settlement(OUTCOMES[status]) for _, delivery, status in said]
        acks = [Ack(message.lease_id, delivery.seq, status) for message, delivery, status in said]

        def read(results: list[AckResult]) -> Any:
            return self._settled([delivery for _, delivery, _ in said], results)

        await self.note("settle", request, client.settle(acks), read, repeats=repeats)
        self._said.update((delivery.token, delivery.seq) for _, delivery, _ in said)

    async def ack(self, held: Sequence[tuple[AsyncMessage, Delivery]]) -> None:
        """Ack messages as users do; whole leases are acked by their name."""
        request = [delivery.settlement() for _, delivery in held]

        def read(results: list[AckResult]) -> list[SettleResult]:
            return [self._result(one, result) for (_, one), result in zip(held, results, strict=False)]

        await self.note("settle", request, self.again.ack(*(message for message, _ in held)), read, repeats=True)
        self._said.update((delivery.token, delivery.seq) for _, delivery in held)

    def _settled(self, deliveries: Sequence[Delivery], results: Sequence[AckResult]) -> Any:
        """The results of acks; `LATER` when they were queued."""
        if any(result.status is SettleStatus.QUEUED for result in results):
            return LATER
        return [self._result(one, result) for one, result in zip(deliveries, results, strict=False)]

    def _result(self, delivery: Delivery, result: AckResult) -> SettleResult:
        """The result; a repeat counts as one only of what was said in an earlier call, as a client repeats itself, too."""
        repeated = result.repeated is True and (delivery.token, delivery.seq) in self._said
        return SettleResult(result.status, result.code, repeated=repeated)

    async def renew(self, message: AsyncMessage, delivery: Delivery, lease_seconds: float) -> None:
        request = Renewal(
            queue=delivery.queue, partition=delivery.partition, token=delivery.token, lease_seconds=lease_seconds,
            group=delivery.group,
        )  # fmt: skip
        asked = self.once.renew(message, lease_seconds=lease_seconds)
        await self.note("renew", [request], asked, lambda results: [RenewResult(_instant(results[0].lease_deadline))])

    async def release(self, message: AsyncMessage, delivery: Delivery) -> None:
        request = (delivery.queue, delivery.group, delivery.partition, delivery.token)
        await self.note("release", request, self.once.release(message.lease_id), lambda _: None)

    # by hand

    async def seek(self, queue: QueueKey, group: str, start: Start) -> None:
        to: Any = {StartMode.ALL: "beginning", StartMode.NEW: "end"}.get(start.mode, start.value)
        if start.mode is StartMode.TIME:
            to = to_datetime(start.value)
        await self.note("seek", (queue, group, start), self.once.seek(wire_name(queue), group, to), lambda _: None)

    async def clear(self, queue: QueueKey, scope: ClearScope) -> None:
        asked = self.once.clear(wire_name(queue), scope=scope)
        await self.note("clear", (queue, scope), asked, lambda _: None)

    async def delete_group(self, queue: QueueKey, group: str) -> None:
        asked = self.once.delete_group(wire_name(queue), group)
        await self.note("delete_group", (queue, group), asked, lambda _: None)

    async def delete_message(self, queue: QueueKey, seq: int) -> None:
        asked = self.once.delete_message(wire_name(queue), seq)
        await self.note("delete_message", (queue, seq), asked, lambda _: None)

    async def forget(self, queue: QueueKey, seq: int) -> None:
        await self.note("forget_message", (queue, seq), self.once.forget(wire_name(queue), [seq]), lambda _: None)


def wire_name(queue: QueueKey) -> str:
    """The queue's name for the server: the history tells the lives of a remade queue apart by a number after a #."""
    return queue.name.partition("#")[0]


def outgoing(message: NewMessage) -> Outgoing:
    return Outgoing(
        Raw(message.payload),
        partition=message.partition,
        transaction_id=message.transaction_id,
        deliver_at=UNSET if message.deliver_at is None else to_datetime(message.deliver_at),
    )


def refused(batch: PushBatch) -> PushOutcome:
    return PushOutcome([PushResult(PushStatus.REFUSED, id_) for id_ in batch.ids], {})


def _is_accepted(outcome: PushOutcome) -> bool:
    """Whether a push was accepted for later instead of stored: queued, or spooled while the database is away."""
    return any(result.status in (PushStatus.QUEUED, PushStatus.BUFFERED) for result in outcome.results)


def told(batch: PushBatch, messages: Sequence[PushedMessage]) -> PushOutcome:
    """The outcome of a push. The batch takes the ids of the server, but for duplicates, whose ids are another message's."""
    results = []
    for place, message in enumerate(messages):
        id_ = parse_id(message.message_id) if message.message_id else batch.ids[place]
        if message.status is not PushStatus.DUPLICATE and place < len(batch.ids):
            batch.ids[place] = id_
        results.append(PushResult(message.status, id_, None if message.seq is None else Seq(message.seq)))
    return PushOutcome(results, {})


def delivery_of(message: AsyncMessage, queue: QueueKey) -> Delivery:
    return Delivery(
        queue, message.group, message.partition, Seq(message.seq), parse_id(message.id), message.transaction_id,
        parse_id(message.trace_id), None, message.content_type, message.payload, message.priority,
        to_instant(message.created_at), message.attempt, Token(message.lease_id.encode()),
        to_instant(message.lease_deadline),
    )  # fmt: skip


def _instant(value: datetime | None) -> Instant | None:
    return None if value is None else to_instant(value)
