"""Short words for what tests of apps do all the time."""

from __future__ import annotations

from typing import Any

from skep.apps.applying import Application, apply
from skep.engine import Engine
from skep.model import NewMessage, QueueKey
from skep.server.compose import Opened
from skep.spec import load

SHOP = """app Shop {
  queue Orders {
    message_type { order: string, customer: string, cents: int, express: bool = false, note: string? }
    ordering: per_key
    key: customer
    idempotency { key: order, window: 1h }
    delivery { dead_letter_queue: Lost }
  }
  queue Lost { message_type { anything: int } }
  queue Free {}
}
"""
ORDERS = QueueKey("Orders")


async def apply_text(opened: Opened, text: str, *, dry_run: bool = False) -> Application:
    """Apply a spec in the language."""
    return await apply(opened.engine, opened.catalogue, load(text, "test.skep"), dry_run=dry_run)


def message(payload: bytes, queue: str = "Orders", tenant: str = "default", **fields: Any) -> NewMessage:
    return NewMessage(QueueKey(queue, tenant), payload, **fields)


async def depth(engine: Engine, queue: str = "Orders", tenant: str = "default") -> int:
    """How many messages a queue has, 0 if there is none."""
    return (await engine.browse.queue_stats(QueueKey(queue, tenant))).last_seq
