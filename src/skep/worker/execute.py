"""Handle one message at a time: call a function, deliver the message, or only push follow-up messages; then settle it.

Follow-up messages are pushed in the same transaction as the ack. A function or delivery runs at least once: it runs again when the worker
dies, or the delivery's answer is lost, before the ack is stored.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from msgspec import Struct

from skep.client.async_message import AsyncMessage
from skep.client.error_texts import error_text
from skep.client.message import Message
from skep.client.message_data import MessageData, payload_bytes
from skep.client.tracing import failed as failed_span
from skep.client.tracing import working_on
from skep.client.worker.failing import FailedMessage
from skep.client.worker.source import Source
from skep.client.worker.verdict import Reject, Retry, RetryAt, verdict
from skep.clock import Clock
from skep.entities import PERMANENT
from skep.entities.inputs import Fields
from skep.errors import SkepError
from skep.spec import off_loop
from skep.wire.messages import Ack, AckStatus, PoppedMessage
from skep.wire.times import to_datetime
from skep.worker.acks import LOST, completed, failed, given_up, refused, writable
from skep.worker.cloud_events import event_post
from skep.worker.committing import commit_pushes
from skep.worker.delivery import Deliverer, DeliveryOutcome, Result
from skep.worker.endpoints import Breaker
from skep.worker.functions import CommandFunction, result_of
from skep.worker.plan import Plan

if TYPE_CHECKING:
    from skep.client.observation import Observation

log = logging.getLogger("skep.worker")


class Done(Struct, frozen=True):
    """The settlement of a message, and the command's result. ``said`` means that the function has settled the message itself."""

    ack: Ack
    result: object = None
    said: bool = False
    failure: FailedMessage | None = None


class Execution:
    """Handles the messages of one queue with a function, an endpoint, or only follow-up messages."""

    def __init__(self, plan: Plan, clock: Clock, pool: Executor, deliverer: Deliverer | None) -> None:
        self._plan = plan
        self._clock = clock
        self._pool = pool
        self._deliverer = deliverer
        self._breakers: dict[str, Breaker] = {}

    def breaker(self, source: Source) -> Breaker | None:
        """The breaker of the endpoint for a tenant; None where nothing is delivered."""
        if self._deliverer is None:
            return None
        found = self._breakers.get(source.tenant)
        if found is None:
            found = self._breakers[source.tenant] = Breaker(source.client, self._deliverer.url, self._clock)
        return found

    async def run(self, source: Source, message: PoppedMessage) -> Ack | None:
        """Handle a message and settle it. Returns its settlement, or None when it could not be settled."""
        with working_on(source.client.settings.urls[0], message) as span:
            return await self._run(source, message, span)

    async def _run(self, source: Source, message: PoppedMessage, span: Observation | None) -> Ack | None:
        try:
            fields = self._plan.fields(message) if self._plan.reads else {}
            done = await self._act(source, message, fields)
            follows = done.ack.status is AckStatus.COMPLETED and not done.said
            items = await off_loop(lambda: self._plan.pushes(message, fields, done.result)) if follows else []
        except SkepError as error:
            if error.code not in PERMANENT:
                raise
            failed_span(span, error)
            return await self._settled(source, message, given_up(message, error), FailedMessage(message, str(error)))
        if done.failure is not None:
            why = done.failure.why
            failed_span(span, why if isinstance(why, BaseException) else "delivery_failed")
        if done.said:
            return done.ack
        if not items:
            return await self._settled(source, message, done.ack, done.failure)
        try:
            await commit_pushes(source, message, items)
        except SkepError as error:
            return await self._not_led_on(source, message, error)
        return done.ack

    async def _act(self, source: Source, message: PoppedMessage, fields: Fields) -> Done:
        function = self._plan.function
        if function is not None:
            return await self._call(function, source, message, fields)
        if self._deliverer is not None:
            return await self._deliver(self._deliverer, source, message)
        return Done(completed(message))

    async def _call(self, function: CommandFunction, source: Source, message: PoppedMessage, fields: Fields) -> Done:
        argument = function.argument(await off_loop(lambda: self._plan.mapped(fields)))
        given = self._given(function, source, message)
        returned: object = None
        error: BaseException | None = None
        try:
            returned = await function.call(argument, given, self._pool)
        except asyncio.CancelledError as raised:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            error = raised  # the worker was not cancelled: something that the function waited for was
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException as raised:
            error = raised  # also of `sys.exit()`: it ends the function and not the worker
        if given is not None and given.settled is not None:
            failure = None if error is None else FailedMessage(message, error)
            if failure is not None:
                failure.log_settled(given.settled)
            return Done(Ack(message.lease_id, message.seq, given.settled), said=True, failure=failure)
        if error is not None:
            return Done(self._failure(message, error), failure=FailedMessage(message, error))
        return Done(completed(message), result_of(returned) if self._plan.following else None)

    def _given(self, function: CommandFunction, source: Source, message: PoppedMessage) -> MessageData | None:
        if not function.wants_message:
            return None
        if function.is_async:
            return AsyncMessage.of(message, source.client)
        return Message.of(message, source.blocking())

    def _failure(self, message: PoppedMessage, error: BaseException) -> Ack:
        if isinstance(error, Reject | Retry | RetryAt):
            return verdict(MessageData.of(message, None), self._clock, error)
        return failed(message, error_text(error))

    async def _deliver(self, deliverer: Deliverer, source: Source, message: PoppedMessage) -> Done:
        deliver = self._plan.spec.deliver
        if deliver is None or deliver.cloudevents is None:
            body = payload_bytes(message.payload, message.content_type)
            outcome = await deliverer.deliver(message.id, body, message.content_type)
        else:
            post = event_post(deliver.cloudevents, message, source.tenant)
            outcome = await deliverer.deliver(message.id, post.body, event=post.headers)
        breaker = self.breaker(source)
        assert breaker is not None
        await breaker.report(outcome)
        failure = None if outcome.result is Result.DELIVERED else FailedMessage(message, outcome.reason)
        return Done(_told(message, outcome), failure=failure)

    async def _settled(
        self, source: Source, message: PoppedMessage, ack: Ack, failure: FailedMessage | None
    ) -> Ack | None:
        result = await source.settle(message, ack, failure)
        return ack if result is not None and result.code is None else None

    async def _not_led_on(self, source: Source, message: PoppedMessage, error: SkepError) -> Ack | None:
        if error.code in LOST:
            log.warning("a lease was lost: seq %d of %s comes again", message.seq, message.queue)
            return None
        return await self._settled(source, message, refused(message, error), FailedMessage(message, str(error)))


def _told(message: PoppedMessage, outcome: DeliveryOutcome) -> Ack:
    if outcome.result is Result.DELIVERED:
        return completed(message)
    if outcome.retry_at is None:
        return failed(message, outcome.reason)
    return Ack(message.lease_id, message.seq, AckStatus.RETRY, writable(outcome.reason), to_datetime(outcome.retry_at))
