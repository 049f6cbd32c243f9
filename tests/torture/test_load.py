"""The load: queues that begin another life, and clients that are processes and die in the midst of a call."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from skep.model import Ordering
from skep.testing.server import running_server
from torture.caller import Caller
from torture.check import check
from torture.client_process import ClientOrder, ClientProcess
from torture.history import History
from torture.lives import changed, remake, turn
from torture.load_client import LoadClient
from torture.queues import GROUPS, Queues
from torture.receiver import MOST_FAILURES_IN_A_ROW, Receiver
from torture.resolve import resolved


async def load_client(url: str, *kinds: str) -> LoadClient[Caller]:
    """A client of a round whose queues of these kinds are there."""
    client = LoadClient(Caller([url], "client"), Queues.of_round(0), "seed")
    for kind in kinds:
        queue = client.queues.of_kind[kind]
        await client.caller.again.configure(queue.name, **changed(queue))
        for group in GROUPS:
            await client.caller.pop(queue.key, group, keys=client.queues.key_of)
    return client


async def push(client: LoadClient[Caller], kind: str, step: str) -> None:
    client.begin(step)
    async with client.queues.of_kind[kind].calling() as key:
        await client.caller.push(key, client.messages(key, 3, plain=True))


def history_of(client: LoadClient[Caller]) -> History:
    return History(resolved(client.caller.calls), client.queues.settings())


async def test_a_queue_with_another_ordering_has_another_life_in_a_log_that_goes_on() -> None:
    with running_server() as server:
        client = await load_client(server.url, "turned")
        queue = client.queues.of_kind["turned"]
        await push(client, "turned", "1")
        await turn(client)
        await push(client, "turned", "2")
        found = await client.caller.again.stats(queue.name)
        await turn(client)
        await client.caller.close()

    first, second, third = queue.lives
    assert first.ordering is Ordering.PER_KEY
    assert len({first.ordering, second.ordering, third.ordering}) >= 2
    assert found.settings.ordering == second.ordering
    history = history_of(client)
    assert check(history) == []
    assert [[entry.seq for entry in history.entries[key]] for key in queue.keys[:2]] == [[1, 2, 3], [4, 5, 6]]


async def test_a_queue_that_is_made_again_begins_anew() -> None:
    with running_server() as server:
        client = await load_client(server.url, "remade")
        await push(client, "remade", "1")
        await remake(client)
        await push(client, "remade", "2")
        await client.caller.close()

    history = history_of(client)
    assert check(history) == []
    keys = client.queues.of_kind["remade"].keys
    assert [[entry.seq for entry in history.entries[key]] for key in keys] == [[1, 2, 3], [1, 2, 3]]


async def test_a_call_that_its_process_did_not_survive_has_no_answer(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            asked.set()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(ask, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = ClientProcess(ClientOrder([url], "process0", 0, "seed"), tmp_path / "log")
        step = asyncio.create_task(client.step(0))
        await asked.wait()
        client.send(signal.SIGKILL)

        assert await step == "killed"
        await client.close()

    assert [call.ended for call in client.calls] == [None] * len(client.calls)
    assert client.calls
    assert client.deaths == 1


def test_the_receiver_never_fails_so_often_that_it_is_left_alone() -> None:
    receiver = Receiver("seed")
    answers = [receiver.answer() for _ in range(5_000)]

    failures = "".join("." if answer == 200 else "x" for answer in answers)
    assert "x" * MOST_FAILURES_IN_A_ROW in failures
    assert "x" * (MOST_FAILURES_IN_A_ROW + 1) not in failures


async def test_a_pop_that_acks_is_a_settlement_and_a_pop_at_the_same_time() -> None:
    with running_server() as server:
        client = await load_client(server.url, "keyed")
        key = client.queues.of_kind["keyed"].key
        await push(client, "keyed", "1")
        held = await client.caller.pop(key, "g", keys=client.queues.key_of, batch=2, lease_seconds=30)
        found = await client.caller.go_on(key, "g", held, keys=client.queues.key_of, batch=2, lease_seconds=30)
        await client.caller.close()

    pop, settle = client.caller.calls[-2:]
    assert (pop.verb, settle.verb) == ("pop", "settle")
    assert max(pop.started, settle.started) < min(pop.ended or 0, settle.ended or 0)
    assert [result.status for result in settle.answer] == ["completed"] * len(held)
    assert found is not None
    assert [delivery for _, delivery in found] == pop.answer[0].deliveries
    assert len(held) + len(found) == 3
    assert check(history_of(client)) == []
