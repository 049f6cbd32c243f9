"""Admission: what is decided from which figures, and that it does not flap."""

from __future__ import annotations

import asyncio

import pytest

from skep.clock import ManualClock
from skep.config import AdmissionSettings, EngineSettings, OperationSettings
from skep.engine import Engine
from skep.engine.admission import Admission, AdmissionDecision, Figures, LoadGate
from skep.engine.door import FIRST_LIMIT, Door
from skep.engine.timers import Timers
from skep.errors import Code, SkepError
from skep.model import PushStatus, SettleStatus
from skep.model.chores import Connections
from skep.model.operation import QueuedReason
from tests.engine.driver import ORDERS, EngineDriver, message
from tests.engine.recording import RecordingStore


def an_open_door() -> Door:
    clock = ManualClock()
    return Door(clock, Timers(clock), 0.8, 0.2)


class Server:
    """The figures of a server, as a test sets them."""

    def __init__(self, settings: AdmissionSettings | None = None) -> None:
        self.load = 0.0
        self.depth = 0
        self.drain_rate = 0.0
        self.admission = Admission(
            settings or AdmissionSettings(),
            an_open_door(),
            lambda: Connections(utilisation=5.0, wait_seconds=self.load * self.admission._settings.backlog_seconds),
            self,
        )


@pytest.mark.parametrize(
    ("kind", "load"), [("push", 0.7), ("ack_batch", 0.8), ("ack_single", 0.8)], ids=["push", "ack_batch", "ack_single"]
)
def test_a_kind_is_queued_from_its_own_load_on(kind: str, load: float) -> None:
    server = Server()
    gate: LoadGate = getattr(server.admission, kind)
    server.load = load - 0.01
    assert server.admission.decide(gate) is AdmissionDecision.EXECUTE
    server.load = load
    assert server.admission.decide(gate) is AdmissionDecision.QUEUE


def test_a_pop_is_never_queued() -> None:
    server = Server()
    server.load = 0.94
    assert server.admission.decide(server.admission.pop) is AdmissionDecision.EXECUTE
    server.load = 0.95
    with pytest.raises(SkepError) as refused:
        server.admission.decide(server.admission.pop)
    assert refused.value.code is Code.OVERLOADED
    assert refused.value.retryable


def test_the_limit_comes_before_the_load() -> None:
    """Else a push that must queue behind others would be queued for ever."""
    server = Server()
    for load in (0.0, 0.7, 5.0):
        server.load, server.depth = load, 10_000
        with pytest.raises(SkepError) as refused:
            server.admission.decide(server.admission.push)
        assert refused.value.code is Code.OVERLOADED
        assert server.admission.decide(server.admission.ack_batch) is not AdmissionDecision.REFUSE


def test_an_ack_is_still_queued_when_pushes_are_refused() -> None:
    server = Server()
    server.load, server.depth = 0.9, 49_999
    assert server.admission.decide(server.admission.ack_single) is AdmissionDecision.QUEUE
    server.depth = 50_000
    with pytest.raises(SkepError):
        server.admission.decide(server.admission.ack_single)


def test_a_load_around_the_threshold_does_not_flap() -> None:
    gate = LoadGate(0.7, 10_000, 0.1)
    loads = [0.69, 0.70, 0.69, 0.65, 0.61, 0.69, 0.59, 0.69]
    decided = [gate.decide(Figures(load, 0)) for load in loads]
    queue, execute = AdmissionDecision.QUEUE, AdmissionDecision.EXECUTE
    assert decided == [execute, queue, queue, queue, queue, queue, execute, execute]


def test_a_full_queue_takes_more_once_it_has_room_for_many() -> None:
    gate = LoadGate(0.7, 100, 0.1)
    depths = [99, 100, 99, 91, 90, 89, 99]
    decided = [gate.decide(Figures(0.8, depth)) for depth in depths]
    queue, refuse = AdmissionDecision.QUEUE, AdmissionDecision.REFUSE
    assert decided == [queue, refuse, refuse, refuse, refuse, queue, queue]


def test_when_to_come_again_follows_the_drain() -> None:
    server = Server()
    server.depth = 12_000
    for rate, seconds in ((1_000, 3), (100, 30), (1, 60), (0, 60), (1_000_000, 1)):
        server.drain_rate = rate
        with pytest.raises(SkepError) as refused:
            server.admission.decide(server.admission.push)
        assert refused.value.details["retry_after_seconds"] == seconds


def test_a_long_wait_in_the_engine_is_load_too() -> None:
    server = Server(AdmissionSettings(backlog_seconds=2.0))
    assert server.admission.decide(server.admission.push, wait_seconds=1.3) is AdmissionDecision.EXECUTE
    assert server.admission.decide(server.admission.push, wait_seconds=1.5) is AdmissionDecision.QUEUE


def test_connections_that_are_all_at_work_are_no_load_while_nobody_waits_long_for_one() -> None:
    """Many requests go into one call, so a store may be able to do several times what its connections seem to say."""
    busy = Connections(active=4, waiting=60, utilisation=16.0, wait_seconds=0.1)
    admission = Admission(AdmissionSettings(), an_open_door(), lambda: busy, Server())
    assert admission.decide(admission.push, wait_seconds=0.1) is AdmissionDecision.EXECUTE
    assert admission.decide(admission.pop) is AdmissionDecision.EXECUTE


def test_switched_off_it_executes_everything() -> None:
    server = Server(AdmissionSettings(enabled=False))
    server.load, server.depth = 99.0, 1_000_000
    assert server.admission.decide(server.admission.push) is AdmissionDecision.EXECUTE
    assert server.admission.decide(server.admission.pop) is AdmissionDecision.EXECUTE


async def enter(server: Server) -> None:
    if not server.admission.lets_push_in():
        await server.admission.wait_to_push()


async def test_a_push_is_not_queued_while_the_whole_server_is_busy() -> None:
    """To queue it takes the same store, and more of it."""
    server = Server()
    server.load = 0.8
    for _ in range(int(FIRST_LIMIT) // 2):
        await enter(server)
    assert server.admission.decide(server.admission.push) is AdmissionDecision.QUEUE
    await enter(server)
    assert server.admission.decide(server.admission.push) is AdmissionDecision.EXECUTE
    assert server.admission.decide(server.admission.ack_batch) is AdmissionDecision.QUEUE
    server.admission.leave_push()
    assert server.admission.decide(server.admission.push) is AdmissionDecision.QUEUE


async def test_a_push_that_does_not_get_in_is_told_so() -> None:
    server = Server()
    for _ in range(int(FIRST_LIMIT)):
        await enter(server)
    late = asyncio.ensure_future(enter(server))
    await asyncio.sleep(0)
    server.admission.end_waits()
    with pytest.raises(SkepError, match="as many calls as it can answer in time") as refused:
        await late
    assert refused.value.code is Code.OVERLOADED
    assert refused.value.details["retry_after_seconds"] == 1


# What is in flight is the backlog, and a billionth of a second of it is too much.
BUSY = EngineSettings(admission=AdmissionSettings(backlog_seconds=1e-9), operations=OperationSettings(drain=False))


@pytest.fixture
def settings() -> EngineSettings:
    return BUSY


async def test_a_push_is_queued_while_the_store_is_busy_and_executed_when_it_is_not(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("push")
    first = asyncio.ensure_future(driver.push("1", partition="a"))
    await store.held("push")
    queued = await driver.push("2", partition="b")
    assert [result.status for result in queued.results] == [PushStatus.QUEUED]
    assert [one.reason for one in queued.operations or []] == [QueuedReason.SYSTEM_BUSY]
    store.let_go("push")
    await first
    assert (await driver.push("3", partition="c")).results[0].status is PushStatus.STORED


async def test_a_push_to_several_partitions_is_stored_whole_though_the_store_is_busy(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("push")
    first = asyncio.ensure_future(driver.push("1", partition="a"))
    await store.held("push")
    pushing = asyncio.ensure_future(driver.engine.push([message("2", partition="b"), message("3", partition="c")]))
    await asyncio.sleep(0)
    store.let_go("push")

    assert [result.status for result in (await pushing).results] == [PushStatus.STORED] * 2
    await first


async def test_an_ack_is_queued_while_the_store_is_busy(driver: EngineDriver, store: RecordingStore) -> None:
    await driver.push("1", partition="a")
    await driver.push("2", partition="b")
    one, other = await driver.pop(batch=2)
    store.hold("settle")
    first = asyncio.ensure_future(driver.ack([one]))
    await store.held("settle")
    [queued] = await driver.ack([other])
    assert queued.status is SettleStatus.QUEUED
    store.let_go("settle")
    assert (await first)[0].status is SettleStatus.COMPLETED


async def test_a_pop_is_refused_while_the_store_is_busy(driver: EngineDriver, store: RecordingStore) -> None:
    await driver.push("1")
    store.hold("pop")
    first = asyncio.ensure_future(driver.pop())
    await store.held("pop")
    with pytest.raises(SkepError) as refused:
        await driver.pop()
    assert refused.value.code is Code.OVERLOADED
    store.let_go("pop")
    assert len(await first) == 1


async def test_what_was_buffered_is_not_refused_when_it_is_flushed(
    driver: EngineDriver, store: RecordingStore, engine: Engine
) -> None:
    """It was answered already."""
    store.hold("push")
    first = asyncio.ensure_future(driver.push("1", partition="a"))
    await store.held("push")
    await engine.push_buffered([message("2", partition="b")], wait_ms=0, most=1)
    store.let_go("push")
    await first
    await engine.buffer.flushed([ORDERS])
    assert (await engine.browse.queue_stats(ORDERS)).last_seq == 2
