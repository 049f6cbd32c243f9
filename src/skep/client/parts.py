"""The parts of a transaction: acks, pushes, effects and receipts. They happen together or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from skep.client import calls, message_data, record_calls, tracing
from skep.client.exchange import ApiCall
from skep.client.message_data import MessageData
from skep.client.outgoing import PUSH_DEFAULTS, MessageOptions, listed, written_items
from skep.client.spelling import spelled_out
from skep.clock import Clock
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.wire.entities import EffectItem, ReceiptItem
from skep.wire.messages import Ack, PushedMessage, PushItem, TransactionResponse

if TYPE_CHECKING:
    from skep.client.observation import Observation


class TransactionParts:
    """The parts of a transaction so far."""

    def __init__(self, clock: Clock, mint: IdMint, url: str) -> None:
        self._clock = clock
        self._url = url
        self._mint = mint
        self._acks: list[tuple[MessageData, Ack]] = []
        self._items: list[PushItem] = []
        self._effects: list[EffectItem] = []
        self._receipts: list[ReceiptItem] = []
        self._spans: list[Observation] = []
        """The spans of the pushes. Each lasts until the commit has sent its messages."""
        self.committed: TransactionResponse | None = None
        """The server's answer; None until the commit."""

    @property
    def pushed(self) -> Sequence[PushedMessage]:
        """The outcomes of the pushes; empty until the commit."""
        return self.committed.messages if self.committed else []

    def ack(self, *messages: MessageData) -> None:
        """Ack these messages within the transaction."""
        self._say((message, message_data.completed(message)) for message in messages)

    def nack(
        self,
        *messages: MessageData,
        error: str | None = None,
        retry_at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> None:
        """Nack these messages within the transaction: they come again."""
        self._say(
            (one, message_data.failed(one, self._clock, error=error, retry_at=retry_at, delay=delay))
            for one in messages
        )

    def reject(self, *messages: MessageData, error: str | None = None) -> None:
        """Reject these messages within the transaction: they become dead letters."""
        self._say((message, message_data.rejected(message, error=error)) for message in messages)

    @spelled_out(MessageOptions, PUSH_DEFAULTS)
    def push(self, queue: str, messages: object, **options: Unpack[MessageOptions]) -> None:
        """Push these messages within the transaction."""
        self._open()
        several = listed(messages)
        span = tracing.begin_publishing(self._url, queue, len(several))
        try:
            with tracing.within(span):
                items = written_items(queue, several, options, self._mint)
            tracing.sending(span, items)
            self._items += items
        except SkepError as error:
            tracing.sent([span], error)
            raise
        if span is not None:
            self._spans.append(span)

    def effect(
        self,
        entity: str,
        id_: str,
        *,
        version: int,
        events: record_calls.Events,
        state: object,
        cause: str | None = None,
    ) -> None:
        """Append events to an entity and set its state, within the transaction. A conflict when the entity is at another version."""
        self._open()
        self._effects.append(record_calls.effect(entity, id_, version, events, state, cause))

    def receipt(self, scope: str, key: str, *, answer: object = None, window_seconds: float) -> None:
        """Write a receipt within the transaction: this was done. A conflict when a receipt is there within the window."""
        self._open()
        self._receipts.append(record_calls.receipt(scope, key, answer, window_seconds))

    def call(self) -> ApiCall[TransactionResponse] | None:
        """The call that commits the transaction; None when there is nothing to commit."""
        self._open()
        if not (self._acks or self._items or self._effects or self._receipts):
            return None
        # Each by itself: of a lease others may have a part, and the rest would commit (lease_acks).
        acks = [ack for _, ack in self._acks]
        return calls.transaction(acks, self._items, self._effects, self._receipts)

    def done(self, response: TransactionResponse) -> None:
        """Take in the answer to the commit."""
        self.committed = response
        for (message, ack), result in zip(self._acks, response.results, strict=True):
            message_data.mark(message, ack, result.status)
        first = 0
        for span in self._spans:
            tracing.stored(span, response.messages[first : first + span.messages])
            first += span.messages

    def traced(self) -> AbstractContextManager[object]:
        """A span around committing the acks."""
        return message_data.traced(self._acks)

    def ended(self, error: BaseException | None = None) -> None:
        """End the spans of the pushes, which were sent."""
        tracing.sent(self._spans, error)
        self._spans = []

    def abandoned(self, error: BaseException) -> None:
        """End the spans of the pushes, which this error kept from being sent."""
        tracing.abandoned(self._spans, error)
        self._spans = []

    def _say(self, acks: Iterable[tuple[MessageData, Ack]]) -> None:
        self._open()
        self._acks += acks

    def _open(self) -> None:
        if self.committed is not None:
            raise SkepError(Code.INVALID_REQUEST, "the transaction is committed; begin another")
