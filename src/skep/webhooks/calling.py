"""Run a webhook's command at once: decide on the entity's current state, and store the result with its receipt in one transaction."""

from __future__ import annotations

import asyncio
from functools import partial
from weakref import WeakValueDictionary

from msgspec import Struct

from skep.clock import Instant
from skep.engine import Engine
from skep.entities import Accepted, Decision, accept, decide, encoded, snapshot
from skep.entities.refusal import without_value
from skep.errors import Code, SkepError
from skep.model.record import Effect, EntityKey, EntityState, NewEvent, Receipt
from skep.spec import ExpressionError, apply_mapping, off_loop
from skep.webhooks.compiled import WebhookCommand
from skep.webhooks.request import Values

TRIES = 20
"""How often a command is decided again because others changed the entity meanwhile. After that, the sender has to repeat the request."""


class Turns:
    """Runs the commands on one entity one after the other: of several at the same time, only one could be stored.

    Other servers and workers are not held up; because of them a command may have to be decided again.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[EntityKey, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: EntityKey) -> asyncio.Lock:
        """The turn of an entity; it is kept as long as somebody waits for it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


def accepted_by(call: WebhookCommand, values: Values) -> Accepted:
    """The command with its input; MAPPING_FAILED when there is none, COMMAND_UNAVAILABLE when nobody here can run it."""
    if call.entity is None:
        raise SkepError(Code.COMMAND_UNAVAILABLE, f"nobody here carries out {call.name}")
    return accept(call.entity, call.command, input_of(call, values))


def input_of(call: WebhookCommand, values: Values) -> dict[str, object]:
    """The input of the command; MAPPING_FAILED when an expression has no value."""
    try:
        return apply_mapping(call.mapping, values)
    except ExpressionError as error:
        raise without_value(error, f"the input of {call.name}") from None


class Ran(Struct, frozen=True):
    """The answer of a command; for a repeat, the answer of the first request."""

    answer: bytes
    repeated: bool


async def run(engine: Engine, accepted: Accepted, key: EntityKey, receipt: Receipt | None, now: Instant) -> Ran:
    """Decide and store. ``receipt`` comes without its answer, which is known here."""
    asked = [receipt.key] if receipt is not None else []
    for _ in range(TRIES):
        [state], known = await engine.records.read([key], asked)
        if known and known[0] is not None:
            # Before the guard: the first request may have changed the entity so that the guard refuses a repeat.
            return Ran(known[0].answer, True)
        decision = await off_loop(partial(_decided, accepted, state, now))
        answer = encoded(decision.answer)
        effects = [_effect(key, decision)] if decision.events else []
        receipts = [Receipt(receipt.key, answer, receipt.expires_at)] if receipt is not None else []
        if not effects and not receipts:
            return Ran(answer, False)
        outcome = await engine.transact([], [], effects=effects, receipts=receipts)
        if outcome.committed:
            return Ran(answer, False)
    raise SkepError(Code.STORE_BUSY, f"{accepted.entity.name} {accepted.id!r} is being changed over and over")


def _decided(accepted: Accepted, state: EntityState | None, now: Instant) -> Decision:
    before = snapshot(accepted.entity, state.version, state.state) if state is not None else None
    try:
        return decide(accepted, before, now)
    except SkepError as error:
        if error.code is not Code.GUARD_REJECTED:
            raise
        # The sender learns that the guard refused, and nothing about the entity.
        message = f"the guard of {accepted.name} does not hold for {accepted.id!r}"
        raise SkepError(Code.GUARD_REJECTED, message, id=accepted.id) from None


def _effect(key: EntityKey, decision: Decision) -> Effect:
    events = [NewEvent(event.name, encoded(event.data)) for event in decision.events]
    return Effect(key, decision.before.version, events, encoded(decision.after.state))
