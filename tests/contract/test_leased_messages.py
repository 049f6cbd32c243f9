"""What is under a live lease: a door whose clients name messages and no seqs finds the seq and the token by it."""

from __future__ import annotations

from skep.model import LeasedMessage, LeaseFilter, Ordering
from tests.contract.driver import Driver


async def leased(driver: Driver, **wanted: object) -> list[tuple[str, int]]:
    """The partitions and seqs that a filter finds."""
    return [(one.partition, one.seq) for one in await found(driver, **wanted)]


async def found(driver: Driver, **wanted: object) -> list[LeasedMessage]:
    [messages] = await driver.store.leased_messages([LeaseFilter(queue=driver.key(), **wanted)], driver.now)  # type: ignore[arg-type]
    return messages


async def test_the_messages_of_a_lease_have_their_names_and_its_token(driver: Driver) -> None:
    [first] = await driver.push("1", partition="a", transaction_id="t1")
    [second] = await driver.push("2", partition="a")
    held = await driver.pop(partition="a", batch=2)
    assert await found(driver, partition="a") == [
        LeasedMessage(
            partition="a", seq=one.seq, id=pushed.id, transaction_id=one.transaction_id, token=one.token,
            deadline=one.lease_deadline,
        )
        for one, pushed in zip(held, (first, second), strict=True)
    ]  # fmt: skip


async def test_a_partition_or_a_token_or_both_find_leases(driver: Driver) -> None:
    for partition in "abc":
        await driver.push("1", "2", partition=partition)
    both = await driver.pop(batch=4, max_partitions=2)
    other = await driver.pop(batch=1)
    token = both[0].token
    assert await leased(driver, token=token) == [("a", 1), ("a", 2), ("b", 3), ("b", 4)]
    assert await leased(driver, partition="b", token=token) == [("b", 3), ("b", 4)]
    assert await leased(driver, partition="c") == [("c", 5)]
    assert await leased(driver, partition="c", token=token) == []
    assert await leased(driver, partition="c", token=other[0].token) == [("c", 5)]
    assert await leased(driver, partition="none") == []


async def test_what_is_settled_or_ran_out_is_under_no_lease(driver: Driver) -> None:
    await driver.push("1", "2", "3")
    held = await driver.pop(batch=3, lease_seconds=10.0)
    await driver.ack(held[0])
    assert await leased(driver, partition="Default") == [("Default", 2), ("Default", 3)]
    driver.clock.advance(10)
    assert await leased(driver, partition="Default") == []
    assert await leased(driver, token=held[0].token) == []


async def test_groups_and_unknown_names_have_their_own(driver: Driver) -> None:
    assert await leased(driver, partition="Default") == []
    await driver.push("1")
    await driver.pop(group="one")
    assert await leased(driver, partition="Default", group="one") == [("Default", 1)]
    assert await leased(driver, partition="Default") == []
    assert await leased(driver, partition="Default", group="two") == []


async def test_unordered_queues_lease_sets(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push("1", "2", "3", transaction_id=None)
    await driver.push("4", partition="p")
    first, second = await driver.pop(batch=2), await driver.pop(batch=2)
    assert await leased(driver, token=first[0].token) == [("Default", 1), ("Default", 2)]
    assert sorted(seq for _, seq in await leased(driver, token=second[0].token)) == [3, 4]
    assert await leased(driver, partition="p") == [("p", 4)]
    assert await leased(driver, partition="p", token=second[0].token) == [("p", 4)]
    await driver.ack(first[0])
    assert await leased(driver, partition="Default") == [("Default", 2), ("Default", 3)]


async def test_the_one_partition_of_a_fifo_queue(driver: Driver) -> None:
    await driver.create(ordering=Ordering.FIFO)
    await driver.push("1", partition="a")
    [held] = await driver.pop()
    assert await leased(driver, partition="a") == [("Default", 1)]
    assert await leased(driver, partition="a", token=held.token) == [("Default", 1)]


async def test_several_filters_have_an_answer_each(driver: Driver) -> None:
    await driver.push("1", partition="a")
    await driver.pop()
    wanted = [LeaseFilter(queue=driver.key(name), partition="a") for name in ("missing", "q")]
    assert [len(one) for one in await driver.store.leased_messages(wanted, driver.now)] == [0, 1]


async def test_filters_of_one_group_have_their_own_messages(driver: Driver) -> None:
    for ordering in (Ordering.PER_KEY, Ordering.UNORDERED):
        name = ordering.value
        await driver.create(name, ordering=ordering)
        for partition in "ab":
            await driver.push("1", queue=name, partition=partition)
            await driver.push("2", queue=name, partition=partition)
        [first] = await driver.pop(name, partition="a", batch=1)
        [second] = await driver.pop(name, partition="b", batch=1)
        key = driver.key(name)
        wanted = [
            LeaseFilter(queue=key, partition="a"), LeaseFilter(queue=key, partition="b", token=second.token),
            LeaseFilter(queue=key, partition="a", token=second.token), LeaseFilter(queue=key, token=first.token),
            LeaseFilter(queue=key, partition="b"), LeaseFilter(queue=key, group="none", partition="a"),
        ]  # fmt: skip
        found = await driver.store.leased_messages(wanted, driver.now)
        assert [[one.seq for one in own] for own in found] == [[1], [3], [], [1], [3], []]
