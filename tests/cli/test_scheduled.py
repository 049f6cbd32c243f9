"""Scheduled messages by the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import skep
from tests.cli.command import Command

SOON = datetime(2101, 1, 1, tzinfo=UTC)


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


def test_they_are_listed_and_shown(command: Command, client: skep.Client) -> None:
    client.push("orders", {"n": 2}, deliver_at=SOON + timedelta(days=1), partition="p")
    [first] = client.push("orders", {"n": 1}, deliver_at=SOON, transaction_id="t").messages
    client.push("mails", "x", deliver_at=SOON)

    assert [one["payload"] for one in command("scheduled", "list", "orders").json()] == [{"n": 1}, {"n": 2}]
    assert len(command("scheduled", "list").json()) == 3
    [narrow] = command("scheduled", "list", "--partition", "p", "--due-after", "1h").json()
    assert narrow["payload"] == {"n": 2}
    assert command("scheduled", "show", "orders", first.message_id).json()["payload"] == {"n": 1}
    assert command("scheduled", "show", "orders", "--transaction-id", "t").json()["id"] == first.message_id
    assert command("scheduled", "show", "orders", "--transaction-id", "nope").code == 4
    assert command("scheduled", "show", "orders").code == 1
    assert "2101-01-0" in command("scheduled", "list", "-o", "table").out


def test_they_are_cancelled_moved_and_run_after_a_question(command: Command, client: skep.Client) -> None:
    messages = client.push("orders", [1, 2, 3], deliver_at=SOON).messages

    assert command("scheduled", "cancel", "orders", "--dry-run").json()["count"] == 3
    unasked = command("scheduled", "cancel", "orders")
    assert (unasked.code, "This will cancel 3 scheduled messages of 'orders'" in unasked.err) == (1, True)
    assert command("scheduled", "run", "orders", messages[2].message_id, "--yes").json()["messages"][0]["seq"] == 1
    moved = command.on_terminal(
        "scheduled", "move", "orders", messages[1].message_id, "--deliver-at", "2h", typed="y\n"
    )
    assert "moved 1 scheduled message" in moved.out
    assert command("scheduled", "cancel", "orders", "--due-after", "3h", "--yes").json()["count"] == 1
    assert [one.id for one in client.scheduled("orders")] == [messages[1].message_id]
    assert command("scheduled", "run", "orders", "--partition", "nope", "--yes").code == 4


def test_a_message_is_held_back_for_a_while(command: Command, client: skep.Client) -> None:
    for delay in ("1h", "3600"):
        assert command("push", "orders", "1", "--delay", delay).json()["status"] == "scheduled"
    line = '{"queue": "orders", "payload": 1, "delaySeconds": 3600}\n'
    assert command("push", "--items", stdin=line).json()["scheduled"] == 1
    assert len(list(client.scheduled("orders", due_before=datetime.now(UTC) + timedelta(hours=1, minutes=5)))) == 3
    for wrong in (("--delay", "soon"), ("--delay", "-1"), ("--delay", "1h", "--deliver-at", "1h")):
        assert command("push", "orders", "1", *wrong).code == 1


def test_message_show_and_trace_know_those_that_are_scheduled(command: Command, client: skep.Client) -> None:
    [told] = client.push("orders", {"n": 1}, deliver_at=SOON, transaction_id="t").messages

    by_name = command("message", "show", "orders", "--transaction-id", "t").json()
    by_id = command("message", "show", "orders", told.message_id).json()
    [traced] = command("trace", told.trace_id or "").json()

    assert by_name["id"] == by_id["id"] == traced["id"] == told.message_id
    assert by_name["deliverAt"] == by_id["deliverAt"] == traced["deliverAt"] == "2101-01-01T00:00:00Z"
    assert "deliver at" in command("message", "show", "orders", told.message_id, "-o", "table").out
