"""A webhook's command that a Python function carries out: at once, with its answer recorded once it has returned."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

import skep
from skep.clock import Instant, ManualClock
from skep.model.record import Receipt, ReceiptKey
from skep.spec import load
from skep.testing.server import running_server
from skep.webhooks.calling import Ran
from skep.webhooks.functions import Functions
from skep.worker.inline import inline_functions
from tests.webhooks.driver import SECRETS, SIGNED, Sender

HOUSE = f"""
app House {{
  entity Door {{
    id: input.door
    state {{ rings: int = 0 }}
    command Ring {{
      input {{ door: string, times: int = 2 }}
      emits Rung {{}}
    }}
    event Rung {{ rings: state.rings + 1 }}
  }}
  webhook Enter {{
    command: House.Enter {{ door: payload.door }}
    {SIGNED}
    idempotency {{ header: "X-Request-Id" }}
  }}
  webhook Often {{
    command: House.Enter {{ door: payload.door }}
    {SIGNED}
    idempotency: none
  }}
  webhook Bell {{
    command: Door.Ring {{ door: payload.door }}
    {SIGNED}
  }}
}}
"""


@dataclass
class Entering:
    door: str


class Doorman:
    """The functions, what they were called with, and a gate that a test may close."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.rung: list[object] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Semaphore(0)
        self.app = skep.App(load(HOUSE, "house.skep"))

        @self.app.command("House.Enter")
        def enter(entering: Entering) -> dict[str, object]:
            self.seen.append(entering.door)
            self.began.release()
            self.gate.wait(30)
            if entering.door == "wall":
                raise ZeroDivisionError("the password is swordfish")
            if entering.door == "exit":
                sys.exit("the password is swordfish")
            if entering.door == "locked":
                raise skep.Reject("the key is under the mat")
            if entering.door == "crowded":
                raise skep.Retry("later", delay=5)
            return {"entered": entering.door, "times": len(self.seen)}

        @self.app.command("Door.Ring")
        async def ring(given: dict[str, object]) -> None:
            self.rung.append(given)


@pytest.fixture
def doorman() -> Doorman:
    return Doorman()


@pytest.fixture
def house(store: str, clock: ManualClock, doorman: Doorman) -> Iterator[Sender]:
    with ThreadPoolExecutor(8) as pool:
        functions = inline_functions(doorman.app, pool)
        with running_server(store, clock=clock, environment=SECRETS, functions=functions) as server:
            sender = Sender(server, clock)
            sender.apply(HOUSE)
            yield sender
            sender.close()


def test_the_function_runs_at_once_and_what_it_returns_is_the_answer(house: Sender, doorman: Doorman) -> None:
    reply = house.signed("Enter", {"door": "front"}, X_Request_Id="1")

    assert (reply.status, reply.json) == (200, {"entered": "front", "times": 1})
    assert doorman.seen == ["front"]


def test_a_repeat_gets_the_recorded_answer_and_runs_nothing(house: Sender, doorman: Doorman) -> None:
    first = house.signed("Enter", {"door": "front"}, X_Request_Id="1")
    again = house.signed("Enter", {"door": "back"}, X_Request_Id="1")
    unmapped = house.signed("Enter", {}, X_Request_Id="1")
    other = house.signed("Enter", {"door": "front"}, X_Request_Id="2")

    assert [reply.body for reply in (again, unmapped)] == [first.body] * 2
    assert other.json["times"] == 2
    assert doorman.seen == ["front", "front"]


def test_repeats_that_come_while_it_runs_wait_for_that_run(house: Sender, doorman: Doorman) -> None:
    doorman.gate.clear()

    def enter(_: int) -> tuple[int, bytes]:
        sender = Sender(house.server, house.clock)
        try:
            reply = sender.signed("Enter", {"door": "front"}, X_Request_Id="1")
            return reply.status, reply.body
        finally:
            sender.close()

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(enter, range(8))
        doorman.began.acquire()
        doorman.gate.set()
        assert set(answers) == {(200, b'{"entered":"front","times":1}')}
    assert doorman.seen == ["front"]


def test_one_run_serves_all_who_wait_for_it_and_outlives_a_sender_who_goes_away(house: Sender) -> None:
    async def together() -> tuple[list[Ran], int, Ran]:
        runs, began, gate = 0, asyncio.Event(), asyncio.Event()

        async def slow(_: dict[str, object]) -> bytes:
            nonlocal runs
            runs += 1
            began.set()
            await gate.wait()
            return b'"done"'

        engine = house.server.engine
        functions = Functions(engine, {})
        receipt = Receipt(ReceiptKey("hook:Slow", "k"), b"", Instant(house.clock.now() + 60_000_000))
        first, *others = [asyncio.create_task(functions.run(slow, {}, receipt)) for _ in range(5)]
        await began.wait()
        first.cancel()
        gate.set()
        answers = await asyncio.gather(*others)
        return answers, runs, await functions.run(slow, {}, receipt)

    answers, runs, later = house.server.run(together())

    assert answers == [Ran(b'"done"', True)] * 4
    assert (runs, later) == (1, Ran(b'"done"', True))


def test_of_two_servers_that_run_it_at_once_the_first_receipt_is_told(house: Sender) -> None:
    async def together() -> set[bytes]:
        both, runs = asyncio.Event(), 0

        async def slow(_: dict[str, object]) -> bytes:
            nonlocal runs
            runs += 1
            number = runs
            if runs == 2:
                both.set()
            await both.wait()
            return b"%d" % number

        receipt = Receipt(ReceiptKey("hook:Slow", "k"), b"", Instant(house.clock.now() + 60_000_000))
        servers = [Functions(house.server.engine, {}) for _ in range(2)]
        return {ran.answer for ran in await asyncio.gather(*(one.run(slow, {}, receipt) for one in servers))}

    assert len(house.server.run(together())) == 1


def test_every_request_is_a_new_one_where_the_spec_says_so(house: Sender, doorman: Doorman) -> None:
    for _ in range(2):
        assert house.signed("Often", {"door": "front"}).status == 200

    assert doorman.seen == ["front", "front"]


@pytest.mark.parametrize(
    ("door", "status", "code"),
    [
        ("wall", 500, "COMMAND_FAILED"),
        ("exit", 500, "COMMAND_FAILED"),
        ("locked", 422, "GUARD_REJECTED"),
        ("crowded", 503, "COMMAND_UNAVAILABLE"),
        (7, 422, "MAPPING_FAILED"),
    ],
)
def test_what_goes_wrong_is_told_without_its_reasons_and_may_be_tried_again(
    house: Sender, doorman: Doorman, door: object, status: int, code: str
) -> None:
    replies = [house.signed("Enter", {"door": door}, X_Request_Id="1") for _ in range(2)]

    assert {(reply.status, reply.code) for reply in replies} == {(status, code)}
    assert not any(secret in reply.body for reply in replies for secret in (b"swordfish", b"mat", b"ZeroDivision"))
    assert doorman.seen == ([door] * 2 if isinstance(door, str) else [])


def test_a_function_goes_before_the_entity_store_and_gets_what_the_command_declares(
    house: Sender, doorman: Doorman
) -> None:
    reply = house.signed("Bell", {"door": "front"})

    assert (reply.status, reply.json) == (200, None)
    assert doorman.rung == [{"door": "front", "times": 2}]
    assert house.api.get("/api/v1/entities/Door/front").status == 404
    assert house.signed("Bell", {"door": 7}).code == "MAPPING_FAILED"


def test_a_function_for_a_webhook_takes_no_message() -> None:
    app = skep.App(load(HOUSE, "house.skep"))

    @app.command("House.Enter")
    def enter(given: dict[str, object], message: skep.Message) -> None: ...

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(skep.SkepError, match=r"takes a message, and the webhook Enter has none"),
    ):
        inline_functions(app, pool)
