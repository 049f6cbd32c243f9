"""`skep ops` against a server that is busy and performs nothing until it is told to."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import skep
from skep.config import EngineSettings, OperationSettings
from skep.testing.server import RunningServer, running_server
from tests.cli.command import Command
from tests.support.waiting import until_so

ABSENT = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(settings=EngineSettings(operations=OperationSettings(drain=False))) as running:
        running.engine.admission.push.load = 0.0
        yield running


def queued(client: skep.Client, queue: str, *payloads: object, partition: str = "Default") -> str:
    pushed = client.push(queue, list(payloads), partition=partition)
    assert pushed.queued is not None
    return pushed.queued.operation_id


@pytest.mark.slow
def test_they_are_listed_newest_first_and_chosen(command: Command, client: skep.Client) -> None:
    ids = [queued(client, "orders", 1), queued(client, "orders", 2, 3, partition="P"), queued(client, "bills", 4)]

    every = command("ops", "list").json()
    orders = command("ops", "list", "--queue", "orders").json()
    one = command(
        "ops", "list", "--queue", "orders", "--partition", "P", "--status", "pending", "--kind", "push"
    ).json()

    assert [found["id"] for found in every] == ids[::-1]
    assert [found["id"] for found in orders] == ids[1::-1]
    assert [(found["id"], found["messages"], found["status"]) for found in one] == [(ids[1], 2, "pending")]
    assert command("ops", "list", "--status", "failed").json() == []
    assert len(command("ops", "list", "--limit", "2").json()) == 2
    assert command("ops", "list", "--status", "nonsense").code == 1


def test_one_is_shown_and_cancelled_once(command: Command, client: skep.Client) -> None:
    id_ = queued(client, "orders", 1)

    shown = command("ops", "show", id_).json()
    cancelled = command("ops", "cancel", id_).json()
    again = command("ops", "cancel", id_)
    absent = command("ops", "show", ABSENT)

    assert (shown["id"], shown["kind"], shown["queue"], shown["partition"]) == (id_, "push", "orders", "Default")
    assert (shown["status"], shown["tries"], shown["result"]) == ("pending", 0, None)
    assert (cancelled["id"], cancelled["status"]) == (id_, "cancelled")
    assert (again.code != 0, "only a pending or a blocked one can be cancelled" in again.err) == (True, True)
    assert (absent.code != 0, "There is no such operation" in absent.err) == (True, True)


def test_people_see_tables(command: Command, client: skep.Client) -> None:
    id_ = queued(client, "orders", 1, 2)

    listed = command.on_terminal("ops", "list").out
    shown = command.on_terminal("ops", "show", id_).out
    stats = command.on_terminal("ops", "stats").out

    assert "orders" in listed
    assert re.search(r"status\s+pending", shown)
    assert re.search(r"tries\s+0", shown)
    assert re.search(r"push\s+pending\s+1", stats)
    assert "performed a second" in stats


def test_a_performed_one_has_its_result(command: Command, client: skep.Client, server: RunningServer) -> None:
    id_ = queued(client, "orders", 1, 2)
    before = command("ops", "stats").json()

    performer = server.engine.operations._performer
    performer._settings, off = OperationSettings(), performer._settings
    server.run(_performed(server))
    performer._settings = off

    shown = command("ops", "show", id_).json()
    stats = command("ops", "stats").json()
    assert before["depth"] >= 1
    assert [(one["kind"], one["status"], one["count"]) for one in before["operations"]] == [("push", "pending", 1)]
    assert (shown["status"], shown["tries"]) == ("completed", 1)
    assert [message["seq"] for message in shown["result"]["messages"]] == [1, 2]
    assert stats["depth"] == 0
    assert [(one["kind"], one["status"], one["count"]) for one in stats["operations"]] == [("push", "completed", 1)]
    assert re.search(r"result\s+\{", command.on_terminal("ops", "show", id_).out)


async def _performed(server: RunningServer) -> None:
    server.engine.operations.wake()
    await until_so(lambda: not server.engine.operations.depth)
