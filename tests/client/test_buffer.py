"""Buffers: messages are taken at once and pushed soon."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest

import skep
from skep.client.buffer import Buffer
from skep.errors import Code
from skep.wire.messages import PushedMessage
from tests.client.scripted import HANG_UP, Received, ScriptedServer, problem, stored

NEVER_MS = 3_600_000.0


def test_everything_is_stored_when_the_block_ends(client: skep.Client) -> None:
    with client.buffer("events", linger_ms=NEVER_MS) as out:
        out.push([1, 2])
        out.push(3, partition="p")

    assert out.unsent == []
    assert sorted(message.json() for message in client.pop("events", batch=10)) == [1, 2, 3]


def test_many_messages_go_in_few_requests() -> None:
    with ScriptedServer(stored) as server, skep.Client(server.url) as client:
        with client.buffer("events", batch=100, linger_ms=NEVER_MS) as out:
            for number in range(1000):
                out.push(number)

        sent = [item["payload"] for request in server.requests for item in request.json["items"]]

    assert sent == list(range(1000))
    assert len(server.requests) == 10


def test_a_message_that_lingers_is_pushed_without_others() -> None:
    arrived = threading.Event()

    def note(request: Received) -> bytes:
        arrived.set()
        return stored(request)

    with ScriptedServer(note) as server, skep.Client(server.url) as client, client.buffer("events", linger_ms=1) as out:
        out.push(1)
        assert arrived.wait(30)


def test_I4_the_order_of_each_partition_is_kept(client: skep.Client) -> None:
    with client.buffer("events", batch=7, linger_ms=0) as out:
        for number in range(100):
            out.push(number, partition=f"p-{number % 3}")

    seen: dict[str, list[int]] = defaultdict(list)
    for message in client.pop("events", batch=100):
        seen[message.partition].append(message.json())
    assert seen == {f"p-{start}": list(range(start, 100, 3)) for start in range(3)}


@pytest.mark.parametrize("bound", [{"max_messages": 2}, {"max_bytes": 150}])
def test_a_full_buffer_blocks_until_there_is_room(bound: dict[str, int]) -> None:
    go_on = threading.Event()

    def hold(request: Received) -> bytes:
        go_on.wait(30)
        return stored(request)

    with ScriptedServer(hold) as server, skep.Client(server.url) as client:
        third = threading.Event()

        def push_three() -> None:
            out.push([1, 2])
            out.push(3)
            third.set()

        with client.buffer("events", linger_ms=NEVER_MS, **bound) as out:
            pushing = threading.Thread(target=push_three)
            pushing.start()
            while not server.requests:
                pushing.join(0.01)
            assert not third.is_set()
            go_on.set()
            pushing.join()

        assert [len(request.json["items"]) for request in server.requests] == [2, 1]


@pytest.mark.parametrize("failure", [HANG_UP, problem(503, "STORE_BUSY")])
def test_I1_what_fails_for_now_is_kept_and_pushed_later_with_the_same_ids(failure: bytes) -> None:
    with (
        ScriptedServer(failure) as server,
        skep.Client(server.url, attempts=1, breaker_failures=100) as client,
        client.buffer("events", linger_ms=NEVER_MS) as out,
    ):
        out.push([1, 2])
        with pytest.raises(skep.SkepError):
            out.flush()
        assert len(out.unsent) == 2
        server.tell(stored)

    assert out.unsent == []
    assert len({tuple(request.transaction_ids) for request in server.requests}) == 1


def test_what_could_not_be_pushed_at_the_end_is_raised_and_shown() -> None:
    with ScriptedServer(HANG_UP) as server, skep.Client(server.url, attempts=1) as client:
        out = client.buffer("events", linger_ms=NEVER_MS)
        with pytest.raises(skep.SkepError) as raised, out:
            out.push([1, 2])

    assert raised.value.code is Code.SERVER_UNREACHABLE
    assert [item.transaction_id for item in out.unsent] == server.requests[0].transaction_ids


def test_a_refused_message_does_not_take_the_others_with_it(client: skep.Client) -> None:
    out = client.buffer("events", linger_ms=NEVER_MS)
    with pytest.raises(skep.SkepError) as raised, out:
        out.push([skep.NewMessage(1), skep.NewMessage(2, partition="\0"), skep.NewMessage(3)])

    assert raised.value.code is Code.INVALID_PARTITION
    failed = raised.value.details["failed"]
    assert isinstance(failed, list)
    assert [type(message) for message in failed] == [PushedMessage]
    assert [message.json() for message in client.pop("events", batch=9)] == [1, 3]


def test_what_cannot_be_json_is_raised_to_whoever_pushed_it(client: skep.Client) -> None:
    with client.buffer("events") as out:
        with pytest.raises(skep.SkepError) as raised:
            out.push(object())
        out.push(1)

    assert raised.value.code is Code.INVALID_PAYLOAD
    assert [message.json() for message in client.pop("events", batch=9)] == [1]


def test_the_rest_is_pushed_when_the_block_fails(client: skep.Client) -> None:
    out = client.buffer("events", linger_ms=NEVER_MS)
    with pytest.raises(ZeroDivisionError), out:
        _ = [out.push(1 // number) for number in (1, 0)]

    assert [message.json() for message in client.pop("events", batch=9)] == [1]


def test_a_buffer_that_is_not_open_takes_nothing(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError, match="not open"):
        client.buffer("events").push(1)


async def test_the_asynchronous_buffer_does_alike(async_client: skep.AsyncClient) -> None:
    async with async_client.buffer("events", batch=10, max_messages=20) as out:
        for number in range(100):
            await out.push(number)
        await out.flush()
        assert out.unsent == []

    assert [message.json() for message in await async_client.pop("events", batch=100)] == list(range(100))


async def test_the_asynchronous_buffer_raises_what_failed() -> None:
    with ScriptedServer(HANG_UP) as server:
        async with skep.AsyncClient(server.url, attempts=1) as client:
            out = client.buffer("events")
            with pytest.raises(skep.SkepError):
                async with out:
                    await out.push(1)

    assert len(out.unsent) == 1


def test_I2_what_is_stored_is_what_was_pushed_though_the_object_changed_since(client: skep.Client) -> None:
    row, headers = {"number": 0}, {"number": "0"}
    with client.buffer("events", linger_ms=NEVER_MS) as out:
        for number in range(3):
            row["number"], headers["number"] = number, str(number)
            out.push(row, headers=headers)

    popped = client.pop("events", batch=10)
    assert [message.json()["number"] for message in popped] == [0, 1, 2]
    assert [message.headers["number"] for message in popped] == ["0", "1", "2"]


def test_a_message_that_spoils_the_whole_request_does_not_take_the_others_with_it(client: skep.Client) -> None:
    def push_all() -> None:
        with client.buffer("events", linger_ms=NEVER_MS) as out:
            for number in range(20):
                out.push(number, trace_id="none" if number == 13 else None)

    with pytest.raises(skep.SkepError) as raised:
        push_all()

    assert raised.value.code is Code.INVALID_TRACE_ID
    assert len(raised.value.details["failed"]) == 1  # type: ignore[arg-type] # a list
    assert [message.json() for message in client.pop("events", batch=20)] == [*range(13), *range(14, 20)]


def test_who_waits_for_room_is_told_when_the_buffer_is_left() -> None:
    told = threading.Event()

    def push_more(out: Buffer) -> None:
        with pytest.raises(skep.SkepError, match="not open"):
            out.push([2, 3, 4])
        told.set()

    # However often it is tried meanwhile, the server is asked, and its own answer is told.
    with (
        ScriptedServer(lambda _: problem(503, "STOPPING")) as server,
        skep.Client(server.url, attempts=1, breaker_failures=1_000_000) as client,
    ):
        out = client.buffer("events", max_messages=1, linger_ms=NEVER_MS)
        out.__enter__()
        out.push(1)
        threading.Thread(target=push_more, args=(out,), daemon=True).start()
        with pytest.raises(skep.SkepError, match="STOPPING"):
            out.__exit__(None, None, None)

        assert told.wait(30)
        with pytest.raises(skep.SkepError, match="STOPPING"):
            out.flush()


def test_what_is_left_of_a_buffer_is_pushed_by_opening_it_again() -> None:
    stopping = threading.Event()
    stopping.set()

    def answer(request: Received) -> bytes:
        return problem(503, "STOPPING") if stopping.is_set() else stored(request)

    # However often a push is tried while the server stops, the client asks it again at once.
    with ScriptedServer(answer) as server, skep.Client(server.url, attempts=1, breaker_failures=1_000_000) as client:
        out = client.buffer("events", linger_ms=NEVER_MS)
        with pytest.raises(skep.SkepError), out:
            out.push(1)
        refused = len(server.requests)  # it may be tried again before the one who leaves is told
        stopping.clear()
        with out:
            out.push(2)

    assert out.unsent == []
    assert [item["payload"] for request in server.requests[refused:] for item in request.json["items"]] == [1, 2]


def test_a_push_that_raises_what_failed_before_takes_nothing(client: skep.Client) -> None:
    def push_until_told(out: Buffer) -> None:
        out.push(0, partition="x" * 1000)
        while True:
            out.push([1, 2])

    buffer = client.buffer("events", max_messages=4, batch=1, linger_ms=0)
    with buffer as out, pytest.raises(skep.SkepError, match="INVALID_PARTITION"):
        push_until_told(out)

    assert sum(queue.stats.depth for queue in client.queues() if queue.stats) % 2 == 0
