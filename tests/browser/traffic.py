"""Traffic of a shop, so that pages have something to show: orders that are done, wait, are worked on, and died."""

from __future__ import annotations

import asyncio
import math
from uuid import UUID

from skep.clock import ManualClock
from skep.testing.server import RunningServer
from tests.http.driver import Api

ERRORS = (
    "TimeoutError: no answer from payments.internal:8443 after 30.0 s",
    "ValueError: amount -{n} of order {n} is negative",
    "KeyError: 'customer_{n}'",
)

WAVE_MINUTES = 3
"""So far apart are the waves of the hour."""


def shop(api: Api) -> None:
    """Four queues in four states."""
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"namespace": "shop", "max_attempts": 1}})
    api.post("/api/v1/configure", {"queue": "emails", "settings": {"namespace": "shop", "max_depth": 20}})
    api.post("/api/v1/configure", {"queue": "invoices", "settings": {"namespace": "billing", "paused": True}})
    for n in range(40):
        items = [{"queue": "orders", "payload": {"order": n, "amount": n * 10}, "partition": f"customer-{n % 7}"}]
        api.post("/api/v1/push", {"items": items})
    for message in api.pop("orders", 20):
        n = message["seq"]
        if n % 3 == 0:
            api.ack(message, "failed", error=ERRORS[n % 2].format(n=n))
        else:
            api.ack(message)
    api.pop("orders", 4)
    api.push("emails", *({"to": f"c{n}@example.com"} for n in range(19)))
    api.push("invoices", *({"invoice": n} for n in range(12)))
    api.pop("emails", 3, "&consumerGroup=mailer")


def an_hour(api: Api, server: RunningServer, clock: ManualClock) -> None:
    """Waves of orders through three queues, each a trace of its own; some fail, some die, and the last few wait."""
    api.post(
        "/api/v1/configure",
        {"queue": "orders", "settings": {"namespace": "shop", "max_attempts": 2, "initial_backoff_ms": 0}},
    )
    api.post("/api/v1/configure", {"queue": "payments", "settings": {"namespace": "shop", "max_attempts": 1}})
    api.post("/api/v1/configure", {"queue": "emails", "settings": {"namespace": "shop", "max_depth": 400}})
    number = 0
    for minute in range(0, 60, WAVE_MINUTES):
        items = []
        for _ in range(int(14 + 10 * math.sin(minute / 6))):
            number += 1
            payload = {
                "order": number,
                "customer": {"id": f"c-{number % 9}", "vip": number % 4 == 0},
                "items": [{"sku": "honey", "price": 7.5}],
            }
            items.append({"queue": "orders", "payload": payload, "partition": f"c-{number % 9}", "traceId": str(UUID(int=number)),
                          "transactionId": f"order-{number}", "headers": {"source": "web"}})  # fmt: skip
        api.post("/api/v1/push", {"items": items})
        clock.advance(2)
        _work(api, clock, minute)
        clock.advance(57 + (WAVE_MINUTES - 1) * 60)
        server.run(_quiet(server))


def _work(api: Api, clock: ManualClock, minute: int) -> None:
    onwards = []
    for message in api.pop("orders", 16 if minute < 50 else 4):
        clock.advance(0.02)
        if message["seq"] % 11 == 0:
            api.ack(message, "failed", error=ERRORS[0])
            continue
        api.post("/api/v1/traces", {"events": [{"traceId": message["traceId"], "name": "checked stock", "messageId": message["id"],
                                                "queue": "orders", "data": {"in stock": 3}}]})  # fmt: skip
        api.ack(message)
        onwards.append(
            {
                "queue": "payments",
                "payload": message["payload"],
                "partition": message["partition"],
                "traceId": message["traceId"],
            }
        )
    if onwards:
        api.post("/api/v1/push", {"items": onwards})
    clock.advance(0.3)
    for message in api.pop("payments", 20, "&consumerGroup=billing"):
        clock.advance(0.05)
        if message["seq"] % 17 == 0:
            api.ack(message, "dlq", error=ERRORS[1 + message["seq"] % 2].format(n=message["seq"]))
        else:
            api.ack(message)
            api.push("emails", {"to": message["payload"]["customer"]["id"]}, traceId=message["traceId"])


async def _quiet(server: RunningServer) -> None:
    while not server.engine.is_quiet:  # noqa: ASYNC110 - the engine has no such event
        await asyncio.sleep(0)
