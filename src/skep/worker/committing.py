"""Commands of the built-in entity store: events, state, receipt, follow-up messages and the ack are one transaction.

A batch is decided in memory, in the order of the messages, and committed whole. When another worker was faster, the
store refuses the batch: it is read and decided again. A batch that stays refused is halved until only the refused messages are left.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random

from msgspec import Raw, Struct, structs

from skep.client.exchange import ApiCall, Request
from skep.client.lease_acks import settled, shortened
from skep.client.message_data import word_of
from skep.client.outgoing import carry, encode
from skep.client.reading import reader
from skep.client.tracing import begin_publishing, sending, sent, settling_popped, within, working_on_all
from skep.client.worker.failing import FailedMessage
from skep.client.worker.source import Source
from skep.clock import Clock
from skep.entities import PERMANENT, Accepted, Decision, Snapshot, accept, decide, encoded, snapshot
from skep.entities.inputs import Fields
from skep.errors import Code, SkepError
from skep.spec import off_loop_in_turns
from skep.spec.allowance import Steps
from skep.wire.entities import (
    EffectItem,
    EventItem,
    ReceiptItem,
)
from skep.wire.messages import (
    AckResult,
    AckStatus,
    PoppedMessage,
    PushItem,
    TransactionRequest,
    TransactionResponse,
)
from skep.worker.acks import LOST, completed, given_up, is_hopeless, refused
from skep.worker.claims import Claims
from skep.worker.plan import Plan

SCOPE = "command"
RECEIPT_SECONDS = 30 * 86_400.0
TRIES = 3
TRIES_ALONE = 30
"""How often a batch, or a single message, is decided again because another worker was faster."""
PAUSE_SECONDS = 0.01
"""The longest pause before the second try; it grows with each."""
READ_AT_ONCE = 4_000
"""Entities and receipts of one request."""
MANY = 100
"""More commands than this are evaluated in the thread at once: in the loop they would run out of their allowance, and be begun twice."""

_CHANGED = frozenset({Code.ENTITY_CHANGED, Code.RECEIPT_EXISTS})
_committed = reader(TransactionResponse)

log = logging.getLogger("skep.worker")


class Prepared(Struct, frozen=True):
    """A message prepared without its entity, or the reason why it cannot be done at all."""

    message: PoppedMessage
    fields: Fields
    accepted: Accepted | None
    error: SkepError | None


class Known(Struct, frozen=True):
    """The known contents of the store: entities by id, and the messages that have a receipt."""

    entities: dict[str, Snapshot]
    done: set[str]


class Committing:
    """The commands of one queue."""

    def __init__(self, plan: Plan, clock: Clock, claims: Claims, random: Random) -> None:
        assert plan.entity is not None
        assert plan.spec.map_to is not None
        self._plan = plan
        self._entity = plan.entity
        self._command = plan.spec.map_to.command
        self._clock = clock
        self._claims = claims
        self._random = random

    async def run(self, source: Source, messages: Sequence[PoppedMessage]) -> None:
        """Run the commands of messages, and settle each message. SkepError when the server cannot be reached: their leases then run out."""
        with working_on_all(source.client.settings.urls[0], messages):
            await self._run(source, messages)

    async def _run(self, source: Source, messages: Sequence[PoppedMessage]) -> None:
        prepared = await off_loop_in_turns(lambda: self._all_prepared(messages), is_large=len(messages) > MANY)
        try:
            await self._commit(source, prepared)
        except SkepError as error:
            if is_hopeless(error):
                raise
            # What was refused may be done already: then only the answer was lost, and with it all acks at once.
            done = await self._done(source, [one.message.id for one in prepared if one.accepted is not None])
            await asyncio.gather(
                *(source.settle(one.message, completed(one.message)) for one in prepared if one.message.id in done)
            )
            await self._commit_parts(source, [one for one in prepared if one.message.id not in done], set())

    def _all_prepared(self, messages: Sequence[PoppedMessage]) -> Steps[list[Prepared]]:
        prepared = []
        for message in messages:
            prepared.append(self._prepared(message))
            yield
        return prepared

    def _prepared(self, message: PoppedMessage) -> Prepared:
        fields: Fields = {}
        try:
            fields = self._plan.fields(message)
            input_ = self._plan.mapped(fields)  # which has held it against the command's input
            return Prepared(message, fields, accept(self._entity, self._command, input_, checked=True), None)
        except SkepError as error:
            return Prepared(message, fields, None, error)

    async def _commit(self, source: Source, prepared: Sequence[Prepared], tries: int = TRIES) -> None:
        ids = {one.accepted.id for one in prepared if one.accepted is not None}
        async with self._claims.all_of({(source.tenant, self._entity.name, id_) for id_ in ids}):
            for left in range(tries - 1, -1, -1):
                deciding = partial(self._decided, prepared, await self._known(source, prepared))
                try:
                    decided = await off_loop_in_turns(deciding, is_large=len(prepared) > MANY)
                    word, messages = word_of(decided.acknowledgments), [one.message for one in prepared]
                    with settling_popped(source.client.settings.urls[0], word, messages):
                        results = await _committed_results(source, decided)
                    _tell(prepared, decided, results)
                    return
                except SkepError as error:
                    if error.code not in _CHANGED or not left:
                        raise
                # Another worker was faster, and may be again if both go on at once.
                await asyncio.sleep(self._random.random() * PAUSE_SECONDS * (tries - left))

    async def _commit_parts(self, source: Source, prepared: Sequence[Prepared], ended: set[str]) -> None:
        """Halve a refused batch, until only messages are left that cannot be done. ``ended`` are leases that have ended."""
        prepared = [one for one in prepared if one.message.lease_id not in ended]
        if not prepared:
            return
        try:
            await self._commit(source, prepared, TRIES_ALONE if len(prepared) == 1 else TRIES)
        except SkepError as error:
            if is_hopeless(error):
                raise
            if len(prepared) == 1:
                await self._refused(source, prepared[0].message, error, ended)
                return
            half = len(prepared) // 2
            await self._commit_parts(source, prepared[:half], ended)
            await self._commit_parts(source, prepared[half:], ended)

    async def _refused(self, source: Source, message: PoppedMessage, error: SkepError, ended: set[str]) -> None:
        if error.code in LOST:
            log.warning("a lease was lost: seq %d of %s comes again", message.seq, self._plan.queue)
            ended.add(message.lease_id)
            return
        ack = refused(message, error)
        await source.settle(message, ack, FailedMessage(message, str(error)))
        if ack.status is AckStatus.FAILED and self._plan.ordered:
            ended.add(message.lease_id)

    async def _known(self, source: Source, prepared: Sequence[Prepared]) -> Known:
        ids = list(dict.fromkeys(one.accepted.id for one in prepared if one.accepted is not None))
        keys = [one.message.id for one in prepared if one.accepted is not None]
        known = Known({}, set())
        step = READ_AT_ONCE // 2
        for start in range(0, max(len(ids), len(keys)), step):
            asked_ids, asked_keys = ids[start : start + step], keys[start : start + step]
            found = await source.client.read_entities(
                [(self._entity.name, id_) for id_ in asked_ids], [(SCOPE, key) for key in asked_keys]
            )
            for id_, view in zip(asked_ids, found.entities, strict=True):
                if view is not None:
                    known.entities[id_] = snapshot(self._entity, view.version, bytes(view.state))
            known.done.update(key for key, view in zip(asked_keys, found.receipts, strict=True) if view is not None)
        return known

    async def _done(self, source: Source, keys: Sequence[str]) -> set[str]:
        """Which messages have a receipt. Their entities are not asked for: those may be what was too much."""
        done: set[str] = set()
        for start in range(0, len(keys), READ_AT_ONCE):
            asked = keys[start : start + READ_AT_ONCE]
            found = await source.client.read_entities([], [(SCOPE, key) for key in asked])
            done.update(key for key, view in zip(asked, found.receipts, strict=True) if view is not None)
        return done

    def _decided(self, prepared: Sequence[Prepared], known: Known) -> Steps[TransactionRequest]:
        """The decisions for a batch: each message sees the effects of the earlier ones."""
        entities = dict(known.entities)
        whole = TransactionRequest(acknowledgments=[], items=[], effects=[], receipts=[])
        now = self._clock.now()
        for one in prepared:
            yield
            message = one.message
            if message.id in known.done:
                whole.acknowledgments.append(completed(message))
            elif one.accepted is None:
                assert one.error is not None
                whole.acknowledgments.append(given_up(message, one.error))
            else:
                try:
                    decision = decide(one.accepted, entities.get(one.accepted.id), now)
                    parts = self._parts(one, decision)
                except SkepError as error:
                    if error.code not in PERMANENT:
                        raise
                    whole.acknowledgments.append(given_up(message, error))
                    continue
                effect, receipt, items = parts
                entities[decision.id] = decision.after
                whole.acknowledgments.append(completed(message))
                if effect is not None:
                    whole.effects.append(effect)
                whole.receipts.append(receipt)
                whole.items.extend(items)
        return whole

    def _parts(self, one: Prepared, decision: Decision) -> tuple[EffectItem | None, ReceiptItem, list[PushItem]]:
        message = one.message
        items = self._plan.pushes(message, one.fields, decision.answer)
        receipt = ReceiptItem(SCOPE, message.id, Raw(encoded(decision.answer)), RECEIPT_SECONDS)
        if not decision.events:
            return None, receipt, items
        effect = EffectItem(
            self._entity.name, decision.id, decision.before.version,
            [EventItem(event.name, Raw(encoded(event.data))) for event in decision.events],
            Raw(encoded(decision.after.state)), message.id,
        )  # fmt: skip
        return effect, receipt, items


async def _committed_results(source: Source, decided: TransactionRequest) -> list[AckResult]:
    """Commit it, with leases acked as wholes where it names all that is left of them; a result for each message."""
    acks = decided.acknowledgments
    short = shortened(acks, source.leases)
    answer = await source.client.run(_transaction(structs.replace(decided, acknowledgments=short.sent)))
    results = short.results(answer.results)
    for ack, result in zip(acks, results, strict=True):
        left = source.leases.get(ack.lease_id)
        if left is not None and result.seq is not None:
            settled(left, result.seq, ack.status, result.status)
    return results


def _tell(prepared: Sequence[Prepared], decided: TransactionRequest, results: Sequence[AckResult]) -> None:
    """Log which messages were given up, and why. Acks are in the order of the messages."""
    for one, ack, result in zip(prepared, decided.acknowledgments, results, strict=False):
        if ack.status is AckStatus.DLQ:
            FailedMessage(one.message, ack.error or "").log(result)


def _transaction(whole: TransactionRequest) -> ApiCall[TransactionResponse]:
    # It may be repeated: every part of it is fenced by an ack under its lease.
    return ApiCall(Request("POST", "/api/v1/transaction", encode(whole), waits_for_room=False), _committed)


async def commit_pushes(source: Source, message: PoppedMessage, items: list[PushItem]) -> None:
    """Ack a message and push its follow-up messages, together."""
    url = source.client.settings.urls[0]
    spans = []
    for queue, count in Counter(item.queue for item in items).items():
        span, of_queue = begin_publishing(url, queue, count), [item for item in items if item.queue == queue]
        spans.append(span)
        with within(span):
            carry(of_queue)
        sending(span, of_queue)
    try:
        with settling_popped(url, AckStatus.COMPLETED, [message]):
            await source.client.run(_transaction(TransactionRequest([completed(message)], items)))
    except BaseException as error:
        sent(spans, error)
        raise
    sent(spans)
