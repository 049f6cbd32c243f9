"""The client's surface: what may be said is what is understood, and what is there is documented."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import skep
from skep.client import AsyncQueue, Queue
from skep.client.async_buffer import AsyncBuffer
from skep.client.async_transaction import AsyncTransaction
from skep.client.batcher import BatcherSettings, BufferOptions
from skep.client.buffer import Buffer
from skep.client.calls import POP_DEFAULTS, PopOptions
from skep.client.dead_letter_calls import DeadLetterQuery, DeadLetterWish
from skep.client.message_calls import MessageQuery, OperationQuery
from skep.client.method import QUERY_DEFAULTS
from skep.client.outgoing import PUSH_DEFAULTS, MessageOptions, PushOptions
from skep.client.queue_calls import QueueQuery
from skep.client.settings import ClientOptions, ClientSettings
from skep.client.transaction import Transaction
from skep.model import QueueSettings
from skep.model.queue_settings import QueueOptions
from skep.wire.messages import PushItem

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_of_a_client_may_be_given() -> None:
    assert {*ClientOptions.__annotations__, "urls"} == set(ClientSettings.__struct_fields__)


def test_every_setting_of_a_buffer_may_be_given() -> None:
    assert set(BufferOptions.__annotations__) == set(BatcherSettings.__struct_fields__)


def test_everything_that_travels_with_a_message_may_be_given() -> None:
    named = {"delay_seconds" if name == "delay" else name for name in MessageOptions.__annotations__}
    assert {*named, "queue", "payload"} == set(PushItem.__struct_fields__)


def public_methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(public_methods(skep.Client) - {"like", "run", "settle", "clock", "settings"}))
def test_every_method_of_the_client_is_documented(name: str) -> None:
    pages = (DOCS / "client.md").read_text(encoding="utf-8") + (DOCS / "transactions.md").read_text(encoding="utf-8")

    assert f"{name}(" in pages or f"`{name}`" in pages


@pytest.mark.parametrize("name", skep.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(skep, name).__name__ == name


SPELLED = [
    skep.Client, skep.AsyncClient, Queue, AsyncQueue, skep.Worker, skep.App, skep.Message, skep.AsyncMessage, Buffer,
    AsyncBuffer, Transaction, AsyncTransaction,
]  # fmt: skip


def calls_of(kind: type) -> list[tuple[str, Callable[..., Any]]]:
    """What can be called of a class, and the class itself, unless it is a struct, whose fields tell."""
    found = [(name, getattr(kind, name)) for name in sorted(public_methods(kind))]
    own = [] if issubclass(kind, msgspec.Struct) else [(kind.__name__, kind)]
    return [*own, *((f"{kind.__name__}.{name}", one) for name, one in found if inspect.isroutine(one))]


@pytest.mark.parametrize(("name", "call"), [one for kind in SPELLED for one in calls_of(kind)])
def test_no_call_hides_its_keyword_arguments_behind_two_asterisks(name: str, call: Callable[..., Any]) -> None:
    hidden = [one for one in inspect.signature(call).parameters.values() if one.kind is one.VAR_KEYWORD]

    assert hidden == [], name


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (skep.Client, ClientOptions), (skep.Worker, ClientOptions), (skep.App.work, ClientOptions),
        (skep.Client.push, PushOptions), (skep.AsyncClient.push, PushOptions), (Queue.push, PushOptions),
        (skep.Client.pop, PopOptions), (skep.Client.pop_matching, PopOptions), (skep.Client.consume, PopOptions),
        (Queue.pop, PopOptions), (Queue.consume, PopOptions), (skep.Client.buffer, BufferOptions),
        (skep.Client.configure, QueueOptions), (Queue.configure, QueueOptions),
        (Transaction.push, MessageOptions), (AsyncTransaction.push, MessageOptions), (Buffer.push, MessageOptions),
        (skep.Client.dead_letters, DeadLetterQuery), (skep.Client.replay, DeadLetterWish),
        (skep.Client.purge, DeadLetterWish), (skep.Client.messages, MessageQuery), (skep.Client.queues, QueueQuery),
        (skep.Client.operations, OperationQuery),
    ],
)  # fmt: skip
def test_the_keyword_arguments_that_are_shown_are_those_that_are_taken(call: Callable[..., Any], options: Any) -> None:
    shown = inspect.signature(call).parameters

    assert set(options.__annotations__) <= set(shown)
    for name in options.__annotations__:
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].annotation
        assert shown[name].default is not inspect.Parameter.empty


def test_help_shows_names_types_and_defaults() -> None:
    shown = pydoc.plain(pydoc.render_doc(skep.Client.push))

    assert "**options" not in shown
    assert "partition: 'str' = 'Default'" in shown
    assert "transaction_id: 'str | None' = <minted>" in shown
    assert "Without a ``transaction_id`` each message gets one" in pydoc.plain(pydoc.render_doc(Transaction.push))
    assert "batch: 'int' = 1" in pydoc.plain(pydoc.render_doc(skep.Client.pop))
    assert "max_attempts: 'int' = 3" in pydoc.plain(pydoc.render_doc(skep.Client.configure))
    assert "retry_on_429: 'bool' = True" in pydoc.plain(pydoc.render_doc(skep.Client))


def test_a_call_that_both_clients_have_waits_in_the_one_for_asyncio_only() -> None:
    assert inspect.iscoroutinefunction(skep.AsyncClient.stats)
    assert inspect.isasyncgenfunction(skep.AsyncClient.queues)
    assert not inspect.iscoroutinefunction(skep.Client.stats)
    assert inspect.isgeneratorfunction(skep.Client.queues)


def test_help_shows_what_a_call_that_both_clients_have_returns() -> None:
    shown = {
        call: str(inspect.signature(call).return_annotation)
        for call in (skep.Client.stats, skep.AsyncClient.stats, skep.Client.queues, skep.AsyncClient.queues)
    }

    assert list(shown.values()) == ["QueueDetail", "QueueDetail", "Iterator[ListedQueue]", "AsyncIterator[ListedQueue]"]
    assert "A queue with its settings" in pydoc.plain(pydoc.render_doc(skep.AsyncClient.stats))


def test_every_setting_of_a_queue_may_be_given() -> None:
    assert set(QueueOptions.__annotations__) == set(QueueSettings.__struct_fields__)


def test_defaults_that_are_shown_are_of_arguments_that_are_there() -> None:
    queries: list[Any] = [DeadLetterQuery, DeadLetterWish, MessageQuery, QueueQuery, OperationQuery]

    assert set(PUSH_DEFAULTS) <= set(PushOptions.__annotations__)
    assert set(POP_DEFAULTS) <= set(PopOptions.__annotations__)
    assert set(QUERY_DEFAULTS) <= {name for query in queries for name in query.__annotations__}
