"""Workers that wait, stop, or are cancelled: what runs is finished, and what was not begun is given back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import skep
from skep.testing.server import RunningServer
from tests.client.working import left_in


class Running:
    """A worker in a thread of its own."""

    def __init__(self, worker: skep.Worker) -> None:
        self._worker = worker
        self._result: int | BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._worker.run()
        except BaseException as error:
            self._result = error

    def result(self) -> int:
        self._thread.join(30)
        assert not self._thread.is_alive()
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result

    def stop(self) -> int:
        self._worker.stop()
        return self.result()


@pytest.fixture
def start(worker: skep.Worker) -> Iterator[Callable[[], Running]]:
    started: list[Running] = []

    def begin() -> Running:
        started.append(Running(worker))
        return started[-1]

    yield begin
    for running in started:
        worker.stop()
        running._thread.join(30)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_stop_finishes_what_runs_and_gives_back_what_was_not_begun(
    client: skep.Client, worker: skep.Worker, start: Callable[[], Running], concurrency: int
) -> None:
    client.push("orders", [1, 2, 3])
    begun, go_on = threading.Event(), threading.Event()
    seen = []

    @worker.on("orders", batch=3, concurrency=concurrency)
    def handle(message: skep.Message) -> None:
        begun.set()
        assert go_on.wait(30)
        seen.append(message.json())

    running = start()
    assert begun.wait(30)
    worker.stop()
    go_on.set()

    assert running.result() == 1
    assert seen == [1]
    [again] = client.pop("orders")
    assert again.json() == 2


async def test_a_cancelled_run_finishes_what_runs_and_gives_back_what_was_not_begun(
    client: skep.Client, worker: skep.Worker
) -> None:
    """As `stop` does: nobody waits for the rest of a batch who wants the worker to end."""
    client.push("orders", [1, 2, 3])
    begun, go_on = asyncio.Event(), asyncio.Event()
    seen = []

    @worker.on("orders", batch=3)
    async def handle(message: skep.AsyncMessage) -> None:
        begun.set()
        await go_on.wait()
        seen.append(message.json())

    running = asyncio.create_task(worker.run_async())
    await begun.wait()
    running.cancel()
    for _ in range(20):  # until it has come to all of its parts
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert seen == [1]
    [again] = await asyncio.to_thread(client.pop, "orders")
    assert again.json() == 2


def test_a_stop_before_the_first_run_is_remembered(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [1])
    worker.on("orders")(lambda _: None)

    worker.stop()

    assert worker.run() == 0
    assert worker.run(until_empty=True) == 1


def test_a_worker_that_waits_for_messages_stops(
    client: skep.Client, worker: skep.Worker, server: RunningServer, start: Callable[[], Running]
) -> None:
    client.push("orders", [1])
    handled = threading.Event()

    @worker.on("orders")
    def handle(message: skep.Message) -> None:
        handled.set()

    running = start()
    assert handled.wait(30)

    assert running.stop() == 1


def test_a_queue_that_is_not_there_yet_is_waited_for(
    client: skep.Client, worker: skep.Worker, start: Callable[[], Running]
) -> None:
    handled, waited_for = threading.Event(), threading.Event()

    @worker.on("not-there-yet")
    def handle(message: skep.Message) -> None:
        handled.set()

    @worker.on("there")
    def there(message: skep.Message) -> None:
        waited_for.set()

    client.push("there", [1])
    running = start()
    assert waited_for.wait(30)
    client.push("not-there-yet", [1])

    assert handled.wait(30)
    assert running.stop() == 2


PROGRAM = """
import sys, time, skep
worker = skep.Worker(sys.argv[1], tenant=sys.argv[2])

@worker.on("orders", batch=2)
def handle(message):
    print("begun", message.json(), flush=True)
    while not worker.stopping:
        time.sleep(0.01)

print("handled", worker.run())
"""


def test_sigterm_drains(client: skep.Client, server: RunningServer, tenant: str) -> None:
    client.push("orders", [1, 2])
    command = [sys.executable, "-c", PROGRAM, server.url, tenant]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun 1\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "handled 1\n"
        assert process.wait(30) == 0

    assert [message.json() for message in client.pop("orders")] == [2]


def test_I10_a_last_attempt_that_comes_while_stopping_is_no_dead_letter(
    client: skep.Client, worker: skep.Worker, start: Callable[[], Running]
) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", 1)
    seen: list[int] = []

    @worker.on("orders", concurrency=2)
    def handle(message: skep.Message) -> None:
        seen.append(message.json())
        if message.json() == 1:
            threading.Timer(0.2, worker.stop).start()
            while not worker.stopping:
                threading.Event().wait(0.01)
            client.push("orders", 2, partition="p")  # the poll that is under way gets it

    assert start().result() == len(seen)
    assert list(client.dead_letters("orders")) == []
    assert len(seen) + left_in(client, "orders") == 2


def test_an_interrupt_in_a_function_stops_the_worker_as_ctrl_c_does(client: skep.Client, worker: skep.Worker) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", "a")

    @worker.on("orders")
    def handle(_: skep.Message) -> None:
        raise KeyboardInterrupt

    assert worker.run() == 1
