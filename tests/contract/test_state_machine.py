"""A real store and the reference, driven by the same random operations, give the same answers at every step.

What the specification leaves to a store is taken over from it: which messages of an unordered queue come first within a
priority, and the order of several burials of one call. Whether a pop that was nearly filled looks for more shows only
later, so there is a reference for either case until one of them is refuted; when none is left, the store is wrong.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from skep.clock import Instant
from skep.errors import SkepError
from skep.model import (
    FROM_BEGINNING,
    QUEUE_MODE_GROUP,
    WHOLE_LEASE,
    ClearScope,
    DeadLetterFilter,
    NewMessage,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    QueueKey,
    QueueSettings,
    Renewal,
    Retry,
    Seq,
    Settlement,
    Start,
    StartMode,
    Token,
)
from skep.model.forgetting import runs_of
from skep.model.record import Effect, NewEvent, Receipt, ReceiptKey
from skep.model.scheduled import Change, ScheduledFilter
from skep.model.transaction import Transaction
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.alike import brief, plain, told_alike
from tests.contract.compared import Compared
from tests.contract.strategies import (
    COUNTERS,
    EFFECTS,
    GRAVE_SETTINGS,
    GROUP_NAMES,
    MESSAGES,
    NAMES,
    OUTCOMES,
    PARTITIONS,
    PICKS,
    PLENTY,
    RECEIPTS,
    SETTINGS,
)
from tests.support.reference_store import ReferenceStore


class StoreMachine(Compared):
    """The operations, and the comparison after each."""

    # operations

    @initialize(first=SETTINGS, second=SETTINGS, third=GRAVE_SETTINGS)
    def create(self, first: QueueSettings, second: QueueSettings, third: QueueSettings) -> None:
        if "grave" in (first.dead_letter_queue, second.dead_letter_queue):
            for store in (self.store, self.model):
                self.run(store.create_queue(QueueKey("grave", self.tenant), third, self.now))
        for name, chosen in zip(NAMES, (first, second), strict=True):
            key = QueueKey(name, self.tenant)
            self.queues.append(key)
            for store in (self.store, self.model):
                self.run(store.create_queue(key, chosen, self.now))
                self.run(store.seek(key, QUEUE_MODE_GROUP, FROM_BEGINNING, self.now))
        self.keep([(self.model, lambda _: None)])

    @rule(messages=MESSAGES, queue=PICKS)
    def push(self, messages: list[tuple[str, str | None, int | None]], queue: int) -> None:
        batch = self.batch(messages, queue)
        self.both(lambda store: store.push([batch], self.now))

    @rule(messages=MESSAGES, queue=PICKS, keys=st.lists(st.sampled_from(RECEIPTS), min_size=1, max_size=3))
    def push_once(self, messages: list[tuple[str, str | None, int | None]], queue: int, keys: list[str]) -> None:
        batches = [
            msgspec.structs.replace(self.batch(messages, queue + number), receipt=self.receipt(key, number))
            for number, key in enumerate(keys)
        ]
        self.both(lambda store: store.push(batches, self.now))

    def receipt(self, key: str, number: int) -> Receipt:
        expires_at = type(self.now)(self.now + 15_500_000)
        return Receipt(ReceiptKey("machine", key, self.tenant), b'"%d of %d"' % (number, self.now), expires_at)

    def batch(self, messages: list[tuple[str, str | None, int | None]], queue: int) -> PushBatch:
        """Messages to one queue, the last one to the next; those with a delay are scheduled."""
        built = []
        for number, (partition, transaction_id, delay) in enumerate(messages):
            key = self.pick(self.queues[: len(NAMES)], queue + (number == 3))
            deliver_at = None if delay is None else type(self.now)(self.now + delay * 1_000_000)
            built.append(
                NewMessage(
                    queue=key,
                    payload=f"{number}".encode(),
                    partition=partition,
                    transaction_id=transaction_id,
                    deliver_at=deliver_at,
                )
            )
        return PushBatch(built, self.mint.mint_many(len(built)))

    @rule(
        queue=PICKS,
        group=GROUP_NAMES,
        batch=st.sampled_from([1, 2, 3, 100]),
        partition=st.none() | PARTITIONS,
        max_partitions=st.sampled_from([0, 0, 0, 1, 2]),
        auto_ack=st.sampled_from([False, False, False, True]),
        max_bytes=st.sampled_from([PLENTY, PLENTY, PLENTY, 2]),
    )
    def pop(
        self,
        queue: int,
        group: str,
        batch: int,
        partition: str | None,
        max_partitions: int,
        auto_ack: bool,
        max_bytes: int = PLENTY,
    ) -> None:
        # Mostly where there is something to be had.
        busy = [key for key in self.queues if self.model.log(key).depth] or self.queues
        key = self.pick(busy, queue)
        # What claims meet on their way depends on how far they look; the chore deals with all of it, for known groups.
        self.both(lambda store: store.expire(key, self.now, PLENTY))
        limits = self.model.log(key).settings
        has_age = limits.max_wait_seconds or limits.max_age_seconds
        if has_age and group not in self.model.log(key).groups:
            group = QUEUE_MODE_GROUP
        simple = not (limits.delayed_processing_seconds or has_age)
        request = PopRequest(
            queue=key,
            token=Token(bytes(self.mint.mint())),
            group=group,
            batch=batch,
            max_bytes=max_bytes,
            partition=partition,
            max_partitions=max_partitions if simple else 0,
            auto_ack=auto_ack,
        )
        (result,) = self.run(self.store.pop([request], self.now))
        self.popped(request, result)

    def popped(self, request: PopRequest, result: PopResult) -> None:
        """The store gave this; a reference must be able to give the same."""
        follow = [int(delivery.seq) for delivery in result.deliveries]

        def agree_when(discover: str) -> Callable[[ReferenceStore], None]:
            def agree(model: ReferenceStore) -> None:
                expected = model._pop(request, self.now, discover == "before", follow)
                if discover == "after":
                    log = model.log(request.queue)
                    model.discover(log, log.groups[request.group], self.now)
                given, wanted = brief(result.deliveries), brief(expected.deliveries)
                assert plain(result.deliveries) == plain(told_alike(result.deliveries, expected.deliveries)), (
                    f"(store, reference) give {given}, {wanted}"
                )

            return agree

        choices = ("before", "never", "after")
        self.keep([(copy.deepcopy(model), agree_when(choice)) for model in self.models for choice in choices])
        if not request.auto_ack:
            self.deliveries += result.deliveries
        self.forget_run_out(request.queue)

    @rule(messages=MESSAGES, queue=PICKS, batch=st.sampled_from([1, 2, 100]), partition=st.none() | PARTITIONS)
    def push_to_who_waits(
        self, messages: list[tuple[str, str | None, int | None]], queue: int, batch: int, partition: str | None
    ) -> None:
        """A push that claims for somebody, who has looked before."""
        key = self.pick(self.queues[: len(NAMES)], queue)
        self.pop(queue, QUEUE_MODE_GROUP, 100, None, 0, False)
        request = PopRequest(queue=key, token=Token(bytes(self.mint.mint())), batch=batch, partition=partition)
        self.both(lambda store: store.expire(key, self.now, PLENTY))
        pushed = [self.batch(messages, queue)]
        outcomes, (result,) = self.run(self.store.push_and_pop(pushed, [request], self.now))
        self.claimed(request, result, outcomes, lambda model: model.push(pushed, self.now))

    @precondition(lambda self: self.deliveries)
    @rule(batch=st.sampled_from([1, 2, 100]))
    def ack_for_who_waits(self, batch: int) -> None:
        """Acks of a lease that claim what they free for somebody of the same group."""
        latest = self.deliveries[-1]
        acked = [
            d for d in self.deliveries if (d.queue, d.group, d.token) == (latest.queue, latest.group, latest.token)
        ]
        settlements = [delivery.settlement() for delivery in acked]
        request = PopRequest(queue=latest.queue, token=Token(bytes(self.mint.mint())), group=latest.group, batch=batch)
        self.both(lambda store: store.expire(latest.queue, self.now, PLENTY))
        results, (result,) = self.run(self.store.settle_and_pop(settlements, [request], self.now))
        self.deliveries = [d for d in self.deliveries if d not in acked]
        self.claimed(request, result, results, lambda model: model.settle(settlements, self.now))

    def claimed(
        self,
        request: PopRequest,
        result: PopResult | None,
        answers: object,
        ask: Callable[[ReferenceStore], Coroutine[Any, Any, object]],
    ) -> None:
        """Compare a call that claimed for somebody: its answers, and then what was claimed."""
        before = self.models

        def agree(model: ReferenceStore) -> None:
            assert plain(answers) == plain(self.run(ask(model)))

        if result is None:
            self.keep([(model, agree) for model in before])
            return
        # What can be seen is compared once the claim is made, too.
        for model in before:
            agree(model)
        self.popped(request, result)

    def forget_run_out(self, key: QueueKey) -> None:
        """Which of the run-out leases of an unordered queue a pop has reclaimed is not told."""
        if self.model.log(key).is_ordered:
            return
        self.deliveries = [d for d in self.deliveries if d.queue != key or d.lease_deadline > self.now]

    @rule(queue=PICKS, batch=st.sampled_from([2, 3, 100]))
    def pop_anything(self, queue: int, batch: int) -> None:
        self.pop(queue, QUEUE_MODE_GROUP, batch, None, 0, False)

    @rule(queue=PICKS, seconds=st.sampled_from([5, 20]))
    def let_leases_run_out(self, queue: int, seconds: int) -> None:
        self.pop(queue, QUEUE_MODE_GROUP, 3, None, 0, False)
        self.advance(seconds)
        self.pop(queue, QUEUE_MODE_GROUP, 3, None, 0, False)

    @precondition(lambda self: self.deliveries)
    @rule(choices=OUTCOMES)
    def settle(self, choices: list[tuple[int, Outcome, Retry, bool]]) -> None:
        settlements = self.settlements(choices)
        self.both(lambda store: store.settle(settlements, self.now))

    def settlements(self, choices: list[tuple[int, Outcome, Retry, bool]]) -> list[Settlement]:
        return [
            Settlement(
                queue=delivery.queue,
                partition=delivery.partition,
                seq=delivery.seq,
                token=delivery.token if good else Token(bytes(self.mint.mint())),
                group=delivery.group,
                outcome=outcome,
                error=f"error {number}" if outcome is not Outcome.ACK else None,
                retry=retry,
                retry_at=type(self.now)(self.now + 7_000_000) if retry is Retry.AT else None,
            )
            for number, (pick, outcome, retry, good) in enumerate(choices)
            for delivery in [self.pick(self.deliveries[-6:], pick)]
        ]

    @precondition(lambda self: self.deliveries)
    @rule(outcomes=st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=3))
    def settle_the_latest_lease(self, outcomes: list[Outcome]) -> None:
        token = self.deliveries[-1].token
        self.deliveries.sort(key=lambda delivery: delivery.token == token)
        places = range(min(6, sum(delivery.token == token for delivery in self.deliveries)))
        self.settle(
            [(n, outcome, Retry.NOW, True) for n, outcome in zip(places, itertools.cycle(outcomes), strict=False)]
        )
        self.deliveries = [d for d in self.deliveries if d.token != token]

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICKS, whole=st.booleans(), others=OUTCOMES | st.just([]))
    def ack_a_lease(self, pick: int, whole: bool, others: list[tuple[int, Outcome, Retry, bool]]) -> None:
        """All of it or up to one of its messages; among others, which may be of the same lease."""
        delivery = self.pick(self.deliveries, pick)
        seq = WHOLE_LEASE if whole else delivery.seq
        said = msgspec.structs.replace(delivery.settlement(Outcome.ACK_THROUGH), seq=seq)
        settlements = [*self.settlements(others), said]
        self.both(lambda store: store.settle(settlements, self.now))

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICKS)
    def renew(self, pick: int) -> None:
        delivery = self.pick(self.deliveries, pick)
        renewal = Renewal(
            queue=delivery.queue,
            partition=delivery.partition,
            token=delivery.token,
            lease_seconds=10,
            group=delivery.group,
        )
        (result,) = self.both(lambda store: store.renew([renewal], self.now))
        if result.deadline is not None:
            self.deliveries = [
                msgspec.structs.replace(d, lease_deadline=min(d.lease_deadline, result.deadline))
                if d.token == delivery.token
                else d
                for d in self.deliveries
            ]

    @precondition(lambda self: self.deliveries)
    @rule(
        choices=OUTCOMES,
        messages=MESSAGES,
        queue=PICKS,
        effects=EFFECTS,
        keys=st.lists(st.sampled_from(RECEIPTS), max_size=2),
    )
    def transact(
        self,
        choices: list[tuple[int, Outcome, Retry, bool]],
        messages: list[tuple[str, str | None, int | None]],
        queue: int,
        effects: list[tuple[str, int, int]],
        keys: list[str],
    ) -> None:
        receipts = [self.receipt(key, number) for number, key in enumerate(keys)]
        transaction = Transaction(
            self.settlements(choices), self.batch(messages, queue), self.effects(effects), receipts
        )
        self.do_transact(transaction)

    @rule(effects=EFFECTS, keys=st.lists(st.sampled_from(RECEIPTS), max_size=2))
    def record(self, effects: list[tuple[str, int, int]], keys: list[str]) -> None:
        receipts = [self.receipt(key, number) for number, key in enumerate(keys)]
        self.do_transact(Transaction([], PushBatch([], []), self.effects(effects), receipts))

    def effects(self, wanted: list[tuple[str, int, int]]) -> list[Effect]:
        """Effects on counters that follow one another, but for those that are mistaken."""
        built = []
        counted = {id_: len(self.model.events.get(self.counter(id_), [])) for id_ in COUNTERS}
        for id_, number, mistake in wanted:
            events = [NewEvent("Added", b'{"by":1}')] * number
            state = b"%d" % (counted[id_] + number)
            built.append(Effect(self.counter(id_), counted[id_] + mistake, events, state, self.mint.mint()))
            counted[id_] += number
        return built

    def do_transact(self, transaction: Transaction) -> None:
        (actual,) = self.run(self.store.transact([transaction], self.now))

        def agree(model: ReferenceStore) -> None:
            (expected,) = self.run(model.transact([transaction], self.now))
            said, wanted = [(o.committed, o.conflict, o.conflict_at) for o in (actual, expected)]
            assert said == wanted, f"(store, reference) say {said}, {wanted}"
            if actual.committed:
                assert plain(actual) == plain(expected)

        self.keep([(model, agree) for model in self.models])

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICKS, good=st.sampled_from([True, True, True, False]))
    def release(self, pick: int, good: bool) -> None:
        """By hand; how many rows of an unordered queue a lease has is the store's own."""
        delivery = self.pick(self.deliveries, pick)
        token = delivery.token if good else Token(bytes(self.mint.mint()))

        async def released(store: Store) -> bool:
            place = (delivery.queue, delivery.group, delivery.partition)
            return await store.release_lease(*place, token, self.now) > 0

        self.both(released)

    @rule(queue=PICKS, pick=PICKS, dry_run=st.sampled_from([False, False, False, True]))
    def delete_message(self, queue: int, pick: int, dry_run: bool) -> None:
        """Any message there ever was, mostly one that is still there; also dead letters."""
        key = self.pick(self.queues, queue)
        log = self.model.log(key)
        seq = Seq(self.pick(sorted(log.entries) or sorted(log.written) or [1], pick))

        async def deleted(store: Store) -> object:
            try:
                return await store.delete_message(key, seq, None, self.now, dry_run)
            except SkepError as error:
                return error.code

        self.both(deleted)

    @rule(queue=PICKS, picks=st.lists(PICKS, min_size=1, max_size=4), dry_run=st.sampled_from([False, False, True]))
    def forget(self, queue: int, picks: list[int], dry_run: bool) -> None:
        """Any messages there ever were, also dead letters, with all that stems from them."""
        key = self.pick(self.queues, queue)
        log = self.model.log(key)
        ranges = runs_of(self.pick(range(1, log.last_seq + 1), pick) for pick in picks) if log.last_seq else []
        self.both(lambda store: store.forget(key, None, ranges, Seq(0), PLENTY, self.now, dry_run))

    @rule(seconds=st.sampled_from([0, 1, 2, 5, 20, 40]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.keep([(model, lambda _: None) for model in self.models])

    @rule(
        what=st.sampled_from(["seek", "delete_group", "clear"]),
        queue=PICKS,
        group=GROUP_NAMES,
        mode=st.sampled_from(list(StartMode)),
        back=st.integers(0, 30),
        scope=st.sampled_from(list(ClearScope)),
    )
    def move(self, what: str, queue: int, group: str, mode: StartMode, back: int, scope: ClearScope) -> None:
        """What is done by hand, and seldom."""
        match what:
            case "seek":
                self.seek(queue, group, mode, back)
            case "clear":
                self.clear(queue, scope)
            case _:
                self.delete_group(queue, "g")

    def seek(self, queue: int, group: str, mode: StartMode, back: int) -> None:
        key, value = self.pick(self.queues, queue), self.now - back * 1_000_000 if mode is StartMode.TIME else back
        self.both(lambda store: store.seek(key, group, Start(mode, value), self.now))

    def delete_group(self, queue: int, group: str) -> None:
        key = self.pick(self.queues, queue)
        self.both(lambda store: store.delete_group(key, group, self.now))

    def clear(self, queue: int, scope: ClearScope) -> None:
        key = self.pick(self.queues[: len(NAMES)], queue)
        actual = self.run(self.store.clear(key, scope, self.now))

        def agree(model: ReferenceStore) -> None:
            assert actual.scheduled == self.run(model.clear(key, scope, self.now)).scheduled

        self.keep([(model, agree) for model in self.models])

    @rule(
        queue=PICKS, what=st.sampled_from(list(Change)), partition=st.none() | PARTITIONS, delay=st.sampled_from([0, 3, 20]),
        limit=st.sampled_from([1, 2, 100]),
    )  # fmt: skip
    def change_scheduled(self, queue: int, what: Change, partition: str | None, delay: int, limit: int) -> None:
        """One bounded step; marks and arrivals are each store's own, so they are not compared."""
        key = self.pick(self.queues[: len(NAMES)], queue)
        deliver_at = Instant(self.now + delay * 1_000_000) if what is Change.MOVE else None

        async def changed(store: Store) -> object:
            wanted = ScheduledFilter(
                tenant=key.tenant, queue=key.name, partition=partition, mark=await store.scheduled.mark(key)
            )
            count = (await store.scheduled.count(wanted, None)).count
            step = await store.scheduled.change(wanted, what, deliver_at, None, limit, self.now)
            left = await store.scheduled.page(ScheduledFilter(tenant=key.tenant, queue=key.name), None, PLENTY, None)
            return count, step.changed, [(one.id, one.deliver_at, one.partition) for one in left.messages]

        self.both(changed)

    @rule(queue=PICKS, back=st.integers(0, 3), archived=st.booleans())
    def report_progress(self, queue: int, back: int, archived: bool) -> None:
        key = self.pick(self.queues, queue)
        seq = Seq(max(0, self.model.log(key).last_seq - back))
        self.both(lambda store: store.report_progress(key, "lake", seq, self.now, archived))

    @rule(queue=PICKS, limit=st.sampled_from([1, 2, 100]))
    def do_chores(self, queue: int, limit: int) -> None:
        key = self.pick(self.queues, queue)
        self.both(lambda store: store.promote(key, self.now, limit))
        self.both(lambda store: store.expire(key, self.now, PLENTY))
        self.both(lambda store: store.retain(key, self.now, PLENTY))

    @precondition(lambda self: len(self.queues) > len(NAMES))
    @rule(
        queue=PICKS, count=st.sampled_from([1, 2, 9]), partition=st.none() | PARTITIONS, group=st.none() | GROUP_NAMES
    )
    def replay(self, queue: int, count: int, partition: str | None, group: str | None) -> None:
        wanted = DeadLetterFilter(queue=self.pick(self.queues[len(NAMES) :], queue), partition=partition, group=group)
        ids = self.mint.mint_many(count)
        self.both(lambda store: store.count_dead_letters(wanted))
        self.both(lambda store: store.replay(wanted, ids, Seq(PLENTY), self.now))

    @precondition(lambda self: len(self.queues) > len(NAMES))
    @rule(queue=PICKS, count=st.sampled_from([1, 9]), partition=st.none() | PARTITIONS)
    def purge(self, queue: int, count: int, partition: str | None) -> None:
        wanted = DeadLetterFilter(queue=self.pick(self.queues[len(NAMES) :], queue), partition=partition)
        self.both(lambda store: store.purge(wanted, count, self.now))


def machine(make: Callable[[], Store]) -> type[StoreMachine]:
    return type("Machine", (StoreMachine,), {"make_store": staticmethod(make)})


def run_machine(make: Callable[[], Store], examples: int, steps: int = 30) -> None:
    run_state_machine_as_test(
        machine(make),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


def test_sqlite_agrees_with_the_reference() -> None:
    run_machine(lambda: SqliteStore(":memory:"), examples=20)


def test_postgres_agrees_with_the_reference(shared_dsn: str) -> None:
    run_machine(lambda: PostgresStore(shared_dsn, max_connections=2), examples=6)


@pytest.mark.slow
def test_sqlite_agrees_with_the_reference_for_longer() -> None:
    run_machine(lambda: SqliteStore(":memory:"), examples=400, steps=50)


@pytest.mark.slow
def test_postgres_agrees_with_the_reference_for_longer(shared_dsn: str) -> None:
    run_machine(lambda: PostgresStore(shared_dsn, max_connections=2), examples=100, steps=50)
