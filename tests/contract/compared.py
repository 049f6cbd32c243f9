"""A store beside references that agree with it: what the random operations of the state machine are compared by."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from skep.clock import ManualClock
from skep.errors import SkepError
from skep.ids import IdMint
from skep.model import Delivery, QueueKey
from skep.model.record import EntityKey
from skep.store.protocol import Store
from tests.contract.alike import compare, follow_burials, plain
from tests.support.reference_store import ReferenceStore

T = TypeVar("T")
TENANTS = (f"machine-{number}" for number in itertools.count(1))


class Compared(RuleBasedStateMachine):
    """A store, and the references that answer as it did until now."""

    make_store: Callable[[], Store]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = type(self).make_store()
        self.run(self.store.open())
        self.models = [ReferenceStore()]
        self.clock = ManualClock()
        self.mint = IdMint(self.clock)
        self.tenant = next(TENANTS)
        self.deliveries: list[Delivery] = []
        self.queues: list[QueueKey] = []
        self.seen: dict[tuple[object, str], Any] = {}

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(verb)

    def see(self, look: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        """What the store shows: asked for once, however many references are compared with it."""
        asked = look, repr(arguments)
        if asked not in self.seen:
            self.seen[asked] = self.run(look(*arguments))
        found: T = self.seen[asked]
        return found

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    @property
    def now(self) -> Any:
        return self.clock.now()

    def both(self, verb: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Do the same to the store and to the references; one of them must answer alike, or fail alike."""
        actual = self.answer(verb(self.store))

        def agree(model: ReferenceStore) -> None:
            expected = self.answer(verb(model))
            assert plain(actual) == plain(expected), f"(store, reference) answer {actual}, {expected}"

        self.keep([(model, agree) for model in self.models])
        if isinstance(actual, SkepError):
            raise AssertionError(f"unexpected: {actual}")
        return actual

    def keep(self, candidates: list[tuple[ReferenceStore, Callable[[ReferenceStore], None]]]) -> None:
        """Go on with the references that agree with the store, in the last answer and in all that can be seen."""
        kept: dict[str, ReferenceStore] = {}
        problems = []
        self.seen.clear()
        for model, agree in candidates:
            try:
                agree(model)
                follow_burials(self, model)
                compare(self, model)
                kept.setdefault(repr(model.logs), model)
            except AssertionError as problem:
                problems.append(problem)
        if not kept:
            raise problems[0]
        self.models = list(kept.values())

    @property
    def model(self) -> ReferenceStore:
        """One of the references, for what they all agree on."""
        return self.models[0]

    def answer(self, verb: Coroutine[Any, Any, T]) -> T | SkepError:
        try:
            return self.run(verb)
        except SkepError as error:
            return error

    def pick(self, things: Sequence[T], pick: int) -> T:
        return things[pick % len(things)]

    def counter(self, id_: str) -> EntityKey:
        return EntityKey("Counter", id_, self.tenant)
