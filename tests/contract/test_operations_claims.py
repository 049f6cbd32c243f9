"""Claims of operations: in order, bounded, by one server at a time, and worthless when they ran out (I13)."""

from __future__ import annotations

import pytest

from skep.errors import Code
from skep.model.operation import OperationKind, OperationStatus
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops, texts


async def test_a_claim_takes_a_partition_only_from_its_oldest_live_one_on(driver: Driver, ops: Ops) -> None:
    for text in "abc":
        await ops.push(text)
    first_token, first = await ops.claim(operations=1)

    _, nothing = await ops.claim()
    await ops.perform(first_token, first)
    _, rest = await ops.claim()

    assert texts(first) == ["a"]
    assert nothing == []
    assert texts(rest) == ["b", "c"]


async def test_a_claim_is_bounded_in_operations_messages_and_bytes(driver: Driver, ops: Ops) -> None:
    for n in range(4):
        await ops.push(f"{n}-a", f"{n}-b", partition=f"P{n}")

    assert texts((await ops.claim(operations=1))[1]) == ["0-a", "0-b"]
    assert texts((await ops.claim(messages=3))[1]) == ["1-a", "1-b"]
    assert texts((await ops.claim(bytes=1))[1]) == ["2-a", "2-b"]
    assert texts((await ops.claim())[1]) == ["3-a", "3-b"]


async def test_two_claims_never_share_an_operation(driver: Driver, ops: Ops) -> None:
    for n in range(10):
        await ops.push(str(n), partition=f"P{n}")

    taken = [texts((await ops.claim(operations=3))[1]) for _ in range(5)]

    assert sorted(text for claim in taken for text in claim) == [str(n) for n in range(10)]


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rules", "sqlite.operations", "postgres.operations"):
        monkeypatch.setattr(f"skep.store.{module}.CLAIM_HEADS", 2)
        monkeypatch.setattr(f"skep.store.{module}.CLAIM_PASSED", 1)


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize("free", ["00", "255", "99"])
async def test_claims_go_on_where_the_last_one_ended_until_they_have_been_everywhere(
    driver: Driver, ops: Ops, free: str
) -> None:
    for n in range(10, 40):
        await ops.push("blocked", partition=str(n))
    while (await ops.claim())[1]:
        pass
    for _ in range(3):
        claims = 1
        while (await ops.claim_once())[1].more:
            claims += 1
        assert claims <= 4  # at eight partitions each
    await ops.push("free", partition=free)

    assert texts((await ops.claim())[1]) == ["free"]
    assert (await ops.claim())[1] == []


async def test_acks_come_before_pushes_and_batches_of_them_before_single_ones(driver: Driver, ops: Ops) -> None:
    await driver.push("a", partition="A")
    await driver.push("b", partition="B")
    a, b = await driver.pop()
    await ops.push("push", partition="C")
    await ops.settle(driver.settlement(a), kind=OperationKind.ACK_SINGLE)
    await ops.settle(driver.settlement(b), kind=OperationKind.ACK_BATCH)

    _, first = await ops.claim()
    _, second = await ops.claim()

    assert [one.kind for one in first] == [OperationKind.ACK_BATCH, OperationKind.ACK_SINGLE] or [
        one.kind for one in first
    ] == [
        OperationKind.ACK_SINGLE,
        OperationKind.ACK_BATCH,
    ]
    assert [one.kind for one in second] == [OperationKind.PUSH]


async def test_a_claim_that_ran_out_is_worthless(driver: Driver, ops: Ops) -> None:
    await ops.push("a")
    await ops.push("b")
    slow_token, slow = await ops.claim()
    driver.clock.advance(30)
    token, claimed = await ops.claim()

    late = await ops.perform(slow_token, slow)
    in_time = await ops.perform(token, claimed)

    # Both were claimed together; the second claim has only the first of them, since what was tried before comes alone.
    assert texts(claimed) == ["a"]
    assert (late.done, late.lost) == ({}, [one.position for one in slow])
    assert list(in_time.done) == [claimed[0].position]
    await ops.drain()
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_a_claim_whose_time_is_up_counts_while_nobody_else_wanted_it(driver: Driver, ops: Ops) -> None:
    await ops.push("a")
    token, claimed = await ops.claim()
    driver.clock.advance(1000)

    performed = await ops.perform(token, claimed)

    assert list(performed.done) == [claimed[0].position]


async def test_reclaiming_counts_as_a_try_and_each_claim_lasts_longer(driver: Driver, ops: Ops) -> None:
    await driver.create()
    kept = await ops.push("poison")
    first = driver.now

    for tries in range(1, 5):
        _, (one,) = await ops.claim()
        assert (one.tries, one.exhausted) == (tries, False)
        driver.clock.advance(30 * 2 ** (tries - 1) - 1)
        assert (await ops.claim())[1] == []
        driver.clock.advance(1)
    token, (one,) = await ops.claim()
    assert (one.tries, one.exhausted, one.code, one.blocked_at) == (5, True, Code.INTERNAL, first)

    assert await ops.back(token, one, None, error="nobody came back", code=Code.INTERNAL) == [one.position]
    assert await ops.status(kept) is OperationStatus.FAILED


async def test_a_claim_lasts_no_longer_than_64_times_its_timeout(driver: Driver, ops: Ops) -> None:
    await ops.push("poison")

    for _ in range(10):
        assert len((await ops.claim())[1]) == 1
        driver.clock.advance(30 * 64)


async def test_one_that_failed_and_came_back_is_not_exhausted(driver: Driver, ops: Ops) -> None:
    await ops.push("fails")
    for _ in range(8):
        token, (one,) = await ops.claim()
        await ops.back(token, one, 0, error="it broke", code=Code.INTERNAL, blocked_at=driver.now)

    _, (one,) = await ops.claim()

    assert (one.tries, one.exhausted) == (9, False)


async def test_one_that_was_tried_before_is_claimed_alone(driver: Driver, ops: Ops) -> None:
    for n in range(3):
        await ops.push(str(n), partition=f"P{n}")
    token, claimed = await ops.claim(operations=2)
    await ops.back(token, claimed[0], 0, untried=True)
    await ops.back(token, claimed[1], 0, error="no")

    first, second, third = [(await ops.claim())[1] for _ in range(3)]

    assert [texts(first), texts(second), texts(third)] == [["0"], ["1"], ["2"]]
