"""A large server: a page asks as much of the store as of a small one, but for the queues that it shows.

What is counted are rows that SQLite steps over, by its own statement counters; how long that takes is told by
`docs/dashboard.md`, and no test's business.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import apsw
import pyarrow as pa
import pytest

from skep.model import PopRequest, QueueKey
from skep.server.compose import open_engine
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.session import Session
from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api

PARTITIONS = 100
PAGES = (
    "/", "/queues", "/queues?sort=depth", "/queues/queue-0003", "/queues/queue-0003/settings", "/queues/queue-0003/clear",
    "/queues/queue-0003/groups/__QUEUE_MODE__/seek?to=beginning", "/messages?q=queue:queue-0003",
    "/messages?q=queue:queue-0003&seq=120", "/messages?q=queue:queue-0003%20payload.order=17",
    "/messages?q=queue:queue-0003%20state:in_flight", "/traces", "/traces?id=nosuch", "/dead-letters", "/operations",
    "/pipelines",
)  # fmt: skip
STEPS_PER_QUEUE = 6_000
"""Instructions of SQLite's virtual machine for each queue that a page tells of: its figures, and its partitions with work."""
STEPS_PER_PAGE = 600_000


class Shop(NamedTuple):
    """A server with many queues."""

    server: RunningServer
    queues: int


class Steps:
    """Counts instructions of all statements of all sessions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        every = 100

        def count() -> bool:
            self.taken += every
            return False

        made = Session.__init__

        def counting(session: Session, db: apsw.Connection, checkpoints: Checkpoints | None = None) -> None:
            db.set_progress_handler(count, every)
            made(session, db, checkpoints)

        monkeypatch.setattr(Session, "__init__", counting)


async def fill(path: Path, queues: int, messages: int) -> None:
    partition = pa.array([f"p{n % PARTITIONS:03}" for n in range(messages)])
    payload = pa.array([b'{"order":%d}' % n for n in range(messages)], pa.binary())
    batch = pa.record_batch({"partition": partition, "payload": payload})
    async with open_engine(str(path)) as engine:
        for number in range(queues):
            key = QueueKey(f"queue-{number:04}")
            await engine.push_columns(key, batch)
            popped = (await engine.pop(PopRequest(key, batch=150, lease_seconds=86_400))).deliveries
            await engine.settle([delivery.settlement() for delivery in popped[:100]])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def asked(steps: Steps, server: RunningServer) -> dict[str, int]:
    """How much each page asks of the store."""
    api, found = Api(server, "default"), {}
    for page in PAGES:
        server.app._pages.site.snapshots.forget("default")  # type: ignore[union-attr] # it is the dashboard
        before = steps.taken
        reply = api.request("GET", page, headers={"Accept": "text/html", "HX-Request": "true"})
        assert reply.status == 200, page
        found[page] = steps.taken - before
    api.close()
    return found


def test_no_page_asks_more_when_the_log_grows(steps: Steps, tmp_path: Path) -> None:
    told = []
    for messages in (8_000, 24_000):
        path = tmp_path / f"{messages}.db"
        asyncio.run(fill(path, 5, messages))
        with running_server(str(path)) as server:
            told.append(asked(steps, server))

    for page in PAGES:
        few, many = told[0][page], told[1][page]
        assert many <= few * 1.5 + 20_000, (page, few, many)


@pytest.mark.slow
def test_pages_of_1000_queues_100000_partitions_and_5000000_messages(steps: Steps, tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    asyncio.run(fill(path, 1_000, 5_000))

    with running_server(str(path)) as server:
        told = asked(steps, server)

    for page, taken in told.items():
        shows_all = page.partition("?")[0] in ("/", "/queues", "/dead-letters")
        assert taken <= STEPS_PER_PAGE + (STEPS_PER_QUEUE * 1_000 if shows_all else 0), (page, taken)
