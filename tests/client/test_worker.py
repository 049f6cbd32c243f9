"""Workers: functions that messages are handed to."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

import skep
from skep.client.worker.keeping import Keeping
from skep.errors import Code
from skep.model import Ordering
from skep.testing.server import RunningServer


@dataclasses.dataclass
class Order:
    number: int


@pytest.fixture
def worker(client: skep.Client) -> skep.Worker:
    return skep.Worker(client)


def left_in(client: skep.Client, queue: str) -> int:
    return client.stats(queue).stats.depth


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


def test_a_payload_comes_as_the_type_that_is_wanted(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [Order(7)])
    seen: list[Any] = []

    @worker.on("orders", group="one", type=Order)
    def plain(order: Order) -> None:
        seen.append(order)

    @worker.on("orders", group="two", type=Order)
    async def with_message(order: Order, message: skep.AsyncMessage) -> None:
        seen.append((order, message.seq))

    worker.run(until_empty=True)

    assert Order(7) in seen
    assert (Order(7), 1) in seen


def test_a_payload_that_does_not_fit_is_rejected_at_once(client: skep.Client, worker: skep.Worker) -> None:
    client.push("orders", [{"number": "seven"}])

    @worker.on("orders", type=Order)
    def handle(order: Order) -> None:
        raise AssertionError("it must not be called")

    worker.run(until_empty=True)

    [letter] = client.dead_letters("orders")
    assert letter.reason == "rejected"
    assert "does not fit Order" in (letter.error or "")


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


def test_an_interrupt_in_a_function_stops_the_worker_as_ctrl_c_does(client: skep.Client, worker: skep.Worker) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", "a")

    @worker.on("orders")
    def handle(_: skep.Message) -> None:
        raise KeyboardInterrupt

    assert worker.run() == 1


def test_an_annotation_may_name_a_type_of_the_enclosing_function_that_the_function_uses(
    client: skep.Client, worker: skep.Worker
) -> None:
    class Order(msgspec.Struct):
        number: int

    seen: list[Order] = []

    @worker.on("orders")
    def handle(order: Order) -> None:
        assert isinstance(order, Order)
        seen.append(order)

    client.push("orders", {"number": 7})

    assert worker.run(until_empty=True) == 1
    assert seen == [Order(7)]


class Total(TypedDict):
    total: float


class Placed(msgspec.Struct):
    number: int


class Model:
    """What a pydantic model looks like to those who decode."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.number == self.number

    __hash__ = None  # type: ignore[assignment] # as models that may change have it

    @classmethod
    def model_validate_json(cls, payload: bytes) -> Model:
        return cls(int(json.loads(payload)["number"]))


@pytest.mark.parametrize(
    ("kind", "pushed", "wanted"),
    [
        (Order, {"number": 7}, Order(7)),
        (Placed, {"number": 7}, Placed(7)),
        (Total, {"total": 7}, {"total": 7.0}),
        (Model, {"number": 7}, Model(7)),
        (dict, {"number": 7}, {"number": 7}),
        (list[int], [1, 2], [1, 2]),
        (int | None, None, None),
        (bytes, {"number": 7}, b'{"number":7}'),
    ],
    ids=["dataclass", "struct", "typed-dict", "model", "dict", "list", "union", "bytes"],
)
@pytest.mark.parametrize("with_message", [False, True], ids=["alone", "with-message"])
def test_a_payload_comes_as_the_type_that_the_argument_is_annotated_with(
    client: skep.Client, worker: skep.Worker, kind: Any, pushed: Any, wanted: Any, with_message: bool
) -> None:
    client.push("orders", [skep.NewMessage(pushed)])
    seen: list[Any] = []

    def alone(order: Any) -> None:
        seen.append(order)

    async def both(order: Any, message: skep.AsyncMessage) -> None:
        assert message.seq == 1
        seen.append(order)

    function: Any = both if with_message else alone
    function.__annotations__["order"] = kind
    worker.on("orders")(function)

    worker.run(until_empty=True)

    assert seen == [wanted]


@pytest.mark.parametrize("payload", [{"number": "seven"}, {}, [1], None, "text"])
def test_a_payload_that_does_not_fit_the_annotation_is_a_dead_letter_at_once_with_the_reason(
    client: skep.Client, worker: skep.Worker, payload: Any
) -> None:
    client.push("orders", [skep.NewMessage(payload)])

    @worker.on("orders")
    def handle(order: Order) -> None:
        raise AssertionError("it must not be called")

    worker.run(until_empty=True)

    [letter] = client.dead_letters("orders")
    assert letter.reason == "rejected"
    assert "the payload does not fit Order: " in (letter.error or "")


def test_bytes_that_are_no_json_are_a_dead_letter_for_a_type_and_themselves_for_bytes(
    client: skep.Client, worker: skep.Worker
) -> None:
    client.push("orders", b"\xff\x00", content_type="application/octet-stream")
    seen = []

    @worker.on("orders", group="typed")
    def typed(order: Order) -> None:
        raise AssertionError("it must not be called")

    @worker.on("orders", group="raw")
    def raw(order: bytes) -> None:
        seen.append(order)

    worker.run(until_empty=True)

    assert seen == [b"\xff\x00"]
    assert ["does not fit Order" in (one.error or "") for one in client.dead_letters("orders")] == [True]


class Opaque:
    def __init__(self, socket: object) -> None:
        self.socket = socket


@dataclasses.dataclass
class Holds:
    inner: list[Opaque]


@pytest.mark.parametrize("kind", [Opaque, Holds, dict[str, Opaque], threading.Lock, int | str | Order | Placed])
def test_a_type_that_nothing_can_be_decoded_to_is_refused_when_it_is_registered(worker: skep.Worker, kind: Any) -> None:
    def handle(order: Any) -> None: ...

    handle.__annotations__["order"] = kind

    with pytest.raises(skep.SkepError, match=r"a payload cannot be decoded to .* or take a skep\.Message"):
        worker.on("orders")(handle)
    with pytest.raises(skep.SkepError, match="a payload cannot be decoded to"):
        worker.on("orders", type=kind)(lambda order: None)


def test_a_type_that_nobody_can_find_is_refused_with_the_cure(worker: skep.Worker) -> None:
    def handle(order: Any) -> None: ...

    handle.__annotations__["order"] = "Nowhere"

    with pytest.raises(skep.SkepError, match="nobody knows the type 'Nowhere' of its argument 'order'"):
        worker.on("orders")(handle)
    worker.on("orders", type=Order)(handle)


def test_a_type_and_an_argument_that_wants_the_message_contradict_each_other(worker: skep.Worker) -> None:
    def handle(message: skep.Message) -> None: ...

    with pytest.raises(skep.SkepError, match="takes the message, and type= asks for the payload"):
        worker.on("orders", type=Order)(handle)


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
