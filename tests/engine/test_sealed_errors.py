"""Errors of encrypted queues quote payloads, so they are sealed like them wherever they are stored, and open wherever they are shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.crypto.master import MasterKeys, new_master_line
from skep.engine import Engine
from skep.engine.encryption import UNREADABLE_ERROR
from skep.ids import Id
from skep.model import (
    DEFAULT_PARTITION,
    SEALED_ERROR,
    DeadLetterFilter,
    NewMessage,
    Outcome,
    PopRequest,
    QueueKey,
    QueueSettings,
    Retry,
    Seq,
)
from skep.model.history import Journey
from skep.server.compose import open_engine

PAYMENTS = QueueKey("payments")
GRAVE = QueueKey("payments.dead")
SECRET = "card 4242424242424242 was refused"
MASTERS = MasterKeys(new_master_line("first"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "skep.db")
    dsn: str = request.getfixturevalue("empty_tables_dsn")
    return dsn


@pytest.fixture
async def engine(url: str, clock: ManualClock) -> AsyncIterator[Engine]:
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        settings = QueueSettings(encryption_enabled=True, max_attempts=2, initial_backoff_ms=0)
        await engine.create_queue(PAYMENTS, settings)
        await engine.push([NewMessage(PAYMENTS, b"1")])
        yield engine


async def fail(engine: Engine, error: str) -> None:
    [delivery] = (await engine.pop(PopRequest(PAYMENTS))).deliveries
    await engine.settle([delivery.settlement(Outcome.NACK, error=error, retry=Retry.NOW)])


async def shown(engine: Engine) -> list[str | None]:
    [attempts] = await engine.history.attempts([Journey(PAYMENTS, DEFAULT_PARTITION, Seq(1), engine.now())])
    return [one.error for one in attempts]


async def test_an_error_is_sealed_in_the_store_and_opened_for_who_looks(engine: Engine, clock: ManualClock) -> None:
    await fail(engine, SECRET)
    [partition] = await engine.browse.partition_stats(PAYMENTS)
    bare = engine._store
    [kept] = await bare.failures([(PAYMENTS, Seq(1))])
    [bare_partition] = await bare.partition_stats(PAYMENTS, "__QUEUE_MODE__", engine.now())

    assert [one.error for one in kept if one.error and "4242" in one.error] == []
    assert all(one.error and one.error.startswith(SEALED_ERROR) for one in kept)
    assert bare_partition.last_error is not None
    assert "4242" not in bare_partition.last_error
    assert (await shown(engine), partition.last_error) == ([SECRET], SECRET)


async def test_a_dead_letter_has_its_error_sealed_too(engine: Engine) -> None:
    await fail(engine, "first")
    await fail(engine, SECRET)
    [letter] = await engine.dead_letters.page(DeadLetterFilter(queue=GRAVE))
    [death] = await engine.history.deaths(GRAVE, limit=1)
    [bare] = await engine._store.dead_letters(DeadLetterFilter(queue=GRAVE), None, 1)

    [popped] = (await engine.pop(PopRequest(GRAVE))).deliveries

    assert (letter.error, death.error) == (SECRET, SECRET)
    assert popped.dead_letter is not None
    assert popped.dead_letter.error == SECRET
    assert bare.error is not None
    assert "4242" not in bare.error
    assert await shown(engine) == ["first", SECRET]


async def test_the_history_of_replays_shows_the_error_opened(engine: Engine) -> None:
    await fail(engine, "first")
    await fail(engine, SECRET)
    await engine.dead_letters.replay(DeadLetterFilter(queue=GRAVE))

    [(bare, _)] = await engine.dead_letters.replays(GRAVE)

    assert bare.error == SECRET


async def test_with_its_key_destroyed_an_error_is_gone_for_good(engine: Engine) -> None:
    await fail(engine, SECRET)
    await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)

    assert await shown(engine) == [UNREADABLE_ERROR]


@pytest.mark.parametrize("error", [SEALED_ERROR + "AAAA", SEALED_ERROR + "no base 64", SEALED_ERROR])
async def test_nobody_passes_text_off_as_sealed(engine: Engine, error: str) -> None:
    plain = QueueKey("plain")
    await engine.push([NewMessage(plain, b"1")])
    [delivery] = (await engine.pop(PopRequest(plain))).deliveries
    await engine.settle([delivery.settlement(Outcome.NACK, error=error)])

    [attempts] = await engine.history.attempts([Journey(plain, DEFAULT_PARTITION, Seq(1), engine.now())])
    assert [one.error for one in attempts] == [error.removeprefix(SEALED_ERROR[0])]


async def test_a_sealed_error_opens_for_its_own_message_only(engine: Engine) -> None:
    await fail(engine, SECRET)
    [[kept]] = await engine._store.failures([(PAYMENTS, Seq(1))])
    [payload] = await engine.encryption.seal([NewMessage(PAYMENTS, SECRET.encode())], [Id(Seq(1).to_bytes(16))])
    moved = [
        (kept.error, PAYMENTS, Seq(2)),
        (kept.error, QueueKey("other"), Seq(1)),
        (SEALED_ERROR + b64encode(payload.payload).decode(), PAYMENTS, Seq(1)),
        (kept.error, PAYMENTS, None),
    ]

    assert await engine.encryption.open_errors(moved) == [*[UNREADABLE_ERROR] * 3, SECRET]
