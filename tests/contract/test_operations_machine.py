"""Any mix of queueing, claiming, performing, giving up and dying does to every store what it does to the reference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from skep.clock import Instant, ManualClock
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import MessageFilter, NewMessage, Ordering, PushBatch, QueueKey, QueueSettings, Token
from skep.model.operation import Claimed, ClaimLimits, GivenBack, NewOperations, OperationKind, push_groups
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.conftest import TENANTS
from tests.support.reference_store import ReferenceStore

T = TypeVar("T")

QUEUES = ["plain", "fifo", "full"]
PLACE = st.tuples(st.sampled_from(QUEUES), st.sampled_from("AB"))
PLACES = st.lists(st.tuples(st.sampled_from(QUEUES), st.sampled_from("AB")), min_size=1, max_size=3)


class OperationsMachine(RuleBasedStateMachine):
    """The same calls to a store and to the reference; a server that dies simply never calls again."""

    make_store: Callable[[], Coroutine[Any, Any, Store]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.mint = IdMint(self.clock)
        self.tenant = next(TENANTS)
        self.model = ReferenceStore()
        self.store = self.runner.run(type(self).make_store())
        self.claims: list[tuple[Token, list[Claimed]]] = []
        self.number = 0
        for name, chosen in zip(
            QUEUES, (QueueSettings(), QueueSettings(ordering=Ordering.FIFO), QueueSettings(max_depth=4)), strict=True
        ):
            self.both(lambda store, n=name, s=chosen: store.create_queue(self.key(n), s, self.now))  # type: ignore[misc]

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()

    @property
    def now(self) -> Instant:
        return self.clock.now()

    def key(self, name: str) -> QueueKey:
        return QueueKey(name, self.tenant)

    def both(self, call: Callable[[Any], Coroutine[Any, Any, T]]) -> tuple[T | SkepError, T | SkepError]:
        return self._answer(call(self.store)), self._answer(call(self.model))

    def _answer(self, call: Coroutine[Any, Any, T]) -> T | SkepError:
        try:
            return self.runner.run(call)
        except SkepError as error:
            return error

    def batch(self, places: list[tuple[str, str]]) -> PushBatch:
        self.number += 1
        messages = [
            NewMessage(self.key(queue), f'"{self.number}.{n}"'.encode(), partition)
            for n, (queue, partition) in enumerate(places)
        ]
        return PushBatch(messages, self.mint.mint_many(len(messages)))

    @rule(places=PLACES)
    def push(self, places: list[tuple[str, str]]) -> None:
        batch = self.batch(places)
        ours, theirs = self.both(lambda store: store.push([batch], self.now))
        assert [(o.held, o.refused) for o in ours] == [(o.held, o.refused) for o in theirs]  # type: ignore[union-attr]

    @rule(places=PLACES)
    def transact(self, places: list[tuple[str, str]]) -> None:
        from skep.model.transaction import Transaction

        transaction = Transaction([], self.batch(places))
        ours, theirs = self.both(lambda store: store.transact([transaction], self.now))
        assert [_code(ours)] == [_code(theirs)]

    @rule(places=st.builds(lambda place, count: [place] * count, PLACE, st.integers(1, 3)) | PLACES)
    def enqueue(self, places: list[tuple[str, str]]) -> None:
        batch = self.batch(places)
        request = NewOperations(OperationKind.PUSH, self.mint.mint_many(push_groups(batch)), push=batch)
        ours, theirs = self.both(lambda store: store.enqueue([request], self.now))
        if len(set(places)) > 1:
            assert {getattr(answer, "code", None) for answer in (ours, theirs)} == {Code.OPERATIONS_AHEAD}
            return
        shape = [[(o.id, o.queue, o.partition, o.indexes) for o in group] for group in ours]  # type: ignore[union-attr]
        assert shape == [[(o.id, o.queue, o.partition, o.indexes) for o in group] for group in theirs]  # type: ignore[union-attr]

    @rule(operations=st.sampled_from([1, 2, 100]))
    def claim(self, operations: int) -> None:
        token, limits = Token(bytes(self.mint.mint())), ClaimLimits(operations=operations)
        ours, theirs = self.both(lambda store: store.claim_operations("w", token, limits, self.now))
        assert not isinstance(ours, SkepError)
        assert not isinstance(theirs, SkepError)
        assert [_claim(c) for c in ours.operations] == [_claim(c) for c in theirs.operations]
        assert not ours.more
        if ours.operations:
            # Positions differ between the two, so each gets its own.
            self.claims.append((token, ours.operations))
            self.model_claims = {**getattr(self, "model_claims", {}), token: theirs.operations}

    @rule(pick=st.integers(0, 5), part=st.integers(0, 3))
    def perform(self, pick: int, part: int) -> None:
        if not self.claims:
            return
        token, mine = self.claims[pick % len(self.claims)]
        theirs = self.model_claims[token]
        start = part % len(mine)
        ours = self.runner.run(self.store.perform(token, mine[start:], self.now))
        model = self.runner.run(self.model.perform(token, theirs[start:], self.now))
        ids = {one.position: one.id for one in mine}
        model_ids = {one.position: one.id for one in theirs}
        assert {ids[p] for p in ours.done} == {model_ids[p] for p in model.done}
        assert {ids[p] for p in ours.lost} == {model_ids[p] for p in model.lost}
        assert {ids[p]: c for p, (c, _) in ours.refused.items()} == {
            model_ids[p]: c for p, (c, _) in model.refused.items()
        }

    @rule(
        pick=st.integers(0, 5), which=st.integers(0, 3), how=st.sampled_from(["retry", "blocked", "untried", "failed"])
    )
    def give_back(self, pick: int, which: int, how: str) -> None:
        if not self.claims:
            return
        token, mine = self.claims[pick % len(self.claims)]
        index = which % len(mine)
        retry_at = None if how == "failed" else Instant(self.now + (0 if how == "untried" else 5_000_000))
        code = {"blocked": Code.STORE_BUSY, "untried": None}.get(how, Code.INTERNAL)
        since = self.now if how in ("retry", "blocked") else None
        self.level(mine[index].queue.name)  # only a queue that is there has dead letters
        done = []
        for store, claimed in ((self.store, mine), (self.model, self.model_claims[token])):
            untried = how in ("untried", "blocked")
            back = GivenBack(claimed[index].position, retry_at, code and "no", code, untried, since)
            done.append(len(self.runner.run(store.give_back(token, [back], self.now))))
        assert done[0] == done[1]

    @rule(seconds=st.sampled_from([1, 5, 30]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(name=st.sampled_from(["plain", "full"]))
    def delete(self, name: str) -> None:
        self.level(name)  # only a queue that is there takes its operations with it
        self.both(lambda store: store.delete_queue(self.key(name), self.now))

    def level(self, name: str) -> None:
        """A held push may have made its queue, or not: it is empty either way. Make it, where only one of the two has it."""
        there = [found is not None for found in self.both(lambda store: store.get_queue(self.key(name)))]
        if any(there) and not all(there):
            self.both(lambda store: store.create_queue(self.key(name), QueueSettings(), self.now))

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "store"):
            return
        ours, theirs = self.both(lambda store: store.waiting_operations(self.now, 1000))
        assert ours == theirs
        for name in [*QUEUES, *(f"{queue}.dead" for queue in QUEUES)]:
            logs = self.both(lambda store, n=name: self._log(store, n))  # type: ignore[misc]
            assert logs[0] == logs[1], name

    async def _log(self, store: Store, name: str) -> list[tuple[str, bytes]]:
        if await store.get_queue(self.key(name)) is None:
            return []
        page = await store.messages(MessageFilter(queue=self.key(name), limit=1000), self.now)
        return [(message.partition, message.payload) for message in page.messages]


def _claim(claimed: Claimed) -> tuple[object, ...]:
    return claimed.id, claimed.tries, claimed.code, claimed.error, claimed.blocked_at


def _code(answer: object) -> object:
    return answer.code if isinstance(answer, SkepError) else [outcome.committed for outcome in answer]  # type: ignore[attr-defined]


@pytest.mark.parametrize("examples", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_I13_operations_do_the_same_on_sqlite(examples: int) -> None:
    class OnSqlite(OperationsMachine):
        @staticmethod
        async def make_store() -> Store:
            store = SqliteStore(":memory:")
            await store.open()
            return store

    run_state_machine_as_test(
        OnSqlite,
        settings=settings(max_examples=examples, stateful_step_count=25, phases=[Phase.generate]),
    )


@pytest.mark.parametrize("examples", [5, pytest.param(300, marks=pytest.mark.slow)])
def test_I13_operations_do_the_same_on_postgres(shared_dsn: str, examples: int) -> None:
    class OnPostgres(OperationsMachine):
        @staticmethod
        async def make_store() -> Store:
            store = PostgresStore(shared_dsn)
            await store.open()
            async with store.pool.connection() as session:
                await session.execute("DELETE FROM operation")
            return store

    run_state_machine_as_test(
        OnPostgres,
        settings=settings(max_examples=examples, stateful_step_count=20, phases=[Phase.generate]),
    )
