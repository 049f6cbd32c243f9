"""Many producers and consumers on a clock that stands still: a signal that is lost would leave messages lying for ever.

Consumers are cancelled at random, in the middle of whatever they do, and come back. All that was pushed is completed.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from skep.model import Delivery, Ordering, PopRequest, QueueKey, QueueSettings
from tests.engine.driver import ANY, EngineDriver, message, settlement

CONSUMERS = 12
PRODUCERS = 4
PUSHES = 25


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_all_that_is_pushed_is_completed(driver: EngineDriver, ordering: Ordering, seed: int) -> None:
    random = Random(seed)
    keys = [QueueKey("a"), QueueKey("b")]
    for key in keys:
        settings = QueueSettings(namespace="shop", ordering=ordering, max_attempts=0)
        await driver.engine.create_queue(key, settings)
    pushed: set[bytes] = set()
    completed: set[bytes] = set()

    async def produce(number: int) -> None:
        for turn in range(PUSHES):
            payloads = [f"{number}{turn:03}{index}" for index in range(1, random.randint(2, 6))]
            partition = f"p{random.randrange(6)}"
            pushed.update(f"1{payload}".encode() for payload in payloads)
            chosen = keys if random.random() < 0.3 else [random.choice(keys)]
            await driver.engine.push(
                [message(f"1{payload}", random.choice(chosen), partition=partition) for payload in payloads]
            )

    async def consume(number: int) -> None:
        while True:
            batch = random.randint(1, 4)
            if number % 3:
                result = await driver.engine.pop(PopRequest(keys[number % 2], batch=batch), wait_seconds=300)
            else:
                result = await driver.engine.pop_matching(
                    PopRequest(ANY, batch=batch), namespace="shop", wait_seconds=300
                )
            # What a consumer holds when it is cancelled is its own affair, so it is not cancelled while it settles.
            await asyncio.shield(finish(result.deliveries))

    async def finish(deliveries: list[Delivery]) -> None:
        results = await driver.engine.settle([settlement(delivery) for delivery in deliveries])
        completed.update(
            delivery.payload
            for delivery, result in zip(deliveries, results, strict=True)
            if result.status == "completed"
        )

    consumers = [asyncio.ensure_future(consume(number)) for number in range(CONSUMERS)]
    producers = [asyncio.ensure_future(produce(number)) for number in range(PRODUCERS)]
    async with asyncio.timeout(60):
        while not (all(producer.done() for producer in producers) and completed == pushed):
            for _ in range(random.randrange(50)):
                await asyncio.sleep(0)
            if not all(producer.done() for producer in producers):
                number = random.randrange(CONSUMERS)
                consumers[number].cancel()
                consumers[number] = asyncio.ensure_future(consume(number))
            ended = [task for task in consumers if task.done() and not task.cancelled()]
            assert not [error for task in ended if (error := task.exception())]
    await driver.engine.stop()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)

    assert driver.clock.now() == 1_750_000_000_000_000
    for key in keys:
        stats = await driver.store.inner.queue_stats(key, driver.clock.now())
        for group in stats.groups:
            assert (group.pending, group.in_flight, group.completed) == (0, 0, group.pushed)
