"""Pop: order, groups, where they start, partitions, delays and windows, auto-ack, pause."""

from __future__ import annotations

from typing import Any

import pytest

from skep.clock import Instant
from skep.model import FROM_BEGINNING, FROM_NOW, Ordering, Start, StartMode
from tests.contract.driver import Driver, attempts, payloads, seqs
from tests.support.reference_store import ReferenceStore


async def test_I4_messages_of_a_partition_come_in_log_order(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.push("c")

    assert payloads(await driver.pop()) == ["a", "b", "c"]


async def test_a_delivery_says_how_to_settle_it(driver: Driver) -> None:
    await driver.create(lease_seconds=30)
    await driver.push("a")
    token = driver.token()

    (delivery,) = await driver.pop(token=token)

    assert (delivery.queue, delivery.group) == (driver.key(), "__QUEUE_MODE__")
    assert (delivery.token, delivery.attempt) == (token, 1)
    assert delivery.lease_deadline == driver.later(30)


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_a_pop_of_one_partition_is_not_told_to_look_again_for_what_others_have_ready(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, lease_seconds=30)
    await driver.push("theirs", partition="other")
    mine = driver.request(partition="mine")
    (first,) = await driver.store.pop([mine], driver.now)  # which discovers
    (nothing,) = await driver.store.pop([mine], driver.now)
    await driver.push("a", partition="mine")
    assert payloads(await driver.pop(partition="mine")) == ["a"]
    (leased,) = await driver.store.pop([mine], driver.now)

    assert [result.deliveries for result in (first, nothing, leased)] == [[], [], []]
    assert (nothing.next_ready_at, nothing.more) == (None, False)
    assert (leased.next_ready_at, leased.more) == (driver.later(30), False)


async def test_a_request_may_ask_for_another_lease(driver: Driver) -> None:
    await driver.push("a")

    delivery = await driver.pop_one(lease_seconds=7)

    assert delivery.lease_deadline == driver.later(7)


async def test_an_empty_queue_gives_nothing(driver: Driver) -> None:
    await driver.create()

    result = await driver.pop_result()

    assert (result.deliveries, result.next_ready_at, result.more) == ([], None, False)


async def test_a_batch_is_never_exceeded(driver: Driver) -> None:
    await driver.push("a", "b", "c")

    result = await driver.pop_result(batch=2)

    assert payloads(result.deliveries) == ["a", "b"]


async def test_I4_I5_a_leased_partition_gives_nothing_more(driver: Driver) -> None:
    await driver.push("a", "b")
    first = await driver.pop(batch=1)
    await driver.push("c")

    assert await driver.pop() == []

    await driver.ack(*first)
    assert payloads(await driver.pop()) == ["b", "c"]


async def test_I4_what_comes_to_a_partition_with_older_work_stays_behind_it(driver: Driver) -> None:
    await driver.push("a", partition="p")
    assert await driver.pop(partition="elsewhere") == []  # which finds "a" on its way
    await driver.push("b", partition="p")

    assert payloads(await driver.pop()) == ["a", "b"]


async def test_the_oldest_work_comes_first_over_partitions(driver: Driver) -> None:
    for partition in ("z", "a", "m"):
        await driver.push(partition, partition=partition)
        driver.clock.advance(1)

    assert payloads(await driver.pop()) == ["z", "a", "m"]


async def test_partitions_of_one_age_come_by_name(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in ("z", "a", "m")))

    assert payloads(await driver.pop()) == ["a", "m", "z"]


async def test_a_batch_takes_as_many_partitions_as_it_needs(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p + n, partition=p) for p in "abc" for n in "12"))

    first = await driver.pop(batch=5)
    second = await driver.pop(batch=5)

    assert payloads(first) == ["a1", "a2", "b1", "b2", "c1"]
    assert second == []
    assert len({d.token for d in first}) == 1


@pytest.mark.parametrize(("max_partitions", "expected"), [(1, ["a1", "a2"]), (2, ["a1", "a2", "b1", "b2"])])
async def test_max_partitions_bounds_them(driver: Driver, max_partitions: int, expected: list[str]) -> None:
    await driver.push_messages(*(driver.message(p + n, partition=p) for p in "abc" for n in "12"))

    assert payloads(await driver.pop(max_partitions=max_partitions)) == expected


async def test_one_partition_can_be_asked_for(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abc"))

    assert payloads(await driver.pop(partition="b")) == ["b"]
    assert await driver.pop(partition="b") == []
    assert await driver.pop(partition="nowhere") == []
    assert payloads(await driver.pop()) == ["a", "c"]


def long_log(driver: Driver) -> int:
    """How many messages are more than one discovery walks; the reference discovers all at once, and slowly."""
    return 100 if isinstance(driver.store, ReferenceStore) else 3_000


async def test_a_partition_behind_a_long_log_is_found(driver: Driver) -> None:
    await driver.push(*(str(n) for n in range(long_log(driver))), partition="long")
    await driver.push("here", partition="short")

    assert payloads(await driver.pop(partition="short", batch=1)) == ["here"]


async def test_a_long_log_is_drained_batch_by_batch(driver: Driver) -> None:
    length = long_log(driver)
    await driver.push_messages(*(driver.message(str(n), partition=f"p{n % 7}") for n in range(length)))
    taken: list[int] = []
    while deliveries := await driver.pop(batch=700):
        taken += seqs(deliveries)
        await driver.ack(*deliveries)

    assert sorted(taken) == list(range(1, length + 1))


async def test_partitions_take_any_text(driver: Driver) -> None:
    names = ["", " ", "ä/ö:%", "'; drop table message; --", "🐝", "x" * 255][1:]
    await driver.push_messages(*(driver.message(p, partition=p) for p in names))

    deliveries = await driver.pop()

    assert sorted(payloads(deliveries)) == sorted(names)
    assert {r.status.value for r in await driver.ack(*deliveries)} == {"completed"}


async def test_several_requests_of_one_call_are_served_in_turn(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "ab"))

    requests = [driver.request(batch=1), driver.request(batch=1), driver.request(batch=1)]
    results = await driver.store.pop(requests, driver.now)

    assert [payloads(r.deliveries) for r in results] == [["a"], ["b"], []]
    assert results[0].deliveries[0].token == requests[0].token
    assert results[1].deliveries[0].token == requests[1].token


async def test_requests_of_one_call_may_be_for_many_queues_and_groups(driver: Driver) -> None:
    await driver.push("a", queue="q")
    await driver.push("b", queue="r")

    requests = [driver.request("q", group="g"), driver.request("r"), driver.request("q", group="h")]
    results = await driver.store.pop(requests, driver.now)

    assert [payloads(r.deliveries) for r in results] == [["a"], ["b"], ["a"]]


async def test_more_says_that_another_pop_would_give_something(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "ab"))

    first = await driver.pop_result(batch=1)
    second = await driver.pop_result(batch=1)

    assert first.more
    assert not second.more
    assert second.next_ready_at == second.deliveries[0].lease_deadline


async def test_I9_the_next_moment_is_the_earliest_deadline(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "ab"))
    await driver.pop(batch=1, lease_seconds=50)
    await driver.pop(batch=1, lease_seconds=20)

    result = await driver.pop_result()

    assert (result.deliveries, result.next_ready_at) == ([], driver.later(20))


# groups


async def test_I14_every_group_gets_every_message(driver: Driver) -> None:
    await driver.push("a", "b")

    assert payloads(await driver.pop(group="g")) == ["a", "b"]
    assert payloads(await driver.pop(group="h")) == ["a", "b"]
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_I14_what_one_group_does_is_nothing_to_another(driver: Driver) -> None:
    await driver.create(max_attempts=1)
    await driver.push("a", "b", "c", partition="p")
    await driver.reject(await driver.pop_one(group="g"))
    await driver.nack(await driver.pop_one(group="g"))
    await driver.pop(group="g")

    deliveries = []
    while found := await driver.pop(group="h"):
        deliveries += found
        await driver.ack(*found)

    assert payloads(deliveries) == ["a", "b", "c"]
    assert attempts(deliveries) == [1, 1, 1]
    stats = await driver.stats(group="h")
    assert (stats.completed, stats.dead) == (3, 0)


async def test_a_new_group_starts_at_the_beginning_unless_told(driver: Driver) -> None:
    await driver.push("a")

    assert payloads(await driver.pop(group="g")) == ["a"]
    assert payloads(await driver.pop(group="h", start=FROM_BEGINNING)) == ["a"]


async def test_a_group_from_now_sees_only_what_comes(driver: Driver) -> None:
    await driver.push("old")

    assert await driver.pop(group="g", start=FROM_NOW) == []
    await driver.push("new")

    assert payloads(await driver.pop(group="g", start=FROM_NOW)) == ["new"]


async def test_a_group_may_start_at_a_time(driver: Driver) -> None:
    await driver.push("a")
    driver.clock.advance(10)
    at = driver.now
    await driver.push("b")
    driver.clock.advance(10)
    await driver.push("c")

    assert payloads(await driver.pop(group="at", start=Start(StartMode.TIME, at))) == ["b", "c"]
    assert payloads(await driver.pop(group="after", start=Start(StartMode.TIME, at + 1))) == ["c"]
    assert payloads(await driver.pop(group="long ago", start=Start(StartMode.TIME, 0))) == ["a", "b", "c"]
    assert await driver.pop(group="to come", start=Start(StartMode.TIME, driver.now + 1)) == []


@pytest.mark.parametrize(("seq", "expected"), [(0, ["a", "b", "c"]), (2, ["b", "c"]), (4, []), (99, [])])
async def test_a_group_may_start_at_a_seq(driver: Driver, seq: int, expected: list[str]) -> None:
    await driver.push("a", "b", "c")

    assert payloads(await driver.pop(group="g", start=Start(StartMode.SEQ, seq))) == expected

    await driver.push("d")
    if not expected:
        assert payloads(await driver.pop(group="g")) == ["d"]


async def test_where_a_known_group_starts_is_not_asked_again(driver: Driver) -> None:
    await driver.push("a")
    assert await driver.pop(group="g", start=FROM_NOW) == []

    assert await driver.pop(group="g", start=FROM_BEGINNING) == []


# delay, window, auto-ack, pause


async def test_delayed_processing_holds_each_message_back(driver: Driver) -> None:
    await driver.create(delayed_processing_seconds=10)
    await driver.push("a")
    driver.clock.advance(4)
    await driver.push("b")

    driver.clock.advance(5)
    result = await driver.pop_result()
    assert (result.deliveries, result.next_ready_at) == ([], driver.later(1))

    driver.clock.advance(1)
    (first,) = await driver.pop()
    assert first.payload == b"a"
    await driver.ack(first)
    assert await driver.pop() == []

    driver.clock.advance(4)
    assert payloads(await driver.pop()) == ["b"]


async def test_what_is_still_delayed_takes_no_room_in_the_batch(driver: Driver) -> None:
    await driver.create(delayed_processing_seconds=3)
    await driver.push_messages(driver.message("a", partition="1"), driver.message("b", partition="2"))
    driver.clock.advance(5)
    await driver.push("c", partition="1")

    assert payloads(await driver.pop(batch=2)) == ["a", "b"]


async def test_a_window_buffer_waits_until_the_partition_is_quiet(driver: Driver) -> None:
    await driver.create(window_buffer_seconds=10)
    await driver.push("a")
    await driver.push("other", partition="p")
    assert await driver.pop() == []

    driver.clock.advance(6)
    await driver.push("b")
    driver.clock.advance(6)
    assert payloads(await driver.pop()) == ["other"]

    driver.clock.advance(4)
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_steady_traffic_cannot_starve_a_window(driver: Driver) -> None:
    await driver.create(window_buffer_seconds=10)
    start = driver.now
    delivered_at: Instant | None = None
    for _ in range(30):
        await driver.push("tick")
        driver.clock.advance(5)
        if await driver.pop():
            delivered_at = driver.now
            break

    assert delivered_at == start + 100_000_000


async def test_auto_ack_settles_at_once(driver: Driver) -> None:
    await driver.push("a", "b")

    deliveries = await driver.pop(auto_ack=True)

    assert payloads(deliveries) == ["a", "b"]
    assert attempts(deliveries) == [1, 1]
    stats = await driver.stats()
    assert (stats.completed, stats.in_flight, stats.progress_seq) == (2, 0, 2)
    assert [r.status.value for r in await driver.ack(*deliveries)] == ["refused", "refused"]
    await driver.push("c")
    assert payloads(await driver.pop()) == ["c"]


LIFETIMES = pytest.mark.parametrize("lifetime", ["max_age_seconds", "max_wait_seconds"])


@LIFETIMES
async def test_I14_pops_of_two_groups_in_one_call_pass_what_is_too_old(driver: Driver, lifetime: str) -> None:
    settings: dict[str, Any] = {lifetime: 10}
    await driver.create(**settings)
    await driver.pop(group="behind")
    await driver.push("old")
    await driver.ack(*await driver.pop(group="ahead"))
    driver.clock.advance(11)
    await driver.push("young", partition="p")

    results = await driver.store.pop([driver.request(group="behind"), driver.request(group="ahead")], driver.now)

    assert [payloads(result.deliveries) for result in results] == [["young"], ["young"]]
    assert (await driver.stats(group="behind")).expired == 1


@LIFETIMES
async def test_a_message_is_delivered_until_its_lifetime_is_over_and_not_at_its_end(
    driver: Driver, lifetime: str
) -> None:
    settings: dict[str, Any] = {lifetime: 10}
    await driver.create(**settings)
    await driver.push("a", partition="p")
    await driver.push("b", partition="r")
    driver.clock.advance(9.999999)
    assert payloads(await driver.pop(partition="p")) == ["a"]

    driver.clock.advance(0.000001)

    assert await driver.pop(batch=1) == []


@LIFETIMES
@pytest.mark.parametrize("known", [True, False])
async def test_auto_ack_passes_what_is_too_old(driver: Driver, lifetime: str, known: bool) -> None:
    settings: dict[str, Any] = {lifetime: 10}
    await driver.create(**settings)
    if known:
        await driver.pop()
    await driver.push("old")
    driver.clock.advance(11)
    await driver.push("young", partition="p")

    assert payloads(await driver.pop(auto_ack=True)) == ["young"]
    stats = await driver.stats()
    assert (stats.completed, stats.expired) == (1, 1)


async def test_a_large_batch_passes_what_is_too_old_behind_many_partitions(driver: Driver) -> None:
    await driver.create(max_wait_seconds=100)
    await driver.push("old")
    (old,) = await driver.pop(lease_seconds=1000)
    driver.clock.advance(50)
    many = [f"p{n}" for n in range(150)]
    await driver.push_batches(driver.batch(*(driver.message(p, partition=p) for p in many)))
    driver.clock.advance(49)
    await driver.nack(old)
    driver.clock.advance(2)

    assert sorted(payloads(await driver.pop())) == sorted(many)
    assert (await driver.stats()).expired == 1


async def test_a_paused_queue_gives_nothing_and_takes_everything(driver: Driver) -> None:
    await driver.push("a")
    await driver.update(paused=True)
    await driver.push("b")
    assert await driver.pop() == []

    await driver.update(paused=False)
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_what_is_in_flight_can_be_settled_while_paused(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()
    await driver.update(paused=True)

    assert [r.status.value for r in await driver.ack(delivery)] == ["completed"]


async def test_a_delay_that_was_raised_holds_for_what_was_ready_before(driver: Driver) -> None:
    await driver.create()
    await driver.push("first", partition="a")
    await driver.push("second", partition="b")
    await driver.pop_one()
    await driver.update(delayed_processing_seconds=60)

    held_back = await driver.pop_result()
    driver.clock.advance(60)

    assert (held_back.deliveries, held_back.more) == ([], False)
    assert payloads(await driver.pop()) == ["second"]


async def test_a_pop_gives_as_many_as_fit_and_leaves_the_rest_unleased(driver: Driver) -> None:
    await driver.push("12345678", "abcdefgh", "x")

    first = await driver.pop_result(batch=100, max_bytes=16)
    stats = await driver.stats()

    assert payloads(first.deliveries) == ["12345678", "abcdefgh"]
    assert (stats.in_flight, stats.pending) == (2, 1)
    await driver.ack(*first.deliveries)
    assert attempts(await driver.pop(batch=100, max_bytes=20)) == [1]


async def test_a_pop_gives_one_message_though_it_is_larger_than_what_fits(driver: Driver) -> None:
    await driver.push("x" * 100, "y")

    assert payloads(await driver.pop(batch=100, max_bytes=20)) == ["x" * 100]


async def test_partitions_that_do_not_fit_are_left_to_the_next_pop(driver: Driver) -> None:
    await driver.push("12345678", partition="a")
    await driver.push("12345678", partition="b")
    await driver.push("1", partition="c")

    first = await driver.pop_result(batch=100, max_bytes=12)
    second = await driver.pop_result(batch=100)

    assert [d.partition for d in first.deliveries] == ["a"]
    assert first.more
    assert [(d.partition, d.attempt) for d in second.deliveries] == [("b", 1), ("c", 1)]


@LIFETIMES
async def test_behind_a_message_that_expired_the_next_one_comes_though_only_one_would_fit(
    driver: Driver, lifetime: str
) -> None:
    settings: dict[str, Any] = {lifetime: 60}
    await driver.create(**settings)
    await driver.push("12345678")
    driver.clock.advance(59)
    await driver.push("abcdefgh")
    driver.clock.advance(2)

    assert payloads(await driver.pop(batch=100, max_bytes=12)) == ["abcdefgh"]


async def test_headers_count_as_well(driver: Driver) -> None:
    await driver.push("a", "b", headers=b'{"k":"12345678"}')

    assert payloads(await driver.pop(batch=100, max_bytes=20)) == ["a"]


async def test_a_message_that_comes_again_and_does_not_fit_keeps_its_attempts(driver: Driver) -> None:
    await driver.create(lease_seconds=10)
    await driver.push("12345678", partition="b")
    await driver.pop(batch=1)
    driver.clock.advance(5)
    await driver.push("12345678", partition="a")
    await driver.pop(batch=1)
    driver.clock.advance(10)  # both leases ran out, that of b first

    first = await driver.pop(batch=100, max_bytes=12)
    second = await driver.pop(batch=100, max_bytes=12)

    assert [(d.partition, d.attempt) for d in (*first, *second)] == [("b", 2), ("a", 2)]


async def test_each_of_several_pops_has_room_of_its_own(driver: Driver) -> None:
    for partition in "abcd":
        await driver.push("12345678", "12345678", partition=partition)
    requests = [driver.request(batch=4, max_bytes=24) for _ in range(2)]

    results = await driver.store.pop(requests, driver.now)

    assert [len(result.deliveries) for result in results] == [3, 3]
    left = await driver.pop(batch=100)
    everything = [d for result in results for d in result.deliveries] + left
    assert [d.attempt for d in everything] == [1] * len(everything)


async def test_delayed_messages_take_no_room(driver: Driver) -> None:
    await driver.create(delayed_processing_seconds=5)
    await driver.push("12345678", partition="a")
    driver.clock.advance(3)
    await driver.push("12345678", partition="a")
    await driver.push("12345678", partition="b")
    driver.clock.advance(2)

    assert [d.partition for d in await driver.pop(batch=100, max_bytes=12)] == ["a"]
    driver.clock.advance(3)
    assert [d.partition for d in await driver.pop(batch=100, max_bytes=12)] == ["b"]


async def test_auto_ack_takes_a_retried_message_alone_as_a_lease_does(driver: Driver) -> None:
    await driver.push("a", "b", partition="p")
    await driver.push("c", partition="q")
    await driver.nack(*await driver.pop(partition="p", batch=1))

    assert sorted(payloads(await driver.pop(auto_ack=True))) == ["a", "c"]
    assert payloads(await driver.pop(auto_ack=True)) == ["b"]
