"""A connection that is cut at every byte of a push: the caller is told that it is buffered, and it is stored once (I13)."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.clock import SystemClock
from skep.config import AdmissionSettings, EngineSettings, SpoolSettings
from skep.engine import Engine
from skep.engine.push.spool.spool import SpoolState
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import MessageFilter, NewMessage, PushStatus, QueueKey, Seq
from skep.store.postgres import PostgresStore
from tests.support.waiting import until_so
from torture.proxy import Proxy

Q = QueueKey("q")
PAGE = 10_000


class Cut:
    """An engine with a spool that reaches PostgreSQL by way of a proxy."""

    def __init__(self, engine: Engine, proxy: Proxy) -> None:
        self.engine = engine
        self.proxy = proxy
        self.pushed: list[bytes] = []

    async def push(self, count: int, **fields: str) -> PushStatus:
        number = len(self.pushed)
        texts = [b"%d" % (number + n) for n in range(count)]
        outcome = await self.engine.push([NewMessage(Q, text, "p", **fields) for text in texts])  # type: ignore[arg-type]
        self.pushed += texts
        return outcome.results[0].status

    async def done_or_cut(self, push: asyncio.Future[PushStatus]) -> None:
        await until_so(lambda: push.done() or self.proxy.cuts)

    async def sent(self, count: int) -> None:
        """Wait until so many bytes went to PostgreSQL, or all that is spooled."""
        spool = self.engine.spool
        assert spool is not None
        self.proxy.count()
        await until_so(lambda: self.proxy.sent >= count or spool.figures().state is SpoolState.UP)

    async def drained(self) -> None:
        spool = self.engine.spool
        assert spool is not None
        await until_so(lambda: spool.figures().state is SpoolState.UP)

    async def check(self) -> None:
        found: list[bytes] = []
        while page := await self._page(len(found)):
            found += page
        assert found == self.pushed

    async def _page(self, after: int) -> list[bytes]:
        """The messages after a seq: nothing is deleted here, so they are as many."""
        wanted = MessageFilter(queue=Q, after=Seq(after), limit=PAGE)
        return [message.payload for message in (await self.engine.browse.messages(wanted)).messages]


@asynccontextmanager
async def engine_behind_proxy(dsn: str, folder: Path, **settings_of_spool: float) -> AsyncIterator[Cut]:
    async with Proxy(dsn) as proxy:
        clock = SystemClock()
        store = PostgresStore(proxy.dsn, max_connections=2, clock=clock)
        await store.open()
        spool = msgspec.structs.replace(SpoolSettings(free_bytes=0), **settings_of_spool)
        # With so few connections every second push would be queued, and it is the direct way that is cut here.
        admission = AdmissionSettings(enabled=False)
        settings = EngineSettings(
            shared=True, follow_seconds=1000, maintain_seconds=1000, spool=spool, admission=admission
        )
        engine = Engine(store, clock, IdMint(clock), Random(7), settings, folder)
        await engine.start()
        await engine.create_queue(Q)
        try:
            yield Cut(engine, proxy)
        finally:
            await engine.stop()
            await store.close()


@pytest.fixture
async def cut(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Cut]:
    async with engine_behind_proxy(postgres_dsn, tmp_path / "spool") as made:
        yield made


@pytest.mark.parametrize(
    ("count", "step"),
    [(1, 97), (40, 331), pytest.param(1, 5, marks=pytest.mark.slow), pytest.param(40, 17, marks=pytest.mark.slow)],
)
async def test_I13_a_push_cut_at_every_byte_is_stored_once(cut: Cut, count: int, step: int) -> None:
    """The first way, with one statement, and the long way, with a transaction and a COMMIT."""
    await cut.push(count)
    await cut.push(count)
    cut.proxy.count()
    await cut.push(count)
    sent, received = cut.proxy.sent, cut.proxy.received
    assert sent > 0
    assert received > 0
    seen: set[PushStatus] = set()
    limits = [(at, None) for at in range(0, sent + 1, step)] + [
        (None, at) for at in range(0, received + 1, max(1, step // 10))
    ]
    for sent_limit, received_limit in limits:
        cut.proxy.cut_after(sent_limit, received_limit)
        push = asyncio.ensure_future(cut.push(count))
        # Whoever is cut comes back by another connection, which is not to be cut.
        await cut.done_or_cut(push)
        cut.proxy.cuts = 0
        cut.proxy.count()
        seen.add(await push)
        await cut.drained()
        await cut.push(count)
    await cut.check()
    assert PushStatus.BUFFERED in seen


async def test_I13_an_answer_that_does_not_come_is_no_answer(postgres_dsn: str, tmp_path: Path) -> None:
    """Nothing is cut, nothing comes: after a while the store counts as away, and what it did meanwhile is found out."""
    async with engine_behind_proxy(postgres_dsn, tmp_path / "spool", store_seconds=1) as stalled:
        await stalled.push(1)
        for count in (1, 40):
            stalled.proxy.stall()
            push = asyncio.ensure_future(stalled.push(count))
            async with asyncio.timeout(60):
                assert await push is PushStatus.BUFFERED
            stalled.proxy.resume()
            await stalled.drained()
        await stalled.push(1)
        await stalled.check()


@pytest.mark.slow
async def test_I13_cut_again_and_again_while_it_drains(cut: Cut) -> None:
    random = Random(3)
    await cut.push(1)
    for _ in range(6):
        cut.proxy.refuse()
        cut.proxy.cut()
        for _ in range(30):
            await cut.push(3)
        cut.proxy.refuse(False)
        for _ in range(3):
            await cut.sent(random.randrange(20_000))
            cut.proxy.cut()
            await cut.push(1)
        await cut.drained()
    await cut.check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=131072", "none", str(mount)], capture_output=True)
    if made.returncode:
        pytest.skip("may not mount here")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


async def test_I2_a_disk_that_is_full_is_said_and_nothing_is_kept(postgres_dsn: str, small_disk: Path) -> None:
    async with engine_behind_proxy(postgres_dsn, small_disk / "spool") as one:
        one.proxy.refuse()
        one.proxy.cut()
        refused: list[Code] = []
        for _ in range(600):
            try:
                await one.push(10)
            except SkepError as error:
                refused.append(error.code)
        assert set(refused) == {Code.STORE_UNAVAILABLE}
        assert one.pushed
        one.proxy.refuse(False)
        await one.drained()
        await one.check()
        await one.push(1)
        await one.check()
