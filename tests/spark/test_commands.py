"""The mapping on Spark is the worker's, for messages that fit, those that do not, and random ones: same input, same error."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from skep.errors import SkepError
from skep.spark.pipelines.commands import commands
from skep.spec import App, load
from skep.wire.messages import PoppedMessage
from skep.worker.plan import Plan, plans
from tests.spark.column_runs import compiled, same_json
from tests.spark.frames import START

SPEC = """
app Orders {
  queue Placed {
    message_type {
      order_id: uuid
      customer: string
      total: float
      cents: int
      express: bool = false
      state: enum(open, closed)
      placed_at: time
      tags: list<string>
      address: json
      note: string?
    }
    map_to: command Order.Place {
      id: order_id
      customer: customer.upperAscii()
      cents: cents + (express ? 500 : 0)
      large: total > 50.0 && state == "open"
      vip: "vip" in tags
      city: has(address.city) ? address.city : ""
      day: string(placed_at).substring(0, 10)
      note: note != null ? note : "none"
      share: total / 4.0
      at: placed_at
      tags: tags.filter(t, t != "")
      address: address
    }
  }
  queue Loose {
    map_to: command Thing.Do {
      id: message.id
      n: message.n + 1
      first: message.list[0]
    }
  }
  queue Hard {
    message_type {
      name: string
    }
    map_to: command Thing.Match {
      fine: name.matches("(?i)ann")
    }
  }
  queue Quoted {
    message_type {
      name: string = "a \\"quoted\\" word"
      at: time = "2026-01-01T00:00:00Z"
      list: list<int> = [1, 2]
    }
    map_to: command Thing.Do {
      name: name
      at: at
      list: list
    }
  }
  queue Capitals {
    message_type {
      name: string
      Name: string
    }
    map_to: command Thing.Do {
      name: name + Name
    }
  }
  queue Idle {}
  entity Order {
    id: input.id
    command Place {
      input {
        id: uuid
        customer: string
        cents: int
        large: bool
        vip: bool
        city: enum(Bern, Basel, "")
        day: string
        note: string
        share: float
        at: time
        tags: list<string>
        address: json
        channel: string = "web"
        hint: string?
      }
    }
  }
}
"""
GOOD: dict[str, Any] = {
    "order_id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", "customer": "Zoë", "total": 60.5, "cents": 100, "express": True,
    "state": "open", "placed_at": "2026-03-01T10:20:30.25Z", "tags": ["vip", ""], "address": {"city": "Bern"}, "note": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def app() -> App:
    return load(SPEC, "orders.skep")


def worker_of(app: App, queue: str) -> Plan:
    functions: Any = {"Thing.Do": None, "Thing.Match": None}
    return next(duty for duty in plans(app, functions) if duty.queue == queue)


def by_worker(duty: Plan, payload: str) -> tuple[str | None, str | None]:
    """The input and the error that a worker has for a payload."""
    popped = _popped(payload)
    try:
        return msgspec.json.encode(duty.mapped(duty.fields(popped))).decode(), None
    except SkepError as error:
        return None, error.message


def _popped(payload: str) -> PoppedMessage:
    return PoppedMessage(
        "q",
        "p",
        1,
        "m",
        None,
        "t",
        msgspec.Raw(payload.encode()),
        msgspec.Raw(b"{}"),
        None,
        5,
        START,
        1,
        "g",
        "l",
        START,
    )


def run(spark: SparkSession, app: App, queue: str, payloads: list[str]) -> list[tuple[str | None, str | None]]:
    rows = [(index, f"p{index % 3}", f"m{index}", "t", payload) for index, payload in enumerate(payloads)]
    frame = spark.createDataFrame(
        rows, "seq bigint, partition string, message_id string, trace_id string, payload string"
    )
    outcomes = commands(frame.coalesce(1), app, queue).outcomes.orderBy("seq").collect()
    return [(row.input, row.error) for row in outcomes]


def compare(app: App, queue: str, payloads: list[str], found: list[tuple[str | None, str | None]]) -> None:
    duty = worker_of(app, queue)
    for payload, (made, error) in zip(payloads, found, strict=True):
        expected, refused = by_worker(duty, payload)
        assert error == refused, payload
        assert (made is None) == (expected is None), payload
        if made is not None and expected is not None:
            assert same_json(made, expected), payload


def test_commands_and_rejects_of_a_few_messages(spark: SparkSession, app: App) -> None:
    payloads = [_with(), _with(cents=2**63 - 1), _with(total="x"), "no json"]
    rows = [(index, "p", f"m{index}", "t", payload) for index, payload in enumerate(payloads)]
    frame = spark.createDataFrame(
        rows, "seq bigint, partition string, message_id string, trace_id string, payload string"
    )
    found = commands(frame.coalesce(1), app, "Placed")
    with compiled(spark):
        (command,) = found.commands.collect()
    assert (command.seq, command.partition, command.message_id, command.trace_id) == (0, "p", "m0", "t")
    assert (command.entity, command.command) == ("Order", "Place")
    assert msgspec.json.decode(command.input) == {
        "id": GOOD["order_id"], "customer": "ZOë", "cents": 600, "large": True, "vip": True, "city": "Bern", "day": "2026-03-01",
        "note": "none", "share": 15.125, "at": "2026-03-01T10:20:30.250Z", "tags": ["vip"], "address": {"city": "Bern"},
        "channel": "web", "hint": None,
    }  # fmt: skip
    overflow, unfit, no_json = found.rejects.orderBy("seq").collect()
    assert (overflow.code, overflow.field, overflow.expression) == (
        "MAPPING_FAILED",
        "cents",
        "cents + (express ? 500 : 0)",
    )
    assert overflow.value == str(2**63 - 1 + 500)
    assert overflow.payload == payloads[1]
    assert (unfit.code, unfit.field, unfit.value) == ("MESSAGE_INVALID", "total", '"x"')
    assert unfit.error == "field 'total' does not fit: expected float, not \"x\""
    assert no_json.code == "MESSAGE_INVALID"


def _with(**changes: Any) -> str:
    return msgspec.json.encode({key: value for key, value in (GOOD | changes).items() if value is not ...}).decode()


@pytest.mark.slow
def test_random_messages_have_the_workers_outcome(spark: SparkSession, app: App) -> None:
    generator = random.Random(3)
    choices: dict[str, list[Any]] = {
        "customer": ["ann", "", "5", 5, "x\"\\\n", "🐝", None], "total": [0.0, -0.0, 50.0, 60, 1e300, "1", 2.5e-7],
        "cents": [0, 2**53 + 1, 2**63 - 1, -(2**63), 1.0, "1"], "express": [True, False, ..., None, "true"],
        "state": ["open", "closed", "shut"], "placed_at": ["2026-01-01T00:00:00Z", "2026-01-01t00:00:00+01:00", "noon", 5],
        "tags": [[], ["vip"], ["a", "5"], ["a", 5], [None], "vip"], "note": [None, "hi", 5, ...],
        "address": [{}, {"city": "Basel"}, {"city": "Bonn"}, {"city": 5}, {"city": "Bern", "n": 1.0}, None, "Bern", [1, 2.5], ...],
    }  # fmt: skip
    payloads = [_with()]
    for _ in range(300):
        names = generator.sample(sorted(choices), generator.randrange(4))
        payloads.append(_with(**{name: generator.choice(choices[name]) for name in names}))
    found = run(spark, app, "Placed", payloads)
    compare(app, "Placed", payloads, found)
    assert sum(made is not None for made, _ in found) > 60


def test_a_queue_without_a_type(spark: SparkSession, app: App) -> None:
    payloads = [
        '{"id": "x", "n": 1, "list": [1.0]}', '{"id": 5, "n": 9223372036854775807, "list": [1]}', '{"n": "1", "list": []}', "[]",
        "5", "", '{"id": null, "n": 1, "list": [{"a": [1]}]}', '{"id": "x", "n": 1, "list": [2]} trailing', '{"id": "é", "n": -1, "list": ["\\n"]}',
    ]  # fmt: skip
    compare(app, "Loose", payloads, run(spark, app, "Loose", payloads))


def test_what_is_left_to_the_evaluator_is_said_and_done(spark: SparkSession, app: App) -> None:
    payloads = ['{"name": "Ann"}', '{"name": "bob"}', '{"name": 5}']
    frame = spark.createDataFrame([(payload,) for payload in payloads], "payload string")
    found = commands(frame, app, "Hard")
    assert found.left_out == {"fine": "a pattern that Java may understand differently"}
    assert "evaluator" in found.explain()
    compare(app, "Hard", payloads, run(spark, app, "Hard", payloads))


def test_defaults_are_the_workers(spark: SparkSession, app: App) -> None:
    payloads = [
        "{}",
        '{"name": "x"}',
        '{"at": "2026-05-05T00:00:00+02:00"}',
        '{"list": []}',
        '{"name": null}',
        '{"x": 1}',
    ]
    compare(app, "Quoted", payloads, run(spark, app, "Quoted", payloads))


def test_names_that_spark_does_not_tell_apart(spark: SparkSession, app: App) -> None:
    payloads = ['{"name": "a", "Name": "b"}', '{"name": "a"}']
    compare(app, "Capitals", payloads, run(spark, app, "Capitals", payloads))


def test_a_queue_without_a_command_is_told(spark: SparkSession, app: App) -> None:
    with pytest.raises(SkepError, match="has no map_to"):
        commands(spark.createDataFrame([("{}",)], "payload string"), app, "Idle")
