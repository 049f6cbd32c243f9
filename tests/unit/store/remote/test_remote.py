"""The store over a socket: errors as they are, refusals of what is not the protocol, an owner that goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    NewMessage,
    PopRequest,
    PushBatch,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Seq,
    Settlement,
    Token,
)
from skep.model.system_event import SystemEventKind
from skep.store.protocol import Store
from skep.store.remote.frames import FRAME_BYTES_MAX, HEADER, HELLO
from skep.store.remote.store import RemoteStore, remote_store
from skep.store.remote.verbs import VERBS, VERSION, encode, error_of
from tests.support.owned_store import owned, socket_path

ORDERS = QueueKey("orders")
NUMBER_OF = {str(verb): verb.number for verb in VERBS}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def socket(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Path]:
    async with owned(tmp_path / "skep.db", clock) as socket:
        yield socket


@pytest.fixture
async def stores(socket: Path, clock: ManualClock) -> AsyncIterator[tuple[Store, Store]]:
    """Those of two workers."""
    here, there = remote_store(socket), remote_store(socket)
    for store in (here, there):
        await store.open()
    await here.create_queue(ORDERS, QueueSettings(), clock.now())
    yield here, there
    for store in (here, there):
        await store.close()


def batch(clock: ManualClock, *payloads: str) -> PushBatch:
    messages = [NewMessage(ORDERS, payload.encode()) for payload in payloads]
    return PushBatch(messages, IdMint(clock).mint_many(len(payloads)))


async def test_every_verb_can_be_written_and_read() -> None:
    for verb in VERBS:
        assert callable(verb.decode_arguments), verb
        assert callable(verb.decode_result), verb


async def test_an_error_crosses_as_it_is(stores: tuple[Store, Store], clock: ManualClock) -> None:
    here, _ = stores
    with pytest.raises(SkepError) as caught:
        await here.create_queue(ORDERS, QueueSettings(), clock.now())

    assert (caught.value.code, caught.value.details) == (Code.QUEUE_EXISTS, {"queue": "orders"})
    assert "orders" in caught.value.message


async def test_what_one_worker_leases_another_cannot_have_but_settles(
    stores: tuple[Store, Store], clock: ManualClock
) -> None:
    here, there = stores
    await here.push([batch(clock, "1")], clock.now())
    request = PopRequest(queue=ORDERS, token=Token(b"t" * 16))
    [found] = await here.pop([request], clock.now())
    [nothing] = await there.pop([PopRequest(queue=ORDERS, token=Token(b"u" * 16))], clock.now())
    [settled] = await there.settle([found.deliveries[0].settlement()], clock.now())

    assert ([d.payload for d in found.deliveries], nothing.deliveries, settled.status) == ([b"1"], [], "completed")


async def test_a_number_that_no_message_has_is_refused_as_by_the_store_itself(
    stores: tuple[Store, Store], clock: ManualClock
) -> None:
    here, _ = stores
    [result] = await here.settle(
        [Settlement(queue=ORDERS, partition="Default", seq=Seq(2**70), token=Token(b"t" * 16))], clock.now()
    )

    assert result.code in (Code.STALE_LEASE, Code.NOT_IN_LEASE)


async def test_news_reach_the_others_that_watch_and_not_who_made_them(
    stores: tuple[Store, Store], clock: ManualClock
) -> None:
    here, there = stores
    heard: list[str] = []
    told = asyncio.Event()

    def hear(key: QueueKey) -> None:
        heard.append(f"there {key.name}")
        told.set()

    here.on_news(lambda key: heard.append(f"here {key.name}"), told.set)
    there.on_news(hear, told.set)
    for store in (here, there):
        await store.watch([ORDERS], Instant(clock.now() + seconds(60)))
    await here.push([batch(clock, "1")], clock.now())
    await told.wait()
    await here.probe()  # whatever was to be told to who pushed would have come before this answer

    assert heard == ["there orders"]


async def test_a_watch_that_is_over_is_told_nothing(stores: tuple[Store, Store], clock: ManualClock) -> None:
    here, there = stores
    heard: list[QueueKey] = []
    there.on_news(heard.append, heard.clear)
    await there.watch([ORDERS], Instant(clock.now() + seconds(60)))
    clock.advance(60)
    await here.push([batch(clock, "1")], clock.now())
    await there.probe()
    await there.probe()

    assert heard == []


async def test_changes_are_told_in_their_order_and_once(stores: tuple[Store, Store], clock: ManualClock) -> None:
    here, there = stores
    begun = (await there.system_events(None)).position
    await here.update_queue(ORDERS, QueueChanges(paused=True), clock.now())
    await here.access.end_session("session", clock.now())
    await here.delete_queue(ORDERS, clock.now())
    found = await there.system_events(begun)

    assert [(event.kind, event.key.name) for event in found.events] == [
        (SystemEventKind.QUEUE, "orders"),
        (SystemEventKind.KEY_REVOKED, "session"),
        (SystemEventKind.QUEUE, "orders"),
    ]
    assert found.complete
    assert (await there.system_events(found.position)).events == []


async def test_chores_of_the_whole_store_are_done_for_the_first_worker_only(
    stores: tuple[Store, Store], clock: ManualClock
) -> None:
    here, there = stores
    await here.put_right(clock.now(), 100)
    back = Instant(clock.now() - seconds(3600))
    passed_over = await there.put_right(back, 100)
    done = await here.put_right(back, 100)

    assert (passed_over.done, done.done > 0) == (0, True)


async def test_an_owner_that_goes_away_fails_what_is_under_way_and_is_found_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    at = socket_path()
    store, other = remote_store(at), remote_store(at)
    told = asyncio.Event()
    missed = asyncio.Event()
    store.on_news(lambda _: told.set(), missed.set)
    async with AsyncExitStack() as first:
        await first.enter_async_context(owned(tmp_path / "skep.db", clock, at))
        await store.open()
        position = (await store.system_events(None)).position
        await store.create_queue(ORDERS, QueueSettings(), clock.now())
        await store.watch([ORDERS], Instant(clock.now() + seconds(600)))
    assert not missed.is_set()
    with pytest.raises(SkepError) as caught:
        await store.get_queue(ORDERS)
    assert caught.value.code is Code.STORE_UNAVAILABLE

    async with owned(tmp_path / "skep.db", clock, at):
        events = await store.system_events(position)
        assert not events.complete, "what was remembered of the one before may be wrong"
        await (
            missed.wait()
        )  # what was pushed meanwhile was told to nobody, so a look is due, and a watch at the new one
        await store.watch([ORDERS], Instant(clock.now() + seconds(600)))
        await other.push([batch(clock, "1")], clock.now())
        await told.wait()
        await store.close()
        await other.close()


async def test_a_socket_that_was_deleted_is_said_to_be(clock: ManualClock) -> None:
    """Nobody listens there again, so it would not help to wait."""
    with pytest.raises(SkepError, match="has been deleted") as caught:
        await remote_store(socket_path()).open()
    assert caught.value.code is Code.STORE_UNAVAILABLE


async def test_a_call_that_waits_fails_when_its_owner_goes(tmp_path: Path, clock: ManualClock) -> None:
    """Nothing hangs: the answer will never come."""
    at = socket_path()
    server = await asyncio.start_unix_server(_greets_and_leaves, at)
    store = RemoteStore(at)
    await store.open()
    try:
        with pytest.raises(SkepError) as caught:
            await remote_of(store).get_queue(ORDERS)
    finally:
        server.close()
        await store.close()
        at.unlink(missing_ok=True)

    assert caught.value.code is Code.STORE_UNAVAILABLE


def remote_of(store: RemoteStore) -> Store:
    return store  # type: ignore[return-value]  # its verbs are made from the protocol


async def _greets_and_leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    length, number, _ = HEADER.unpack(await reader.readexactly(HEADER.size))
    await reader.readexactly(length)
    writer.write(HEADER.pack(0, number, 0))
    await reader.readexactly(HEADER.size)
    writer.close()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        pytest.param(len(VERBS), b"", id="an unknown verb"),
        pytest.param(HELLO, VERSION, id="a second greeting"),
    ],
)
async def test_what_is_not_the_protocol_ends_the_connection(socket: Path, kind: int, payload: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(frame(1, HELLO, VERSION))
    await reader.readexactly(HEADER.size)
    writer.write(frame(2, kind, payload))

    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEADER.pack(2, 1, NUMBER_OF["data_keys"]) + b"\x90\x90", id="no greeting"),
        pytest.param(HEADER.pack(FRAME_BYTES_MAX + 1, 1, HELLO), id="too long"),
    ],
)
async def test_a_connection_that_begins_wrong_is_ended(socket: Path, sent: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(sent)

    assert await reader.read() == b""
    writer.close()


async def test_a_worker_of_another_version_is_told_so(socket: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(frame(1, HELLO, b"x" * len(VERSION)))
    length, _, _ = HEADER.unpack(await reader.readexactly(HEADER.size))
    error = error_of(memoryview(await reader.readexactly(length)))
    writer.close()

    assert (error.code, "start the server anew" in error.message) == (Code.STORE_UNAVAILABLE, True)


async def test_arguments_of_another_type_are_refused_and_nothing_else(socket: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(frame(1, HELLO, VERSION))
    await reader.readexactly(HEADER.size)
    writer.write(frame(2, NUMBER_OF["get_queue"], encode(["orders"])))
    length, number, _ = HEADER.unpack(await reader.readexactly(HEADER.size))
    error = error_of(memoryview(await reader.readexactly(length)))
    writer.write(frame(3, NUMBER_OF["get_queue"], encode([ORDERS])))
    _, answered, kind = HEADER.unpack(await reader.readexactly(HEADER.size))
    writer.close()

    assert (number, error.code, answered, kind) == (2, Code.INTERNAL, 3, 0)


async def test_frames_may_come_in_any_pieces(socket: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    for byte in frame(1, HELLO, VERSION) + frame(2, NUMBER_OF["get_queue"], encode([ORDERS])):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    await reader.readexactly(HEADER.size)
    _, number, kind = HEADER.unpack(await reader.readexactly(HEADER.size))
    writer.close()

    assert (number, kind) == (2, 0)


def frame(number: int, kind: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), number, kind) + payload
