"""Scheduled messages by the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import skep
from tests.cli.command import Command


def test_a_message_pushed_with_a_duration_waits_for_that_long(command: Command, client: skep.Client) -> None:
    assert command("push", "orders", "1", "--deliver-at", "1h").json()["status"] == "scheduled"
    assert client.stats("orders").stats.scheduled == 1
    assert client.pop("orders") == []


def test_a_retry_after_a_duration_is_that_far_ahead(command: Command, client: skep.Client) -> None:
    client.push("orders", 1)
    [popped] = command("pop", "orders").json()
    before = datetime.now(UTC)
    [told] = command("ack", popped["leaseId"], str(popped["seq"]), "--status", "retry", "--retry-at", "10m").json()
    again_at = datetime.fromisoformat(told["retryAt"])
    assert before + timedelta(minutes=10) <= again_at <= datetime.now(UTC) + timedelta(minutes=10)
