"""The client's surface: what may be said is what is understood, and what is there is documented."""

from __future__ import annotations

from pathlib import Path

import pytest

import skep
from skep.client.batcher import BufferOptions, BufferSettings
from skep.client.outgoing import MessageOptions
from skep.client.settings import ClientOptions, ClientSettings
from skep.wire.messages import PushItem

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_of_a_client_may_be_given() -> None:
    assert {*ClientOptions.__annotations__, "urls"} == set(ClientSettings.__struct_fields__)


def test_every_setting_of_a_buffer_may_be_given() -> None:
    assert set(BufferOptions.__annotations__) == set(BufferSettings.__struct_fields__)


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
