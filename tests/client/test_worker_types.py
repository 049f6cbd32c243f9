"""The type of a worker's argument: payloads are decoded to it, and what does not fit is a dead letter."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any, TypedDict

import msgspec
import pytest

import skep
from tests.client.working import Order


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
