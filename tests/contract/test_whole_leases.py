"""An ack of a whole lease, or of a lease up to a seq, comes to the same as acks of its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from skep.errors import Code
from skep.model import QUEUE_MODE_GROUP, WHOLE_LEASE, Delivery, Ordering, Outcome, Seq, Settlement, SettleResult
from skep.model import SettleStatus as Status
from skep.model.history import Journey
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops

ORDERINGS = list(Ordering)
WHOLE, SINGLE, EACH = "whole", "single", "each"
"""Queues to which the same happens, but for how their leases are acked: as a whole, by messages in one call, or in a call each."""

Taken = dict[str, list[Delivery]]


def whole(driver: Driver, delivery: Delivery, through: int = WHOLE_LEASE) -> Settlement:
    return msgspec.structs.replace(driver.settlement(delivery, Outcome.ACK_THROUGH), seq=Seq(through))


def completed(messages: int, repeated: bool = False) -> SettleResult:
    return SettleResult(Status.COMPLETED, messages=messages, repeated=repeated, frees=False)


def plainly(results: list[SettleResult]) -> list[SettleResult]:
    """What was answered, but for what is said to the engine alone."""
    return [msgspec.structs.replace(result, frees=False) for result in results]


async def settle(driver: Driver, *settlements: Settlement) -> list[SettleResult]:
    return plainly(await driver.settle(*settlements))


def by_lease(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    leases: dict[str, list[Delivery]] = {}
    for delivery in sorted(deliveries, key=lambda delivery: delivery.seq):
        leases.setdefault(delivery.partition, []).append(delivery)
    return [leases[name] for name in sorted(leases)]


async def pop_all(driver: Driver, **fields: Any) -> Taken:
    taken = {queue: await driver.pop(queue, **fields) for queue in (WHOLE, SINGLE, EACH)}
    driver.clock.advance(1)
    return taken


# What happens before the rest of each lease is acked. All queues have the same told of them at the same time.


async def nothing(driver: Driver) -> Taken:
    return await pop_all(driver)


async def some_acked(driver: Driver) -> Taken:
    """The first of each lease, and one in its middle."""
    taken = await pop_all(driver)
    for queue, deliveries in taken.items():
        leases = by_lease(deliveries)
        await driver.ack(*(one for lease in leases for one in (lease[0], lease[2])))
        taken[queue] = [one for lease in leases for one in (lease[1], *lease[3:])]
    return taken


async def one_retried(driver: Driver) -> Taken:
    """One in the middle failed, and those before it were acked; what is left of an ordered queue comes again."""
    taken = await pop_all(driver)
    for deliveries in taken.values():
        for lease in by_lease(deliveries):
            acks = [driver.settlement(one) for one in lease[:2]]
            await settle(driver, *acks, driver.settlement(lease[2], Outcome.NACK, error="no"))
    driver.clock.advance(5)
    return await pop_all(driver)


async def ran_out(driver: Driver) -> Taken:
    await pop_all(driver)
    driver.clock.advance(11)
    return await pop_all(driver)


async def more_waiting(driver: Driver) -> Taken:
    """More waits behind the leases than they hold, and more comes."""
    taken = await pop_all(driver, batch=7)
    for queue in taken:
        await driver.push("late", "later", queue=queue, partition="a")
    return taken


async def one_deleted(driver: Driver) -> Taken:
    taken = await pop_all(driver)
    for queue in taken:
        await driver.delete_message(1, queue)
    again = await pop_all(driver)
    return {queue: again[queue] or taken[queue] for queue in taken}


Story = Callable[[Driver], Awaitable[Taken]]
STORIES: list[Story] = [nothing, some_acked, one_retried, ran_out, more_waiting, one_deleted]


async def begun(driver: Driver, ordering: Ordering, story: Story) -> Taken:
    """Five messages in each of two partitions, by turns, and what the story leaves of them under leases."""
    for queue in (WHOLE, SINGLE, EACH):
        await driver.create(queue, ordering=ordering, lease_seconds=10, initial_backoff_ms=1000, max_attempts=5)
        messages = [driver.message(f"{n}", queue, partition=partition) for n in range(5) for partition in "ab"]
        await driver.push_messages(*messages)
    return await story(driver)


async def seen(driver: Driver, queue: str) -> dict[str, str]:
    """Everything that can be seen of a queue, but for its name."""
    store, key, now = driver.store, driver.key(queue), driver.now
    messages = (await driver.browse(queue, group=QUEUE_MODE_GROUP, limit=100)).messages
    journeys = [Journey(key, one.partition, one.seq, one.created_at) for one in messages]
    deliveries = await store.deliveries(journeys)
    found = {
        "stats": await store.queue_stats(key, now),
        "states": [(one.seq, one.state) for one in messages],
        "partitions": await store.partition_stats(key, QUEUE_MODE_GROUP, now),
        "leases": await store.leases(driver.tenant, now, key),
        "failures": await store.failures([(key, one.seq) for one in messages]),
        "outcomes": [[(one.attempt, one.leased_at, one.settled_at, one.outcome) for one in of] for of in deliveries],
        "history": sorted((lease for _, lease in await store.lease_history(key)), key=repr),
        "times": sorted(await store.lease_times(key, driver.later(-3600)), key=repr),
    }
    return {name: repr(value).replace(repr(queue), "QUEUE") for name, value in found.items()}


CALLS = ("history", "times", "outcomes")
"""What has a row for each call that settles, and so tells a call for each message from one for all."""


async def compare(driver: Driver) -> None:
    one = await seen(driver, WHOLE)
    assert one == await seen(driver, SINGLE)
    each = await seen(driver, EACH)
    assert {name: value for name, value in one.items() if name not in CALLS} == {
        name: value for name, value in each.items() if name not in CALLS
    }


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("story", STORIES)
async def test_acking_leases_comes_to_the_same_as_acking_their_messages(
    driver: Driver, ordering: Ordering, story: Story
) -> None:
    left = await begun(driver, ordering, story)
    leases = by_lease(left[WHOLE])
    assert leases

    answers = await settle(driver, *(whole(driver, lease[0]) for lease in leases))
    await driver.ack(*left[SINGLE])
    for delivery in left[EACH]:
        await driver.ack(delivery)

    assert answers == [completed(len(lease)) for lease in leases]
    await compare(driver)
    # What comes after them is the same, too.
    driver.clock.advance(30)
    again = await pop_all(driver)
    assert payloads(again[WHOLE]) == payloads(again[SINGLE]) == payloads(again[EACH])
    await compare(driver)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("story", STORIES)
async def test_acking_leases_up_to_a_seq_leaves_the_rest_leased(
    driver: Driver, ordering: Ordering, story: Story
) -> None:
    left = await begun(driver, ordering, story)
    leases = {queue: by_lease(deliveries) for queue, deliveries in left.items()}
    halves = {queue: [one for lease in of for one in lease[: (len(lease) + 1) // 2]] for queue, of in leases.items()}

    answers = await settle(driver, *(whole(driver, half[0], half[-1].seq) for half in by_lease(halves[WHOLE])))
    await driver.ack(*halves[SINGLE])
    for delivery in halves[EACH]:
        await driver.ack(delivery)

    assert answers == [completed(len(half)) for half in by_lease(halves[WHOLE])]
    await compare(driver)
    rest = {queue: [one for one in left[queue] if one not in halves[queue]] for queue in left}
    answers = await settle(driver, *(whole(driver, lease[0]) for lease in by_lease(rest[WHOLE])))
    if rest[SINGLE]:
        await driver.ack(*rest[SINGLE])
        for delivery in rest[EACH]:
            await driver.ack(delivery)
    assert answers == [completed(len(lease)) for lease in by_lease(rest[WHOLE])]
    await compare(driver)


async def leased(driver: Driver, ordering: Ordering, messages: int = 4) -> list[Delivery]:
    """Messages of one lease with gaps between their seqs: every other one is of another partition."""
    await driver.create(ordering=ordering, lease_seconds=10, initial_backoff_ms=1000)
    if ordering is Ordering.FIFO:
        await driver.push(*"abcdefgh"[:messages])
    else:
        names = [("a", "b")[n % 2] for n in range(2 * messages)]
        await driver.push_messages(*(driver.message(f"{n}", partition=name) for n, name in enumerate(names)))
    fields = {} if ordering is Ordering.FIFO else {"partition": "a"}
    return sorted(await driver.pop(**fields), key=lambda delivery: delivery.seq)


async def pop_till_empty(driver: Driver) -> list[Delivery]:
    """In an unordered queue what comes again comes alone."""
    popped: list[Delivery] = []
    while taken := await driver.pop():
        popped += taken
    return popped


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I6_a_repeat_gets_the_first_answer_and_changes_nothing(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    half, rest = whole(driver, lease[0], lease[1].seq), whole(driver, lease[0])
    assert await settle(driver, half) == [completed(2)]
    assert await settle(driver, half) == [completed(2, repeated=True)]
    assert await settle(driver, rest) == [completed(2)]
    before = await driver.stats()

    assert await settle(driver, half, rest, rest) == [completed(2, repeated=True)] * 3
    assert plainly(await driver.ack(*lease)) == [completed(1, repeated=True)] * 4
    assert await driver.stats() == before


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I6_a_lease_that_was_acked_is_not_acked_up_to_any_other_seq(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    await settle(driver, whole(driver, lease[0]))

    (result,) = await settle(driver, whole(driver, lease[0], lease[1].seq))

    assert result.code is Code.STALE_LEASE


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_call_that_acks_a_lease_twice_is_told_that_nothing_was_left(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)

    first, through, rest = await settle(
        driver, whole(driver, lease[0], lease[-1].seq), whole(driver, lease[0], lease[0].seq), whole(driver, lease[0])
    )

    assert first == completed(len(lease))
    assert (through.code, rest.code) == (Code.NOT_IN_LEASE, Code.NOT_IN_LEASE)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I6_acks_of_some_messages_are_no_ack_of_their_lease(driver: Driver, ordering: Ordering) -> None:
    """Else the repeat of an ack of the whole would say of messages that ran out that they are done."""
    lease = await leased(driver, ordering)
    await driver.ack(*lease[:2])
    driver.clock.advance(11)
    assert {one.seq for one in await pop_till_empty(driver)} >= {lease[2].seq}

    (result,) = await settle(driver, whole(driver, lease[0]))

    assert result.code is Code.STALE_LEASE
    assert (await driver.stats()).completed == 2


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I6_a_lease_that_ran_out_and_is_held_by_another_is_refused(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    driver.clock.advance(11)
    await pop_till_empty(driver)
    before = await driver.stats()

    for said in (whole(driver, lease[0]), whole(driver, lease[0], lease[1].seq)):
        (result,) = await settle(driver, said)
        assert (result.status, result.code) == (Status.REFUSED, Code.STALE_LEASE)
    assert await driver.stats() == before


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I6_another_token_partition_group_or_queue_is_refused(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    await driver.pop(group="other", batch=1)
    good = whole(driver, lease[0])
    changes: list[dict[str, Any]] = [
        {"token": driver.token()}, {"partition": "none"}, {"group": "other"}, {"group": "none"}, {"queue": driver.key("none")},
    ]  # fmt: skip

    results = await settle(driver, *(msgspec.structs.replace(good, **change) for change in changes))

    assert {(result.status, result.code) for result in results} == {(Status.REFUSED, Code.STALE_LEASE)}
    assert await settle(driver, good) == [completed(4)]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_seq_before_all_that_is_left_is_refused(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    await driver.ack(lease[0])

    results = await settle(driver, whole(driver, lease[0], 0), whole(driver, lease[0], lease[0].seq))

    assert {result.code for result in results} == {Code.NOT_IN_LEASE}
    assert await settle(driver, whole(driver, lease[0])) == [completed(3)]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_what_the_call_says_of_a_message_goes_before_what_it_says_of_the_lease(
    driver: Driver, ordering: Ordering
) -> None:
    lease = await leased(driver, ordering)
    nack = driver.settlement(lease[1], Outcome.NACK, error="no")
    reject = driver.settlement(lease[2], Outcome.REJECT, error="never")

    told = await settle(driver, whole(driver, lease[0]), nack, reject)

    assert [one.status for one in told] == [Status.COMPLETED, Status.RETRYING, Status.DEAD]
    assert told[0].messages == 2
    assert (await driver.stats()).completed == 2
    assert [msgspec.structs.replace(one, repeated=True) for one in told] == await settle(
        driver, whole(driver, lease[0]), nack, reject
    )
    driver.clock.advance(2)
    again = {one.seq for one in await pop_till_empty(driver)} & {one.seq for one in lease}
    assert again == {lease[1].seq}


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_a_lease_is_that_of_one_partition_though_a_pop_took_several(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push_messages(*(driver.message(f"{n}", partition="abc"[n % 3]) for n in range(6)))
    first, second, third = by_lease(await driver.pop())
    assert first[0].token == second[0].token == third[0].token

    assert await settle(driver, whole(driver, second[0])) == [completed(2)]

    stats = await driver.stats()
    assert (stats.completed, stats.in_flight) == (2, 4)
    assert await settle(driver, whole(driver, second[0]), whole(driver, first[0])) == [completed(2, True), completed(2)]
    assert plainly(await driver.ack(*third)) == [completed(1)] * 2


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I15_a_transaction_acks_a_lease_whole_or_not_at_all(driver: Driver, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    said = [whole(driver, lease[0])]
    stale = msgspec.structs.replace(driver.settlement(lease[0]), token=driver.token())
    undone = await driver.transact([*said, stale], [driver.message("next", "next")])
    assert not undone.committed
    assert (await driver.stats()).completed == 0

    outcome = await driver.transact(said, [driver.message("next", "next")])
    repeat = await driver.transact(said, [driver.message("next", "next")])

    assert outcome.committed
    assert plainly(outcome.settled) == plainly(repeat.settled) == [completed(4)]
    assert repeat.repeated
    assert repeat.pushed.results[0].id == outcome.pushed.results[0].id
    assert await settle(driver, *said) == [completed(4, repeated=True)]
    assert plainly(await driver.ack(*lease)) == [completed(1, repeated=True)] * 4


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_an_ack_of_a_lease_can_wait_as_an_operation(driver: Driver, ops: Ops, ordering: Ordering) -> None:
    lease = await leased(driver, ordering)
    await ops.settle(whole(driver, lease[0]))
    token, claimed = await ops.claim()

    await driver.store.perform(token, claimed, driver.now)

    assert (await driver.stats()).completed == 4
    assert await settle(driver, whole(driver, lease[0])) == [completed(4, repeated=True)]


async def test_a_lease_of_several_sets_is_acked_with_all_of_them(driver: Driver) -> None:
    """In an unordered queue each priority has rows of its own."""
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push_messages(*(driver.message(f"{n}", priority=n % 3) for n in range(9)))
    lease = await driver.pop()
    assert len(lease) == 9

    assert await settle(driver, whole(driver, lease[0], 5)) == [completed(5)]
    assert await settle(driver, whole(driver, lease[0])) == [completed(4)]
    assert await settle(driver, whole(driver, lease[0], 5)) == [completed(5, repeated=True)]
    assert await settle(driver, whole(driver, lease[0])) == [completed(4, repeated=True)]
    assert (await driver.stats()).completed == 9
