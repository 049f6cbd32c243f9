"""Workers: functions that messages are handed to."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import skep
from skep.client.worker.keeping import Keeping
from skep.errors import Code
from skep.model import Ordering
from skep.testing.server import RunningServer
from tests.client.working import left_in


def test_a_message_is_acked_when_its_function_returns(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [{"number": 1}, {"number": 2}])
    seen = []

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        seen.append((message.json()["number"], message.attempt))

    assert worker.run(until_empty=True) == 2
    assert seen == [(1, 1), (2, 1)]
    assert left_in(client, "orders") == 0


def test_async_functions_are_handed_messages_too(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1, 2])
    seen = []

    @worker.on("orders", group="billing")
    async def handle(message: skep.AsyncMessage) -> None:
        await asyncio.sleep(0)
        seen.append(message.json())

    worker.run(until_empty=True)

    assert seen == [1, 2]
    assert client.group("billing").lag == 0


def test_a_message_is_nacked_with_its_exception(client: skep.Client, worker: skep.Worker) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", [1])

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        raise ValueError("out of stock")

    worker.run(until_empty=True)

    [letter] = client.dead_letters("orders")
    assert (letter.reason, (letter.error or "").splitlines()[0]) == ("max_attempts", "ValueError: out of stock")


def test_a_failing_message_does_not_let_its_partition_overtake(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1, 2, 3])
    seen = []

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        seen.append((message.json(), message.attempt))
        if message.json() == 2 and message.attempt == 1:
            raise skep.Retry("not yet")

    worker.run(until_empty=True)

    assert seen == [(1, 1), (2, 1), (2, 2), (3, 2)]
    assert left_in(client, "orders") == 0


def test_a_failing_message_of_an_unordered_queue_concerns_only_itself(client: skep.Client, worker: skep.Worker) -> None:
    client.configure("mails", ordering=Ordering.UNORDERED)
    client.push("mails", [1, 2, 3])
    seen = []

    @worker.on("mails", concurrency=1)
    def handle(message: skep.Message) -> None:
        seen.append(message.json())
        if message.json() == 1:
            raise skep.RetryAt(datetime.now(UTC) + timedelta(hours=1), "later")

    worker.run(until_empty=True)

    assert seen == [1, 2, 3]
    assert left_in(client, "mails") == 1


def test_a_function_may_reject_its_message(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1, 2])
    seen = []

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        seen.append(message.json())
        if message.json() == 1:
            raise skep.Reject("no such customer")

    worker.run(until_empty=True)

    [letter] = client.dead_letters("orders")
    assert (letter.reason, letter.error, seen) == ("rejected", "no such customer", [1, 2])


def test_a_function_may_say_how_long_to_wait(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1])

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        raise skep.Retry("busy", delay=3600)

    assert worker.run(until_empty=True) == 1
    assert left_in(client, "orders") == 1


def test_a_function_may_settle_its_message_itself(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1])

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        with message.transaction() as tx:
            tx.push("bills", {"order": message.json()})

    worker.run(until_empty=True)

    assert left_in(client, "orders") == 0
    assert client.pop("bills")[0].json() == {"order": 1}


def test_what_a_function_pushes_is_handled_before_the_end(client: skep.Client, worker: skep.Worker) -> None:
    client.push("first", [1])
    seen = []

    @worker.on("second")
    def second(message: skep.Message) -> None:
        seen.append(message.json())

    @worker.on("first")
    def first(message: skep.Message) -> None:
        client.push("second", [message.json() + 1])

    assert worker.run(until_empty=True) == 2
    assert seen == [2]


def test_I4_partitions_run_side_by_side_and_each_in_order(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [skep.NewMessage(n, partition=f"p-{n % 3}") for n in range(30)])
    seen: dict[str, list[int]] = defaultdict(list)
    together = threading.Barrier(3)

    @worker.on("orders", concurrency=3, batch=30)
    def handle(message: skep.Message) -> None:
        if not seen[message.partition]:
            together.wait(30)  # passes only when three partitions are worked on at once
        seen[message.partition].append(message.json())

    worker.run(until_empty=True)

    assert seen == {f"p-{start}": list(range(start, 30, 3)) for start in range(3)}


def test_no_more_than_concurrency_run_at_once(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [skep.NewMessage(n, partition=str(n)) for n in range(20)])
    running, most = 0, 0

    @worker.on("orders", concurrency=2, batch=20)
    async def handle(message: skep.AsyncMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    assert worker.run(until_empty=True) == 20
    assert most == 2


def test_acks_go_together(client: skep.Client, worker: skep.Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    client.push("orders", list(range(50)))
    sizes = []
    settle = skep.AsyncClient.settle

    async def counted(self: skep.AsyncClient, acks: Any) -> Any:
        sizes.append(len(acks))
        return await settle(self, acks)

    monkeypatch.setattr(skep.AsyncClient, "settle", counted)

    @worker.on("orders", batch=50)
    async def handle(message: skep.AsyncMessage) -> None:
        pass

    worker.run(until_empty=True)

    assert left_in(client, "orders") == 0
    assert len(sizes) < 10


def test_I9_a_lease_is_kept_while_its_function_runs(
    client: skep.Client, worker: skep.Worker, server: RunningServer
) -> None:
    client.push("orders", [1])
    attempts = []

    @worker.on("orders", lease_seconds=0.3)
    def handle(message: skep.Message) -> None:
        attempts.append(message.attempt)
        renewed = message.lease_deadline + timedelta(seconds=0.3)
        while client.leases("orders")[0].lease_deadline < renewed:
            pass

    worker.run(until_empty=True)

    assert attempts == [1]
    assert left_in(client, "orders") == 0


def test_a_worker_that_may_not_pop_says_so(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1])

    @worker.on("orders", group="\0")
    def handle(message: skep.Message) -> None:
        raise AssertionError("it must not be called")

    with pytest.raises(skep.SkepError) as raised:
        worker.run()

    assert raised.value.code is Code.INVALID_NAME


def test_I6_a_lost_lease_begins_no_more_of_its_messages(
    client: skep.Client, worker: skep.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.push("orders", [1, 2])
    noticed = threading.Event()
    renew = Keeping.renew
    seen = []

    async def watched(self: Keeping, lease_ids: list[str]) -> None:
        await renew(self, lease_ids)
        if any(self.lost(lease_id) for lease_id in lease_ids):
            noticed.set()

    monkeypatch.setattr(Keeping, "renew", watched)

    @worker.on("orders", batch=2, group="g", lease_seconds=0.3)
    def handle(message: skep.Message) -> None:
        seen.append(message.json())
        if len(seen) == 1:
            client.seek("orders", "g", "beginning")  # which ends the lease
            assert noticed.wait(30)

    worker.run(until_empty=True)

    assert seen == [1, 1, 2]
    assert left_in(client, "orders") == 0


def test_a_worker_without_functions_is_a_mistake(worker: skep.Worker) -> None:
    with pytest.raises(skep.SkepError, match="no functions"):
        worker.run()


async def test_a_worker_runs_in_a_loop_that_is_there(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1])
    worker = skep.Worker(async_client)
    seen = []

    @worker.on("orders")
    async def handle(message: skep.AsyncMessage) -> None:
        seen.append(message.json())

    assert await worker.run_async(until_empty=True) == 1
    assert await worker.run_async(until_empty=True) == 0
    assert seen == [1]


@pytest.mark.parametrize("raised", [ValueError, skep.Reject, skep.Retry])
def test_an_error_that_is_no_unicode_keeps_no_message_from_being_settled(
    client: skep.Client, worker: skep.Worker, raised: type[Exception]
) -> None:
    client.configure("files", max_attempts=1)
    for name in "abcd":
        client.push("files", name, partition=name)

    @worker.on("files")
    def handle(message: skep.Message) -> None:
        if message.json() == "a":
            raise raised(os.fsdecode(b"\xff is not there"))

    worker.run(until_empty=True)

    [letter] = client.dead_letters("files")
    assert "is not there" in (letter.error or "")
    assert left_in(client, "files") == 0


def test_a_message_is_nacked_when_what_its_function_waited_for_was_cancelled(
    client: skep.Client, worker: skep.Worker
) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", [1])

    @worker.on("orders")
    async def handle(message: skep.AsyncMessage) -> None:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    assert worker.run(until_empty=True) == 1
    assert [(letter.error or "").splitlines()[0] for letter in client.dead_letters("orders")] == ["CancelledError"]


class Abort(BaseException):
    """What a library may raise that is no Exception."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [SystemExit(3), Abort("enough"), KeyboardInterrupt()], ids=repr)
def test_a_function_that_exits_fails_its_message_and_ends_nothing_but_itself(
    client: skep.Client, worker: skep.Worker, error: BaseException, is_async: bool
) -> None:
    """`sys.exit()` of a library in a thread or in the loop: the message is settled, and the others are worked on."""
    client.configure("orders", max_attempts=1)
    client.push("orders", ["bad", "good"], partition="p")

    def handle(message: skep.Message) -> None:
        if message.json() == "bad":
            raise error

    async def handle_async(message: skep.AsyncMessage) -> None:
        if message.json() == "bad":
            raise error

    worker.on("orders")(handle_async if is_async else handle)

    while worker.run(until_empty=True):  # an interrupt lets it stop, as Ctrl-C does
        pass

    [letter] = client.dead_letters("orders")
    assert (letter.error or "").startswith(type(error).__name__)
    assert left_in(client, "orders") == 0


def test_a_log_that_cannot_be_written_keeps_no_worker_from_going_on(client: skep.Client, worker: skep.Worker) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", [1, 2])

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        raise ValueError

    def fail(_: logging.LogRecord) -> bool:
        raise OSError("no room for logs")

    log = logging.getLogger("skep.worker")
    log.addFilter(fail)
    try:
        assert worker.run(until_empty=True) == 2
    finally:
        log.removeFilter(fail)
    assert left_in(client, "orders") == 0


class Speechless(skep.Reject):
    """A refusal that cannot say why, which the worker does not expect."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_message_that_cannot_be_settled_does_not_end_the_work_on_others(
    client: skep.Client, worker: skep.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    client.push("orders", [1], partition="a")
    client.push("orders", [2, 3], partition="b")
    seen = []

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        if message.partition == "a":
            raise Speechless
        seen.append(message.json())

    worker.run(until_empty=True)

    assert seen == [2, 3]
    assert left_in(client, "orders") == 1
    assert "1 messages of orders come again" in caplog.text
