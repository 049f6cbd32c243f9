"""Commands in Python: what a function is given, and what becomes of its message."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import skep
from skep.clock import ManualClock
from skep.model import DeadReason
from skep.store.rules import JITTER_SHARE
from tests.worker.place import Place

INCIDENTS = """
app Incidents {
  queue Alerts {
    message_type {
      source: string
      payload: json
    }
    key: source
    delivery {
      max_attempts: 5
      initial_backoff: 1s
      max_backoff: 1m
      dead_letter_queue: AlertsDead
    }
    map_to: command Incident.CreateIncident {
      title: payload.title
      severity: payload.urgency == "high" ? "critical" : "minor"
      weight: payload.weight
    }
  }
  queue AlertsDead {}
}
"""


@dataclass
class CreateIncident:
    title: str
    severity: str
    weight: int


class Create(msgspec.Struct):
    title: str
    severity: str
    weight: int


def alert(title: str = "db down", **more: object) -> dict[str, object]:
    return {"source": "pd", "payload": {"title": title, "urgency": "high", "weight": 3, **more}}


async def test_a_function_gets_the_mapped_input_as_its_type_and_the_message_is_acked(place: Place) -> None:
    app = place.app(INCIDENTS)
    seen: list[tuple[CreateIncident, str]] = []

    @app.command("Incident.CreateIncident")
    def create(given: CreateIncident) -> None:
        seen.append((given, threading.current_thread().name))

    place.client.push("Alerts", alert())
    assert await place.work(app, at_least=1) == 1
    [(given, thread)] = seen
    assert given == CreateIncident("db down", "critical", 3)
    assert thread.startswith("skep-command")
    assert place.depth("Alerts") == 0


async def test_an_async_function_may_take_the_message_and_a_struct(place: Place) -> None:
    app = place.app(INCIDENTS)
    seen: list[object] = []

    @app.command("Incident.CreateIncident")
    async def create(given: Create, message: skep.AsyncMessage) -> None:
        await asyncio.sleep(0)
        seen.extend([given, message.attempt, message.queue])

    place.client.push("Alerts", alert())
    assert await place.work(app, at_least=1) == 1
    assert seen == [Create("db down", "critical", 3), 1, "Alerts"]


async def test_a_function_may_settle_its_message_itself(place: Place) -> None:
    app = place.app(INCIDENTS)

    @app.command("Incident.CreateIncident")
    def create(given: dict[str, object], message: skep.Message) -> None:
        message.reject(error=f"not {given['title']}")

    place.client.push("Alerts", [alert("a"), alert("b")])
    assert await place.work(app, at_least=2) == 2
    assert [one.error for one in place.dead("Alerts")] == ["not a", "not b"]


async def test_a_function_of_a_declared_command_gets_its_input_whole_with_its_defaults(place: Place) -> None:
    app = place.app("""
    app Doors {
      queue Rings {
        map_to: command Door.Ring {
          door: string(message.door)
          times: message.times
        }
      }
      entity Door {
        id: input.door
        command Ring {
          input {
            door: string
            times: int
            loud: bool = true
          }
          emits Rung {}
        }
      }
    }
    """)
    rung: list[dict[str, object]] = []

    @app.command("Door.Ring")
    def ring(given: dict[str, object]) -> None:
        rung.append(given)

    place.client.push("Rings", [{"door": "front", "times": 2}, {"door": "back", "times": "two"}])
    await place.work(app, at_least=2)
    assert rung == [{"door": "front", "times": 2, "loud": True}]
    [letter] = place.dead("Rings")
    assert letter.error == (
        "MAPPING_FAILED: map_to Door.Ring: field 'times' does not fit: expected int, not \"two\", made by `message.times`"
    )
    assert list(place.client.entities("Door")) == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_that_exits_fails_its_message_and_not_the_worker(place: Place, is_async: bool) -> None:
    app = place.app(INCIDENTS)
    done: list[str] = []

    def create(given: CreateIncident) -> None:
        if given.title == "exit":
            sys.exit(3)
        done.append(given.title)

    async def create_async(given: CreateIncident) -> None:
        create(given)

    app.command("Incident.CreateIncident")(create_async if is_async else create)
    for title in ("exit", "fire"):
        place.client.push("Alerts", alert(title=title), partition=title)
    await place.work(app, at_least=2)

    assert done == ["fire"]
    [failure] = place.client.attempts("Alerts", 1)
    assert (failure.outcome, (failure.error or "").splitlines()[0]) == ("retried", "SystemExit: 3")


async def test_a_failing_function_is_tried_five_times_at_1_2_4_8_seconds_then_the_message_is_a_dead_letter(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    app = place.app(INCIDENTS)
    tried: list[float] = []
    broken = True

    @app.command("Incident.CreateIncident")
    def create(given: CreateIncident) -> None:
        tried.append((clock.now() - start) / 1_000_000)
        if broken:
            raise ValueError(f"no {given.title}")

    start = clock.now()
    place.client.push("Alerts", alert())
    assert await place.work(app, at_least=1) == 1
    for count, wait in enumerate((1, 2, 4, 8, 16), 2):
        # Jitter lets it come a little earlier, never later.
        early = wait * (1 - JITTER_SHARE) - 0.001
        clock.advance(early)
        assert await place.work(app) == 0
        clock.advance(wait - early)
        assert await place.work(app, at_least=int(count <= 5)) == int(count <= 5)
    assert tried == [0, 1, 3, 7, 15]
    [letter] = place.dead("Alerts")
    assert (letter.reason, letter.attempts, letter.source_queue) == (DeadReason.MAX_ATTEMPTS, 5, "Alerts")
    assert (letter.error or "").splitlines()[0] == "ValueError: no db down"

    # Replayed, it is a message like any other.
    broken = False
    assert place.client.replay("Alerts", ids=[letter.id]).count == 1
    assert await place.work(app, at_least=1) == 1
    assert len(tried) == 6
    assert (place.dead("Alerts"), place.depth("Alerts")) == ([], 0)


async def test_a_message_is_not_visible_to_others_while_its_function_runs_and_comes_again_when_the_lease_ends(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    app = place.app(INCIDENTS)
    attempts: list[int] = []

    @app.command("Incident.CreateIncident")
    def create(_given: CreateIncident, message: skep.Message) -> None:
        assert place.client.pop("Alerts") == []
        attempts.append(message.attempt)

    place.client.push("Alerts", alert())
    [lost] = place.client.pop("Alerts", lease_seconds=30)
    assert await place.work(app) == 0
    clock.advance(29.9)
    assert await place.work(app) == 0
    clock.advance(0.2)
    assert await place.work(app, at_least=1) == 1
    assert attempts == [2]
    with pytest.raises(skep.SkepError, match="STALE_LEASE"):
        lost.ack()


@pytest.mark.parametrize(
    ("pushed", "error"),
    [
        (
            {"source": "pd", "payload": {"urgency": "high"}},
            ("MAPPING_FAILED: map_to Incident.CreateIncident, field 'title': there is no field 'title', in `payload.title`; "
            "the value is {'urgency': 'high'}"),
        ),
        (
            alert(weight="heavy"),
            ("MAPPING_FAILED: the input of Incident.CreateIncident: the payload does not fit CreateIncident: "
            "Expected `int`, got `str` - at `$.weight`"),
        ),
        ({"source": 7, "payload": {}}, "MESSAGE_INVALID: field 'source' does not fit: expected string, not 7"),
        ("text", "MESSAGE_INVALID: the message does not fit: expected an object, not \"text\""),
    ],
)  # fmt: skip
async def test_what_cannot_be_mapped_is_a_dead_letter_at_once_with_expression_and_value(
    place: Place, pushed: object, error: str
) -> None:
    app = place.app(INCIDENTS)
    seen: list[str] = []

    @app.command("Incident.CreateIncident")
    def create(given: CreateIncident) -> None:
        seen.append(given.title)

    place.client.push("Alerts", [pushed, alert("after it")])
    assert await place.work(app, at_least=2) == 2
    [letter] = place.dead("Alerts")
    assert (letter.error, letter.reason, letter.attempts) == (error, DeadReason.REJECTED, 1)
    assert seen == ["after it"]


async def test_reject_retry_and_retry_at_say_more(timed: tuple[Place, ManualClock]) -> None:
    place, clock = timed
    app = place.app(INCIDENTS)
    tried: list[tuple[str, float]] = []
    start = clock.now()

    @app.command("Incident.CreateIncident")
    async def create(given: CreateIncident) -> None:
        tried.append((given.title, (clock.now() - start) / 1_000_000))
        if len(tried) == 1:
            raise skep.Retry("later", delay=60)
        if len(tried) == 2:
            raise skep.RetryAt(datetime.fromtimestamp(clock.now() / 1_000_000 + 600, UTC), "much later")
        raise skep.Reject("never")

    place.client.push("Alerts", alert())
    for wait in (0, 60, 600):
        clock.advance(wait)
        assert await place.work(app, at_least=1) == 1
    assert [at for _, at in tried] == [0, 60, 660]
    assert [one.error for one in place.dead("Alerts")] == ["never"]


async def test_messages_of_a_key_are_done_in_order_and_a_failed_one_holds_its_own_key_only(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    app = place.app(INCIDENTS)
    done: list[str] = []
    failing = {"a1"}

    @app.command("Incident.CreateIncident")
    async def create(given: CreateIncident) -> None:
        if given.title in failing:
            failing.clear()
            raise RuntimeError("once")
        done.append(given.title)

    for title in ("a1", "b1", "a2", "b2", "a3"):
        place.client.push("Alerts", alert(title), partition=title[0])
    await place.work(app, at_least=3)
    assert sorted(done) == ["b1", "b2"]
    clock.advance(1.5)
    await place.work(app, at_least=3)
    assert [title for title in done if title[0] == "a"] == ["a1", "a2", "a3"]
    assert [title for title in done if title[0] == "b"] == ["b1", "b2"]


def test_a_command_without_an_entity_or_a_function_is_refused_at_the_start(place: Place) -> None:
    app = place.app(INCIDENTS)
    with pytest.raises(skep.SkepError, match=r"COMMAND_UNAVAILABLE: .*Incident\.CreateIncident.*@app\.command"):
        place.working(app)


def test_a_function_for_what_nobody_maps_to_is_refused(place: Place) -> None:
    app = place.app(INCIDENTS)
    with pytest.raises(skep.SkepError, match="did you mean Incident"):
        app.command("Incident.CreateIncidents")
    with pytest.raises(skep.SkepError, match="takes 3 arguments"):
        app.command("Incident.CreateIncident")(lambda a, b, c: None)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "skep.worker" and "failed" in record.getMessage()
    ]


async def test_a_failing_function_is_a_warning_and_its_last_attempt_an_error_with_the_traceback(
    timed: tuple[Place, ManualClock], caplog: pytest.LogCaptureFixture
) -> None:
    place, clock = timed
    app = place.app(INCIDENTS.replace("max_attempts: 5", "max_attempts: 2"))

    @app.command("Incident.CreateIncident")
    def create(given: CreateIncident) -> None:
        raise ValueError("no room")

    place.client.push("Alerts", alert(), partition="p")
    await place.work(app, at_least=1)
    clock.advance(60)
    await place.work(app, at_least=1)

    what = "seq 1 of Alerts (partition p) failed on attempt"
    assert told(caplog) == [
        ("WARNING", f"{what} 1 and comes again: ValueError: no room"),
        ("ERROR", f"{what} 2 and is a dead letter now: ValueError: no room"),
    ]
    assert caplog.text.count('raise ValueError("no room")') == 2
    [letter] = place.dead("Alerts")
    assert (letter.error or "").startswith("ValueError: no room\n\nTraceback (most recent call last):\n")


async def test_what_cannot_be_mapped_or_is_guarded_against_is_an_error_in_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    app = place.app(INCIDENTS)
    app.command("Incident.CreateIncident")(lambda given: None)
    place.client.push("Alerts", {"source": 7, "payload": {}})
    await place.work(app, at_least=1)

    guarded = place.app("""
    app Doors {
      queue Rings {
        map_to: command Door.Ring {
          door: string(message.door)
        }
      }
      entity Door {
        id: input.door
        command Ring {
          input {
            door: string
          }
          guard: input.door != "back"
          emits Rung {}
        }
      }
    }
    """)
    place.client.push("Rings", [{"door": "front"}, {"door": "back"}])
    await place.work(guarded, at_least=2)

    [mapped, refused] = told(caplog)
    assert mapped[0] == refused[0] == "ERROR"
    assert mapped[1].startswith(
        "seq 1 of Alerts (partition Default) failed on attempt 1 and is a dead letter now: MESSAGE_INVALID"
    )
    assert refused[1].startswith(
        "seq 2 of Rings (partition Default) failed on attempt 1 and is a dead letter now: GUARD_REJ"
    )


async def test_an_exception_that_is_no_unicode_costs_neither_log_line_nor_settlement(
    place: Place, tmp_path: Path
) -> None:
    app = place.app(INCIDENTS.replace("max_attempts: 5", "max_attempts: 1"))

    @app.command("Incident.CreateIncident")
    def create(given: CreateIncident) -> None:
        raise ValueError(os.fsdecode(b"\xff is not there"))

    file = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    logging.getLogger("skep.worker").addHandler(file)
    place.client.push("Alerts", alert())
    try:
        await place.work(app, at_least=1)
    finally:
        logging.getLogger("skep.worker").removeHandler(file)
        file.close()

    assert "ValueError: ? is not there" in (tmp_path / "log").read_text(encoding="utf-8")
    [letter] = place.dead("Alerts")
    assert (letter.error or "").startswith("ValueError: ? is not there\n\nTraceback")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: None, "takes no arguments"),
        (lambda given, message, more: None, "takes 3 arguments"),
        (lambda given, *, more: None, "only be given by its name"),
    ],
    ids=["none", "three", "by-name"],
)
def test_a_function_that_cannot_take_its_input_is_refused_when_it_is_registered(
    place: Place, function: Any, why: str
) -> None:
    app = place.app(INCIDENTS)
    with pytest.raises(skep.SkepError, match=why):
        app.command("Incident.CreateIncident")(function)
    assert app.functions == {}


def test_a_generator_or_a_message_of_the_wrong_kind_is_refused_when_it_is_registered(place: Place) -> None:
    app = place.app(INCIDENTS)
    register = app.command("Incident.CreateIncident")

    def generates(given: dict[str, object]) -> Iterator[None]:
        yield

    def takes_async(given: dict[str, object], message: skep.AsyncMessage) -> None: ...

    def takes_lock(given: threading.Thread) -> None: ...

    with pytest.raises(skep.SkepError, match="is a generator"):
        register(generates)
    with pytest.raises(skep.SkepError, match="is not async"):
        register(takes_async)
    with pytest.raises(skep.SkepError, match="cannot be decoded to Thread"):
        register(takes_lock)


async def test_a_coroutine_that_a_plain_function_returns_is_a_failure_and_no_ack(place: Place) -> None:
    app = place.app(INCIDENTS.replace("max_attempts: 5", "max_attempts: 1"))

    async def never_run(given: object) -> None:
        raise AssertionError("nobody awaits it")

    app.command("Incident.CreateIncident")(lambda given: never_run(given))
    place.client.push("Alerts", alert())
    await place.work(app, at_least=1)

    [letter] = place.dead("Alerts")
    assert "returned a coroutine that nobody awaits" in (letter.error or "")
