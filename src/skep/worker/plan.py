"""The plan of a queue, compiled once from the spec: how a worker reads and maps a message, acts on it, and pushes follow-ups.

A message that can never be done raises a `SkepError` with a code of `skep.entities.PERMANENT`. A retry would not help, so the message
becomes a dead letter, with the expression and the value in its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from msgspec import UNSET, Raw, Struct

from skep.client.message_data import payload_bytes
from skep.entities import CompiledEntity, compile_entity, encoded
from skep.entities.inputs import Fields, InputMapping, InputReader, compile_input, compile_reading
from skep.entities.refusal import cannot_apply, not_a_condition, unfit_key, without_value
from skep.errors import Code, SkepError
from skep.model import DEFAULT_PARTITION, Ordering
from skep.spec import (
    App,
    Expression,
    ExpressionError,
    FieldMapping,
    Validator,
    apply_mapping,
    compile_expression,
    compile_mapping,
    compile_validator,
    evaluate,
    misfit_of,
)
from skep.spec.ir import IdempotencySource, Queue, Then
from skep.spec.types import BOOL, Type
from skep.spec.variables import of_queue, of_then
from skep.wire.messages import PoppedMessage, PushItem
from skep.worker.functions import CommandFunction


class FollowUp(Struct, frozen=True):
    """A message for another queue. ``carries_partition`` says that the next queue derives none of its own."""

    queue: str
    when: Expression | None
    fields: FieldMapping
    validator: Validator | None
    carries_partition: bool
    derives_id: bool


class Plan(Struct, frozen=True):
    """One queue's work. It has a ``function``, an ``entity`` of the built-in store, a delivery, or only follow-up messages."""

    queue: str
    spec: Queue
    reading: InputReader
    mapping: InputMapping | None
    entity: CompiledEntity | None
    function: CommandFunction | None
    following: list[FollowUp]
    limit_key: Expression | None

    @property
    def ordered(self) -> bool:
        """Whether the messages of a partition must be handled one after the other."""
        return self.spec.settings.ordering is not Ordering.UNORDERED

    @property
    def reads(self) -> bool:
        """Whether expressions read the payload. A message that is only delivered need not be JSON."""
        return self.reading.validator is not None or self.mapping is not None or bool(self.following)

    def fields(self, message: PoppedMessage) -> Fields:
        """The fields of a message that expressions can read."""
        return self.reading.fields(payload_bytes(message.payload, message.content_type))

    def mapped(self, fields: Fields) -> Fields:
        """The command's input."""
        return {} if self.mapping is None else self.mapping.made(fields)

    def limited_by(self, message: PoppedMessage) -> str:
        """The key that the rate limit counts by."""
        if self.limit_key is None:
            return ""
        try:
            value = evaluate(self.limit_key, self.fields(message))
        except ExpressionError as error:
            raise without_value(error, "rate_limit") from error
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise unfit_key(self.limit_key, value, "the key of rate_limit")
        return str(value)

    def pushes(self, message: PoppedMessage, fields: Fields, result: object) -> list[PushItem]:
        """The messages that follow once this one is done."""
        if not self.following:
            return []
        values = {"result": result, **fields} if self.spec.map_to is not None else fields
        made: list[PushItem] = []
        for index, one in enumerate(self.following):
            content = _content(one, values)
            if content is not None:
                made.append(PushItem(
                    one.queue, Raw(encoded(content)), message.partition if one.carries_partition else DEFAULT_PARTITION,
                    # Its transaction id comes from its cause, so that a message that is done twice has one follow-up.
                    None if one.derives_id else f"{message.id}:{index}", message.trace_id,
                    cast("Raw", UNSET),  # what is unset is left out
                ))  # fmt: skip
        return made


def plans(app: App, functions: Mapping[str, CommandFunction]) -> list[Plan]:
    """The work of all queues of an app. COMMAND_UNAVAILABLE when there is neither an entity nor a function for a command."""
    calls = {name: queue.map_to for name, queue in app.queues.items() if queue.map_to is not None}
    missing = sorted({
        f"{call.entity}.{call.command}" for call in calls.values()
        if call.entity not in app.entities and f"{call.entity}.{call.command}" not in functions
    })  # fmt: skip
    if missing:
        raise SkepError(
            Code.COMMAND_UNAVAILABLE,
            f"nothing carries out {', '.join(missing)}: declare the entity, or give a function with "
            f'@app.command("{missing[0]}")',
            commands=missing,
        )
    return [
        _plan(app, name, queue, functions)
        for name, queue in app.queues.items()
        if queue.map_to is not None or queue.then or queue.deliver is not None
    ]


def _plan(app: App, name: str, queue: Queue, functions: Mapping[str, CommandFunction]) -> Plan:
    variables = of_queue(queue)
    call = queue.map_to
    function = functions.get(f"{call.entity}.{call.command}") if call else None
    entity = app.entities.get(call.entity) if call else None
    limit = queue.rate_limit
    return Plan(
        queue=name,
        spec=queue,
        reading=compile_reading(queue),
        mapping=compile_input(app, queue),
        entity=compile_entity(call.entity, entity) if call and entity and function is None else None,
        function=function,
        following=[_following(app, then, of_then(queue)) for then in queue.then],
        limit_key=compile_expression(limit.key, variables) if limit and limit.key is not None else None,
    )


def _following(app: App, then: Then, variables: dict[str, Type]) -> FollowUp:
    target = app.queues[then.queue]
    unordered = target.settings.ordering is Ordering.UNORDERED
    return FollowUp(
        queue=then.queue,
        when=None if then.when is None else compile_expression(then.when, variables, BOOL),
        fields=compile_mapping(then.fields, variables, target.message_type or None),
        validator=compile_validator(target.message_type, target.extra_fields) if target.message_type else None,
        carries_partition=target.key is None and not unordered,
        derives_id=target.idempotency is not None and target.idempotency.source is IdempotencySource.KEY,
    )


def _content(one: FollowUp, values: Fields) -> Fields | None:
    where = f"then queue {one.queue}"
    try:
        if one.when is not None:
            holds = evaluate(one.when, values)
            if holds is False:
                return None
            if holds is not True:
                raise not_a_condition(one.when, holds, where)
        made = apply_mapping(one.fields, values)
    except ExpressionError as error:
        raise without_value(error, where) from error
    if one.validator is not None and (unfit := misfit_of(one.validator, made)) is not None:
        raise cannot_apply(one.fields, unfit, where)
    return made


def lease_seconds(queue: Queue, otherwise: float) -> float:
    """How long messages of a queue are leased for."""
    given = queue.settings.lease_seconds
    return otherwise if given is UNSET else float(given)
