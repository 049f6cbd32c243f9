"""What a worker says of a function that fails: in the log by default, in the dead letter, and when it is registered."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import skep
from skep.client.error_texts import error_line, error_text
from skep.errors import Code
from skep.testing.server import RunningServer

if TYPE_CHECKING:
    from skep import Message as OnlyForTypeCheckers  # noqa: F401

LOGGER = "skep.worker"
KEPT_BY_A_SERVER = 8_192


@pytest.fixture
def worker(client: skep.Client) -> skep.Worker:
    return skep.Worker(client)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == LOGGER]


def run_until_dead(worker: skep.Worker, client: skep.Client, queue: str) -> str:
    """Work until the queue has a dead letter: its error."""
    while True:
        worker.run(until_empty=True)
        for letter in client.dead_letters(queue):
            return letter.error or ""


def test_each_failure_is_a_warning_and_the_last_one_an_error_with_the_traceback(
    client: skep.Client, worker: skep.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    client.configure("orders", max_attempts=2, initial_backoff_ms=1)
    client.push("orders", [1], partition="p")

    @worker.on("orders", group="billing")
    def bill(message: skep.Message) -> None:
        raise ValueError("out of stock")

    error = run_until_dead(worker, client, "orders")

    assert told(caplog) == [
        ("WARNING", "seq 1 of orders (partition p, group billing) failed on attempt 1 and comes again: ValueError: out of stock"),
        ("ERROR", "seq 1 of orders (partition p, group billing) failed on attempt 2 and is a dead letter now: ValueError: out of stock"),
    ]  # fmt: skip
    assert caplog.text.count('raise ValueError("out of stock")') == 2
    first, empty, traceback, frame, *_ = error.splitlines()
    assert (first, empty, traceback) == ("ValueError: out of stock", "", "Traceback (most recent call last):")
    assert frame.endswith("in bill")  # and no frame of the worker before it


def test_a_program_that_sets_up_no_logging_sees_the_failure_on_stderr(server: RunningServer, tenant: str) -> None:
    program = (
        "import sys, skep\n"
        "client = skep.Client(sys.argv[1], tenant=sys.argv[2])\n"
        "client.configure('orders', max_attempts=1)\n"
        "client.push('orders', [1])\n"
        "worker = skep.Worker(client)\n"
        "@worker.on('orders')\n"
        "def bill(message):\n"
        "    raise ValueError('out of stock')\n"
        "worker.run(until_empty=True)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, server.url, tenant], capture_output=True, text=True, check=True, timeout=60
    )

    assert "failed on attempt 1 and is a dead letter now: ValueError: out of stock" in ran.stderr
    assert "in bill" in ran.stderr


@pytest.mark.parametrize(
    ("raised", "level"),
    [
        (skep.Reject("no such customer"), "ERROR"),
        (skep.Retry("not yet", delay=3600), "INFO"),
        (skep.RetryAt(datetime.now(UTC) + timedelta(hours=1), "not yet"), "INFO"),
    ],
    ids=["reject", "retry", "retry-at"],
)
def test_what_a_function_says_on_purpose_has_no_traceback(
    client: skep.Client, worker: skep.Worker, caplog: pytest.LogCaptureFixture, raised: Exception, level: str
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    client.push("orders", [1])

    @worker.on("orders")
    def bill(message: skep.Message) -> None:
        raise raised

    worker.run(until_empty=True)

    [(said, text)] = told(caplog)
    assert said == level
    assert str(raised) in text
    assert "Traceback" not in caplog.text


def test_a_function_that_fails_after_it_has_settled_is_told_of(
    client: skep.Client, worker: skep.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    client.push("orders", [1])

    @worker.on("orders")
    def bill(message: skep.Message) -> None:
        message.ack()
        raise ValueError("too late")

    worker.run(until_empty=True)

    [(level, text)] = told(caplog)
    assert level == "WARNING"
    assert "after its function had settled it (completed): ValueError: too late" in text
    assert list(client.dead_letters("orders")) == []


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), 1e300])
def test_a_delay_that_is_no_time_does_not_keep_a_message_from_being_settled(
    client: skep.Client, worker: skep.Worker, delay: float
) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", [1])

    @worker.on("orders")
    def bill(message: skep.Message) -> None:
        raise skep.Retry("later", delay=delay)

    assert worker.run(until_empty=True) == 1
    assert len(list(client.dead_letters("orders"))) == 1


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


HOSTILE = [
    ValueError(os.fsdecode(b"\xff is not there")),
    UnspeakableError(),
    ValueError("x" * 1_000_000),
    ValueError("\n" * 100 + "late text"),
    ExceptionGroup("several", [ValueError(os.fsdecode(b"\xfe"))]),
    StopIteration("the end"),
]


@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("in_loop", [False, True], ids=["thread", "loop"])
def test_no_exception_costs_the_log_line_or_the_settlement(
    client: skep.Client, worker: skep.Worker, tmp_path: Path, error: Exception, in_loop: bool
) -> None:
    client.configure("files", max_attempts=1)
    client.push("files", [1])
    file = logging.FileHandler(tmp_path / "log", encoding="utf-8")  # it takes nothing that is no UTF-8
    logging.getLogger(LOGGER).addHandler(file)

    async def failing_in_loop(message: skep.AsyncMessage) -> None:
        raise error

    def failing(message: skep.Message) -> None:
        raise error

    worker.on("files")(failing_in_loop if in_loop else failing)
    try:
        assert worker.run(until_empty=True) == 1
    finally:
        logging.getLogger(LOGGER).removeHandler(file)
        file.close()

    [letter] = client.dead_letters("files")
    assert letter.reason == "max_attempts"
    assert "Traceback" in (letter.error or "")
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert "failed on attempt 1 and is a dead letter now" in log
    assert "in failing" in log
    assert len(log) < 30_000


def deep(left: int) -> None:
    if left:
        deep(left - 1)
    raise ValueError("at the bottom")


def test_the_text_for_the_server_is_bounded_and_keeps_the_innermost_frames() -> None:
    error: Exception = RuntimeError()
    try:
        deep(200)
    except ValueError as raised:
        error = raised
    for number in range(50):
        try:
            raise RuntimeError(f"around {number} " + "é" * 3_000) from error
        except RuntimeError as raised:
            error = raised

    text = error_text(error)

    assert len(text) <= KEPT_BY_A_SERVER
    assert text.startswith("RuntimeError: around 49 é")
    assert "in test_the_text_for_the_server_is_bounded" in text
    assert text.rstrip("…").splitlines()[-1].startswith("RuntimeError: around 49")


def test_an_error_line_is_one_line() -> None:
    assert error_line(ValueError("first\nsecond")) == "ValueError: first"
    assert error_line(ValueError()) == "ValueError"


def test_a_block_around_a_message_tells_the_traceback_too(client: skep.Client) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", [1])

    [message] = client.pop("orders")
    with pytest.raises(ValueError, match="out of stock"), message:
        raise ValueError("out of stock")

    [letter] = client.dead_letters("orders")
    assert (letter.error or "").startswith("ValueError: out of stock\n\nTraceback (most recent call last):\n")


def takes_nothing() -> None: ...


def takes_three(first: Any, second: Any, third: Any) -> None: ...


def wants_a_name(message: skep.Message, *, retries: int) -> None: ...


def generates(message: skep.Message) -> Iterator[None]:
    yield


async def generates_async(message: skep.AsyncMessage) -> AsyncIterator[None]:
    yield


def not_async(message: skep.AsyncMessage) -> None: ...


async def is_async(message: skep.Message) -> None: ...


def message_first(message: skep.Message, order: dict[str, Any]) -> None: ...


def no_message_second(order: dict[str, Any], retries: int) -> None: ...


REFUSED = [
    (takes_nothing, "takes no arguments"),
    (takes_three, "takes 3 arguments"),
    (wants_a_name, "only be given by its name"),
    (generates, "is a generator"),
    (generates_async, "is a generator"),
    (functools.partial(generates), "is a generator"),
    (not_async, r"is not async, so it gets a skep\.Message"),
    (is_async, r"is async, so it gets a skep\.AsyncMessage"),
    (message_first, "takes the message first"),
    (no_message_second, "that is no message"),
    ("orders", "is no function"),
]


@pytest.mark.parametrize(("function", "why"), REFUSED, ids=[getattr(one, "__name__", "other") for one, _ in REFUSED])
def test_a_function_that_cannot_take_a_message_is_refused_when_it_is_registered(
    worker: skep.Worker, function: Any, why: str
) -> None:
    with pytest.raises(skep.SkepError, match=why) as raised:
        worker.on("orders")(function)

    assert raised.value.code is Code.INVALID_REQUEST
    with pytest.raises(skep.SkepError, match="no functions"):
        worker.run()


class Called:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, message: skep.AsyncMessage) -> None:
        await asyncio.sleep(0)
        self.seen.append(message.json())


def test_an_object_that_is_called_like_an_async_function_runs_in_the_loop(
    client: skep.Client, worker: skep.Worker
) -> None:
    client.push("orders", [1])
    called = Called()
    worker.on("orders")(called)

    worker.run(until_empty=True)

    assert called.seen == [1]


def test_a_coroutine_that_a_plain_function_returns_is_a_failure_and_no_ack(
    client: skep.Client, worker: skep.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    client.configure("orders", max_attempts=1)
    client.push("orders", [1])

    async def never_run(message: Any) -> None:
        raise AssertionError("nobody awaits it")

    worker.on("orders")(lambda message: never_run(message))

    worker.run(until_empty=True)

    [letter] = client.dead_letters("orders")
    assert "returned a coroutine that nobody awaits: make it an async function" in (letter.error or "")


def test_a_second_argument_with_a_default_is_the_message_only_if_it_asks_for_it(
    client: skep.Client, worker: skep.Worker
) -> None:
    client.push("orders", [{"n": 1}])
    seen: list[Any] = []

    @worker.on("orders", group="one")
    def with_retries(message: skep.Message, retries: int = 3) -> None:
        seen.append(("one", retries))

    @worker.on("orders", group="two")
    def with_message(order: dict[str, int], message: skep.Message | None = None) -> None:
        seen.append(("two", order, message is not None))

    worker.run(until_empty=True)

    assert sorted(seen) == [("one", 3), ("two", {"n": 1}, True)]


def test_a_message_that_is_imported_for_type_checkers_only_is_known_by_its_name(worker: skep.Worker) -> None:
    program = (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from skep import Message\n"
        "def handle(message: Message) -> Nothing: ...\n"
    )
    found: dict[str, Any] = {}
    exec(program, found)

    worker.on("orders")(found["handle"])
