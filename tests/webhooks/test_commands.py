"""Without a queue, a webhook's command runs at once and its result is the answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.webhooks.driver import SIGNED, Sender

DOORS = f"""
app Doors {{
  entity Door {{
    id: input.door
    state {{
      rings: int = 0
      locked: bool = false
    }}
    command Ring {{
      input {{ door: string, lock: bool = false }}
      guard: !state.locked
      emits Rung {{ at: now }}
      emits Locked when (input.lock) {{}}
    }}
    command Look {{
      input {{ door: string }}
    }}
    event Rung {{ rings: state.rings + 1 }}
    event Locked {{ locked: true }}
  }}
  webhook Bell {{
    command: Door.Ring {{
      door: payload.door
      lock: has(payload.lock) && payload.lock == true
    }}
    {SIGNED}
    idempotency {{ header: "X-Request-Id" }}
  }}
  webhook Often {{
    command: Door.Ring {{ door: payload.door }}
    {SIGNED}
    idempotency: none
  }}
  webhook Look {{
    command: Door.Look {{ door: payload.door }}
    {SIGNED}
    idempotency: none
  }}
  webhook Elsewhere {{
    command: House.Enter {{ door: payload.door }}
    {SIGNED}
  }}
}}
"""


@pytest.fixture
def doors(sender: Sender) -> Sender:
    sender.apply(DOORS)
    return sender


def test_the_command_runs_at_once_and_its_result_is_the_answer(doors: Sender) -> None:
    reply = doors.signed("Bell", {"door": "front"}, X_Request_Id="1")

    assert reply.status == 200
    assert reply.json == {
        "entity": "Door",
        "id": "front",
        "version": 1,
        "events": [{"name": "Rung", "data": {"at": "2025-06-15T15:06:40Z"}}],
    }
    assert doors.entity("Door", "front")["state"] == {"rings": 1, "locked": False}


def test_a_repeat_gets_the_recorded_answer_and_does_nothing(doors: Sender) -> None:
    first = doors.signed("Bell", {"door": "front"}, X_Request_Id="1")
    again = doors.signed("Bell", {"door": "front"}, X_Request_Id="1")

    assert (again.status, again.body) == (200, first.body)
    assert doors.entity("Door", "front")["version"] == 1


def test_a_repeat_gets_its_answer_though_its_guard_would_say_no_by_now(doors: Sender) -> None:
    first = doors.signed("Bell", {"door": "front", "lock": True}, X_Request_Id="1")

    assert doors.signed("Bell", {"door": "front", "lock": True}, X_Request_Id="1").body == first.body
    assert doors.signed("Bell", {"door": "front"}, X_Request_Id="2").code == "GUARD_REJECTED"


def test_a_guard_that_says_no_tells_nothing_of_the_entity(doors: Sender) -> None:
    doors.signed("Bell", {"door": "front", "lock": True}, X_Request_Id="1")
    reply = doors.signed("Often", {"door": "front"})

    assert (reply.status, reply.code) == (422, "GUARD_REJECTED")
    assert b"rings" not in reply.body
    assert doors.entity("Door", "front")["version"] == 2


def test_a_command_that_emits_nothing_changes_nothing(doors: Sender) -> None:
    reply = doors.signed("Look", {"door": "front"})

    assert (reply.status, reply.json["events"], reply.json["version"]) == (200, [], 0)
    assert doors.api.get("/api/v1/entities/Door/front").status == 404


def test_an_input_that_cannot_be_made_is_refused(doors: Sender) -> None:
    assert doors.signed("Often", {"window": "front"}).code == "MAPPING_FAILED"
    assert doors.signed("Often", {"door": 7}).code == "MAPPING_FAILED"
    assert doors.signed("Often", {"door": ""}).code == "MAPPING_FAILED"


def test_a_command_that_nobody_here_can_run_is_to_be_tried_again(doors: Sender) -> None:
    reply = doors.signed("Elsewhere", {"door": "front"})

    assert (reply.status, reply.code) == (503, "COMMAND_UNAVAILABLE")
    assert int(reply.headers["retry-after"]) >= 1


def test_commands_on_one_entity_at_the_same_time_all_count_once(doors: Sender) -> None:
    def ring(number: int) -> int:
        sender = Sender(doors.server, doors.clock)
        try:
            replies = [sender.signed("Bell", {"door": "front"}, X_Request_Id=f"{number % 20}-{n}") for n in range(5)]
            return sum(reply.status == 200 for reply in replies)
        finally:
            sender.close()

    with ThreadPoolExecutor(8) as pool:
        answered = sum(pool.map(ring, range(40)))

    assert answered == 200
    assert doors.entity("Door", "front")["state"]["rings"] == 100


def test_a_command_is_decided_again_when_another_server_was_faster(
    doors: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = doors.server.engine
    transact, calls = engine.transact, list[int]()

    async def overtaken(*arguments: Any, **parts: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            assert (await transact(*arguments, **parts)).committed  # the other one's
        return await transact(*arguments, **parts)

    monkeypatch.setattr(engine, "transact", overtaken)
    reply = doors.signed("Often", {"door": "front"})

    assert (reply.status, reply.json["version"]) == (200, 2)
    assert doors.entity("Door", "front")["state"]["rings"] == 2
