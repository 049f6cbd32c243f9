"""Pushing with the client."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

import skep
from skep.errors import Code
from skep.wire.messages import PushedMessage

TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"


@dataclasses.dataclass
class Order:
    number: int


class OrderStruct(msgspec.Struct):
    number: int


class OrderModel:
    """What the client needs of a pydantic model."""

    def __init__(self, number: int) -> None:
        self.number = number

    def model_dump_json(self) -> str:
        return f'{{"number":{self.number}}}'


def assert_never_pushed_to(client: skep.Client, queue: str) -> None:
    with pytest.raises(skep.SkepError) as raised:
        client.pop(queue)
    assert raised.value.code is Code.QUEUE_NOT_FOUND


def test_messages_are_stored_in_their_order(client: skep.Client) -> None:
    pushed = client.push("orders", [{"n": 1}, {"n": 2}], partition="c-1")

    assert [message.seq for message in pushed.stored] == [1, 2]
    assert (pushed.duplicates, pushed.failed, pushed.scheduled, pushed.queued) == ([], [], [], None)
    assert pushed.queues["orders"].depth == 2
    popped = client.pop("orders", batch=10)
    assert [(message.json(), message.partition) for message in popped] == [({"n": 1}, "c-1"), ({"n": 2}, "c-1")]


@pytest.mark.parametrize(
    "payload", [Order(7), OrderStruct(7), OrderModel(7), {"number": 7}, msgspec.Raw(b'{"number":7}')]
)
def test_anything_that_can_be_json_is_a_message(client: skep.Client, payload: object) -> None:
    client.push("orders", payload)

    [message] = client.pop("orders")

    assert message.json() == {"number": 7}
    assert message.as_(Order) == Order(7)


def test_a_model_within_something_else_writes_itself(client: skep.Client) -> None:
    client.push("orders", [{"order": OrderModel(7)}])

    assert client.pop("orders")[0].json() == {"order": {"number": 7}}


def test_bytes_come_back_as_they_were(client: skep.Client) -> None:
    client.push("pictures", b"\x00\xff", content_type="image/png")

    [message] = client.pop("pictures")

    assert (message.payload, message.content_type) == (b"\x00\xff", "image/png")


@pytest.mark.parametrize("payload", [object(), b"bytes without a type", {1: object()}, {"deep": {1, object()}}])
def test_what_cannot_be_json_is_refused_before_it_is_sent(client: skep.Client, payload: object) -> None:
    with pytest.raises(skep.SkepError) as raised:
        client.push("orders", [payload])

    assert raised.value.code is Code.INVALID_PAYLOAD


def test_what_is_said_of_the_push_comes_with_the_message(client: skep.Client) -> None:
    client.push("orders", [1], transaction_id="t-1", trace_id=TRACE, headers={"from": "till"}, priority=3)

    [message] = client.pop("orders")

    assert (message.transaction_id, message.trace_id) == ("t-1", TRACE)
    assert (message.headers, message.priority) == ({"from": "till"}, 3)


def test_a_message_may_have_fields_of_its_own(client: skep.Client) -> None:
    messages = [skep.NewMessage(1, partition="a", transaction_id="t-1", headers={"x": "1"}), skep.NewMessage(2)]
    client.push("orders", messages, partition="b", headers={"x": "2"})

    popped = {message.json(): message for message in client.pop("orders", batch=2)}

    assert (popped[1].partition, popped[1].transaction_id, popped[1].headers) == ("a", "t-1", {"x": "1"})
    assert (popped[2].partition, popped[2].headers) == ("b", {"x": "2"})


def test_a_popped_message_can_be_pushed_on(client: skep.Client) -> None:
    client.push("orders", b"\x00", content_type="image/png", partition="c-1", trace_id=TRACE, headers={"a": "b"})
    [first] = client.pop("orders")

    client.push("archive", first)

    [second] = client.pop("archive")
    assert (second.payload, second.content_type, second.partition) == (b"\x00", "image/png", "c-1")
    assert (second.trace_id, second.headers) == (TRACE, {"a": "b"})
    assert second.transaction_id != first.transaction_id


def test_a_transaction_id_is_minted_for_each_message(client: skep.Client) -> None:
    pushed = client.push("orders", [1, 2])

    ids = [UUID(str(message.transaction_id)) for message in pushed.messages]
    assert ids[0] != ids[1]
    assert {id_.version for id_ in ids} == {7}


def test_no_transaction_id_is_minted_when_it_is_turned_off(client: skep.Client) -> None:
    client.push("orders", [1, 2], transaction_id=None)

    assert [message.transaction_id for message in client.pop("orders", batch=2)] == [None, None]


def test_I3_a_repeated_transaction_id_is_a_duplicate(client: skep.Client) -> None:
    first = client.push("orders", [1], transaction_id="t")

    second = client.push("orders", [1], transaction_id="t")

    assert second.stored == []
    assert [message.message_id for message in second.duplicates] == [first.messages[0].message_id]


def test_one_transaction_id_for_several_messages_is_refused(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError, match="names one message"):
        client.push("orders", [1, 2], transaction_id="t")

    assert_never_pushed_to(client, "orders")


def test_a_message_for_later_is_scheduled(client: skep.Client) -> None:
    pushed = client.push("orders", [1], deliver_at=datetime.now(UTC) + timedelta(hours=1))

    assert len(pushed.scheduled) == 1
    assert client.pop("orders") == []


def test_callbacks_are_told_what_they_are_about(client: skep.Client) -> None:
    client.push("orders", [1], transaction_id="t-1")
    told: dict[str, list[str | None]] = {}

    def note(name: str) -> Any:
        return lambda messages, *_: told.setdefault(name, [message.transaction_id for message in messages])

    client.push(
        "orders", [skep.NewMessage(1, transaction_id="t-1"), skep.NewMessage(2, transaction_id="t-2")],
        on_success=note("stored"), on_duplicate=note("duplicate"), on_error=note("failed"),
    )  # fmt: skip

    assert told == {"stored": ["t-2"], "duplicate": ["t-1"]}


def test_a_refused_push_is_raised_with_each_messages_reason(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError) as raised:
        client.push("orders", [skep.NewMessage(1), skep.NewMessage(2, partition="\0")])

    assert raised.value.code is Code.INVALID_PARTITION
    codes = [message["code"] for message in raised.value.details["messages"]]  # type: ignore[attr-defined] # a list
    assert codes == ["BATCH_REFUSED", "INVALID_PARTITION"]
    assert_never_pushed_to(client, "orders")


def test_on_error_takes_a_refused_push(client: skep.Client) -> None:
    told: list[tuple[list[PushedMessage], skep.SkepError]] = []

    pushed = client.push(
        "orders", [skep.NewMessage(1), skep.NewMessage(2, partition="\0")], on_error=lambda *args: told.append(args)
    )

    [(messages, error)] = told
    assert error.code is Code.INVALID_PARTITION
    assert [message.code for message in messages] == [Code.BATCH_REFUSED, Code.INVALID_PARTITION]
    assert (pushed.failed, pushed.error) == (messages, error)


async def test_the_asynchronous_client_pushes_and_pops_alike(async_client: skep.AsyncClient) -> None:
    pushed = await async_client.push("orders", [Order(1), Order(2)], partition="c-1")
    popped = await async_client.pop("orders", batch=10)

    assert [message.seq for message in pushed.stored] == [1, 2]
    assert [message.as_(Order) for message in popped] == [Order(1), Order(2)]
    assert [result.status for result in await async_client.ack(*popped)] == ["completed", "completed"]
