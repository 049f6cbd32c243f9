"""Encrypted queues: nothing of a payload is in the store, everything of it comes out again, and what cannot be sealed is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import apsw
import msgspec
import pyarrow as pa
import pytest

from skep.clock import Instant, ManualClock
from skep.crypto.master import MasterKeys, new_master_line
from skep.engine import Engine
from skep.engine.push.spool.spool import Spool
from skep.engine.staging import StagedAt
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import (
    SEALED_TYPE,
    DeadLetterFilter,
    Edited,
    MessageFilter,
    NewMessage,
    Outcome,
    PopRequest,
    PushBatch,
    PushOutcome,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Seq,
    Settlement,
    SettleResult,
)
from skep.model.operation import NewOperations, OperationKind
from skep.model.staging import Attempt, EpochKey
from skep.server.compose import open_engine
from skep.server.stores import open_store
from tests.engine.driver import settlement, until
from tests.engine.recording import RecordingStore
from tests.support.waiting import until_so

PAYMENTS = QueueKey("payments")
SECRET = b'{"card":"4242424242424242"}'
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
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        yield engine


def message(payload: bytes = SECRET, **fields: object) -> NewMessage:
    return NewMessage(PAYMENTS, payload, **fields)  # type: ignore[arg-type] # as a test names them


async def stored(engine: Engine, key: QueueKey = PAYMENTS) -> list[tuple[bytes, str | None]]:
    """What the log really holds, as whoever reads the store without a key sees it."""
    page = await engine._store.messages(MessageFilter(queue=key), engine.now())
    return [(one.payload, one.content_type) for one in page.messages]


@pytest.mark.parametrize("encrypts", [True, False])
async def test_who_waits_gets_open_what_a_push_or_an_ack_would_have_claimed_closed(
    engine: Engine, encrypts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the queue is known to encrypt, nothing is claimed that would be given back at once."""
    await engine.push([message(), message()])
    (held,) = (await engine.pop(PopRequest(PAYMENTS))).deliveries
    if encrypts:
        monkeypatch.delattr(type(engine._store), "settle_and_pop")
        monkeypatch.delattr(type(engine._store), "push_and_pop")
    else:
        await engine.update_queue(PAYMENTS, QueueChanges(encryption_enabled=False))
    first = asyncio.create_task(engine.pop(PopRequest(PAYMENTS), wait_seconds=60))
    await until(lambda: engine.parked_polls == 1)
    await engine.settle([settlement(held)])
    (got,) = (await first).deliveries
    assert (got.payload, got.attempt) == (SECRET, 1)

    second = asyncio.create_task(engine.pop(PopRequest(PAYMENTS), wait_seconds=60))
    await until(lambda: engine.parked_polls == 1)
    await engine.push([message(partition="another")])
    (got,) = (await second).deliveries
    assert (got.payload, got.attempt) == (SECRET, 1)


async def test_a_payload_is_sealed_in_the_store_and_opened_for_its_consumer(engine: Engine) -> None:
    await engine.push([message(), message(b"\x00\x01", content_type="application/octet-stream")])
    for payload, content_type in await stored(engine):
        assert content_type == SEALED_TYPE
        assert b"4242" not in payload
    popped = (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries
    assert [(d.payload, d.content_type) for d in popped] == [(SECRET, None), (b"\x00\x01", "application/octet-stream")]


async def test_whoever_looks_sees_it_open(engine: Engine) -> None:
    outcome = await engine.push([message(trace_id=engine._ids.mint())])
    [result] = outcome.results
    page = await engine.browse.messages(MessageFilter(queue=PAYMENTS, preview_bytes=6))
    assert page.messages[0].payload == SECRET[:6]
    assert page.messages[0].payload_bytes == len(SECRET)
    assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == SECRET
    assert result.trace_id is not None
    assert [one.payload for one in await engine.browse.trace(result.trace_id)] == [SECRET]
    piece = await engine.log.read(PAYMENTS, Seq(1), Seq(1), columns=["seq", "payload"])
    assert piece.batch.to_pylist() == [{"seq": 1, "payload": SECRET}]


async def test_a_dead_letter_that_is_edited_is_sealed_before_it_is_stored(engine: Engine) -> None:
    await engine.push([message()])
    [popped] = (await engine.pop(PopRequest(PAYMENTS))).deliveries
    await engine.settle([settlement(popped, Outcome.REJECT)])
    dead = DeadLetterFilter(queue=QueueKey("payments.dead"))

    done = await engine.dead_letters.replay_edited(dead, Edited(b'{"card":"4000000000000002"}'))

    assert done.count == 1
    [*_, (payload, content_type)] = await stored(engine)
    assert content_type == SEALED_TYPE
    assert b"4000" not in payload
    [again] = (await engine.pop(PopRequest(PAYMENTS))).deliveries
    assert again.payload == b'{"card":"4000000000000002"}'


async def test_dead_and_replayed_messages_stay_sealed_and_can_be_opened(engine: Engine) -> None:
    await engine.push([message(trace_id=engine._ids.mint()), message(b"2")])
    popped = (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries
    await engine.settle([settlement(one, Outcome.REJECT, error="no") for one in popped])
    dead = DeadLetterFilter(queue=QueueKey("payments.dead"))
    assert [letter.payload for letter in await engine.dead_letters.page(dead)] == [SECRET, b"2"]
    assert [
        d.payload for d in (await engine.pop(PopRequest(QueueKey("payments.dead"), batch=2, group="ops"))).deliveries
    ] == [
        SECRET,
        b"2",
    ]
    await engine.dead_letters.replay(dead)
    assert {kind for _, kind in await stored(engine)} == {SEALED_TYPE}
    assert [d.payload for d in (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries] == [SECRET, b"2"]


async def test_columns_and_staged_messages_are_sealed_too(engine: Engine) -> None:
    batch = pa.record_batch({"payload": [SECRET.decode(), "2"], "partition": ["a", "b"]})
    appended = await engine.push_columns(PAYMENTS, batch)
    assert (appended.first_seq, appended.last_seq) == (1, 2)
    epoch = EpochKey("query", 0)
    await engine.staging.stage_columns(StagedAt(epoch, 0, 0), PAYMENTS, batch)
    await engine.staging.stage_messages(StagedAt(epoch, 1, 0), [message(b"3", partition="c")])
    await engine.staging.publish(epoch, [Attempt(0, 0, 2), Attempt(1, 0, 1)])
    assert {kind for _, kind in await stored(engine)} == {SEALED_TYPE}
    popped = (await engine.pop(PopRequest(PAYMENTS, batch=9))).deliveries
    assert sorted(d.payload for d in popped) == [b"2", b"2", b"3", SECRET, SECRET]


async def test_a_transaction_seals_what_it_pushes(engine: Engine) -> None:
    outcome = await engine.transact([], [message()])
    assert outcome.committed
    assert (await stored(engine))[0][1] == SEALED_TYPE


async def test_a_server_that_does_not_know_yet_does_not_store_plain_text(engine: Engine) -> None:
    """Another server has it encrypted from now on; this one hears of it by being refused."""
    orders = QueueKey("orders")
    await engine.create_queue(orders)
    await engine._store.update_queue(orders, QueueChanges(encryption_enabled=True), engine.now())
    assert not engine.encryption.seals(orders)
    outcome = await engine.push([NewMessage(orders, SECRET)])
    assert not outcome.refused
    assert [content_type for _, content_type in await stored(engine, orders)] == [SEALED_TYPE]


async def test_without_a_master_key_no_queue_can_be_encrypted(url: str, clock: ManualClock) -> None:
    async with open_engine(url, clock=clock) as engine:
        with pytest.raises(SkepError) as refused:
            await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        assert refused.value.code is Code.KEY_UNAVAILABLE
        await engine.create_queue(PAYMENTS)
        with pytest.raises(SkepError):
            await engine.update_queue(PAYMENTS, QueueChanges(encryption_enabled=True))


@pytest.mark.parametrize("masters", [None, MasterKeys(new_master_line("second")), MasterKeys(new_master_line("first"))])
async def test_a_server_does_not_start_without_the_keys_it_needs(
    url: str, clock: ManualClock, masters: MasterKeys | None
) -> None:
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        await engine.push([message()])
    with pytest.raises(SkepError) as refused:
        async with open_engine(url, clock=clock, masters=masters):
            pass
    assert refused.value.code is Code.KEY_UNAVAILABLE


async def test_a_new_master_key_opens_everything_once_keys_are_rewrapped(url: str, clock: ManualClock) -> None:
    old, new = new_master_line("old"), new_master_line("new")
    async with open_engine(url, clock=clock, masters=MasterKeys(old)) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        await engine.push([message()])
    async with open_engine(url, clock=clock, masters=MasterKeys(f"{new}\n{old}")) as engine:
        assert await engine.encryption.rewrap() == 1
        assert await engine.encryption.rewrap() == 0
    async with open_engine(url, clock=clock, masters=MasterKeys(new)) as engine:
        assert [d.payload for d in (await engine.pop(PopRequest(PAYMENTS))).deliveries] == [SECRET]


async def test_a_rotated_key_seals_what_comes_and_the_old_one_opens_what_was(engine: Engine) -> None:
    await engine.push([message(b"1")])
    await engine.encryption.rotate(PAYMENTS)
    await engine.push([message(b"2")])
    assert len(await engine.encryption.wrapped_keys()) == 2
    assert [d.payload for d in (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries] == [b"1", b"2"]


async def test_the_key_that_was_made_last_seals_after_a_start_though_the_clock_was_put_back(
    url: str, clock: ManualClock
) -> None:
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        await engine.push([message(b"1")])
        clock.put_back(60)
        last = await engine.encryption.rotate(PAYMENTS)
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        await engine.push([message(b"2")])
        sealed = [payload.find(last.id) >= 0 for payload, _ in await stored(engine)]
    assert sealed == [False, True]


async def test_shredded_messages_are_gone_for_good_and_stand_in_nobodys_way(engine: Engine) -> None:
    await engine.push([message(b"1")])
    assert await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name) == 1
    await engine.push([message(b"2")])
    assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == b""
    popped = (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries
    if not popped:  # the first one alone was in the way
        popped = (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries
    assert [d.payload for d in popped] == [b"2"]
    [letter] = await engine.dead_letters.page(DeadLetterFilter(queue=QueueKey("payments.dead")))
    assert "CANNOT_DECRYPT" in (letter.error or "")
    with pytest.raises(SkepError) as refused:
        await engine.log.read(PAYMENTS, Seq(1), Seq(2))
    assert refused.value.code is Code.CANNOT_DECRYPT


async def test_the_log_gives_out_no_envelope_when_all_keys_are_shredded(url: str, clock: ManualClock) -> None:
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        await engine.push([message()])
        await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)
        with pytest.raises(SkepError) as refused:
            await engine.log.read(PAYMENTS, Seq(1), Seq(1))
        assert refused.value.code is Code.CANNOT_DECRYPT


async def test_who_acks_by_popping_loses_nothing_that_cannot_be_opened(engine: Engine) -> None:
    await engine.push([message(b"1")])
    await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)
    await engine.push([message(b"2")])

    popped = [
        d.payload for _ in range(2) for d in (await engine.pop(PopRequest(PAYMENTS, batch=2, auto_ack=True))).deliveries
    ]

    assert popped == [b"2"]
    [letter] = await engine.dead_letters.page(DeadLetterFilter(queue=QueueKey("payments.dead")))
    assert "CANNOT_DECRYPT" in (letter.error or "")
    [group] = (await engine.browse.queue_stats(PAYMENTS)).groups
    assert (group.completed, group.dead, group.in_flight, group.pending) == (1, 1, 0, 0)


async def test_a_key_that_is_shredded_while_another_server_starts_is_gone_there_too(
    empty_tables_dsn: str, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has loaded the keys, and opens its spool."""
    opening = Spool.open

    async with open_engine(empty_tables_dsn, clock=clock, masters=MASTERS) as here:
        await here.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        await here.push([message()])

        async def shred_and_open(spool: Spool) -> None:
            assert await here.encryption.shred(PAYMENTS.tenant, PAYMENTS.name) == 1
            await opening(spool)

        monkeypatch.setattr(Spool, "open", shred_and_open)
        async with open_engine(empty_tables_dsn, clock=clock, masters=MASTERS, spool_folder=tmp_path) as there:
            await until_so(lambda: not there.encryption._keys, lambda: clock.advance(there.settings.follow_seconds))
            assert (await there.browse.message(PAYMENTS, Seq(1))).payload == b""
            assert (await there.pop(PopRequest(PAYMENTS))).deliveries == []


async def test_a_tenant_that_is_shredded_is_gone_with_all_its_queues_and_no_other(engine: Engine) -> None:
    cards, theirs = QueueKey("cards"), QueueKey("payments", "rival")
    for key in (cards, theirs):
        await engine.create_queue(key, QueueSettings(encryption_enabled=True))
        await engine.push([NewMessage(key, SECRET)])
    await engine.push([message()])

    assert await engine.encryption.shred(PAYMENTS.tenant, None) == 2

    assert [(await engine.browse.message(key, Seq(1))).payload for key in (PAYMENTS, cards, theirs)] == [
        b"",
        b"",
        SECRET,
    ]


@pytest.mark.parametrize("other", ["a", "b"])
async def test_envelopes_that_were_swapped_between_traces_are_not_handed_out(
    tmp_path: Path, clock: ManualClock, other: str
) -> None:
    """Somebody with the file but without the keys makes one customer's message another's, in the same partition or not."""
    path = tmp_path / "skep.db"
    async with open_engine(str(path), clock=clock, masters=MASTERS) as engine:
        await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
        await engine.push([message(b"1", partition="a"), message(b"2", partition=other)])
    connection = apsw.Connection(str(path))
    rows = list(connection.execute("SELECT position, payload FROM message ORDER BY position"))
    for (position, _), (_, payload) in zip(rows, reversed(rows), strict=True):
        connection.execute("UPDATE message SET payload = ? WHERE position = ?", (payload, position))
    connection.close()
    async with open_engine(str(path), clock=clock, masters=MASTERS) as engine:
        assert (await engine.pop(PopRequest(PAYMENTS, batch=2))).deliveries == []
        assert (await engine.browse.message(PAYMENTS, Seq(1))).payload == b""


async def test_nobody_pushes_an_envelope(clock: ManualClock) -> None:
    store = open_store(":memory:", clock)
    await store.open()
    engine = Engine(store, clock, IdMint(clock), Random(7))
    await engine.start()
    outcome = await engine.push([NewMessage(QueueKey("orders"), b"x", content_type=SEALED_TYPE)])
    assert outcome.results[0].code is Code.INVALID_PAYLOAD
    await engine.stop()
    await store.close()


async def test_whatever_way_messages_come_a_server_that_does_not_know_yet_seals_them(engine: Engine) -> None:
    """As columns and in a transaction, too: refused once, sealed, and stored."""
    columns, transaction = QueueKey("columns"), QueueKey("transaction")
    for key in (columns, transaction):
        await engine.create_queue(key)
        await engine._store.update_queue(key, QueueChanges(encryption_enabled=True), engine.now())
        assert not engine.encryption.seals(key)
    await engine.push_columns(columns, pa.record_batch({"payload": [SECRET.decode()]}))
    assert (await engine.transact([], [NewMessage(transaction, SECRET)])).committed
    for key in (columns, transaction):
        assert [content_type for _, content_type in await stored(engine, key)] == [SEALED_TYPE]


async def test_a_transaction_is_sealed_again_when_another_of_its_queues_is_encrypted_meanwhile(
    store: RecordingStore, clock: ManualClock
) -> None:
    engine = Engine(store.as_store, clock, IdMint(clock), Random(7), masters=MASTERS)
    await engine.start()
    first, second = QueueKey("first"), QueueKey("second")
    for key in (first, second):
        await engine.create_queue(key)
    await store.inner.update_queue(first, QueueChanges(encryption_enabled=True), clock.now())
    store.hold("put_data_key")
    transacting = asyncio.create_task(engine.transact([], [NewMessage(first, SECRET), NewMessage(second, SECRET)]))
    await store.held("put_data_key")
    await store.inner.update_queue(second, QueueChanges(encryption_enabled=True), clock.now())
    store.let_go("put_data_key")

    assert (await transacting).committed
    for key in (first, second):
        assert [content_type for _, content_type in await stored(engine, key)] == [SEALED_TYPE]
    await engine.stop()


async def test_I2_columns_that_cannot_be_stored_at_once_are_refused_and_never_appear(engine: Engine) -> None:
    """Their answer names seqs, so they are not queued behind others: who is told that they failed must be right."""
    batch = PushBatch([message(b"1", partition="a")], [engine._ids.mint()])
    sealed = await engine.encryption.seal(batch.messages, batch.ids)
    held = NewOperations(OperationKind.PUSH, [engine._ids.mint()], push=PushBatch(sealed, batch.ids))
    await engine.operations.stop()  # what is queued stays so
    await engine._store.enqueue([held], engine.now())
    with pytest.raises(SkepError) as refused:
        await engine.push_columns(PAYMENTS, pa.record_batch({"payload": ["2"], "partition": ["a"]}))
    assert refused.value.code is Code.OPERATIONS_AHEAD
    await engine.push_columns(PAYMENTS, pa.record_batch({"payload": ["3"], "partition": ["b"]}))
    assert [d.payload for d in (await engine.pop(PopRequest(PAYMENTS, batch=9))).deliveries] == [b"3"]


async def test_I10_a_server_that_lacks_a_key_gives_messages_back_and_costs_them_no_attempt(
    empty_tables_dsn: str, clock: ManualClock
) -> None:
    old, new = new_master_line("old"), new_master_line("new")
    async with (
        open_engine(empty_tables_dsn, clock=clock, masters=MasterKeys(old)) as behind,
        open_engine(empty_tables_dsn, clock=clock, masters=MasterKeys(f"{new}\n{old}")) as ahead,
    ):
        await ahead.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True, max_attempts=2))
        await ahead.push([message()])
        for _ in range(3):
            with pytest.raises(SkepError) as refused:
                await behind.pop(PopRequest(PAYMENTS))
            assert refused.value.code is Code.KEY_UNAVAILABLE
        [delivery] = (await ahead.pop(PopRequest(PAYMENTS))).deliveries
        assert (delivery.payload, delivery.attempt) == (SECRET, 1)


@pytest.mark.parametrize("auto_ack", [True, False])
async def test_I10_a_pop_that_cannot_settle_gives_messages_back_and_costs_them_no_attempt(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, auto_ack: bool
) -> None:
    """It acks what it hands out, or rejects what cannot be opened, and the store is too busy for that."""
    await engine.update_queue(PAYMENTS, QueueChanges(max_attempts=1))
    if not auto_ack:
        await engine.push([message(b"0")])
        await engine.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)
    await engine.push([message(b"1", partition="a"), message(b"2", partition="b")])
    fail_settling(engine, monkeypatch, times=1)

    with pytest.raises(SkepError) as refused:
        await engine.pop(PopRequest(PAYMENTS, batch=3, auto_ack=auto_ack))

    assert refused.value.code is Code.STORE_BUSY
    assert (await engine.browse.queue_stats(PAYMENTS)).in_flight == 0
    popped = [
        d for _ in range(3) for d in (await engine.pop(PopRequest(PAYMENTS, batch=3, auto_ack=auto_ack))).deliveries
    ]
    assert sorted((delivery.payload, delivery.attempt) for delivery in popped) == [(b"1", 1), (b"2", 1)]


async def test_a_pop_that_can_neither_settle_nor_give_back_says_why_and_leaves_it_to_the_lease(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.push([message(b"1")])
    fail_settling(engine, monkeypatch, times=2)

    with pytest.raises(SkepError) as refused:
        await engine.pop(PopRequest(PAYMENTS, auto_ack=True))

    assert refused.value.message == "busy 1"
    clock.advance(3_600)
    assert [delivery.payload for delivery in (await engine.pop(PopRequest(PAYMENTS, auto_ack=True))).deliveries] == [
        b"1"
    ]


def fail_settling(engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the store be too busy to settle, so many times."""
    store, calls = engine._store, list[object]()
    settle = store.settle

    async def failing(settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        calls.append(settlements)
        if len(calls) <= times:
            raise SkepError(Code.STORE_BUSY, f"busy {len(calls)}")
        return await settle(settlements, now)

    monkeypatch.setattr(store, "settle", failing)


@pytest.mark.parametrize("knows", ["before", "while the store is asked", "by its refusal"])
async def test_a_message_that_does_not_fit_is_sealed_among_the_dead_letters_too(
    engine: Engine, knows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Webhooks put it there without a push."""
    hooked = QueueKey("hooked")
    await engine.create_queue(hooked)
    store = engine._store
    await store.update_queue(hooked, QueueChanges(encryption_enabled=True), engine.now())
    quarantine = store.quarantine

    async def hear_and_ask(*asked: Any) -> PushOutcome:
        engine.encryption.require(hooked)
        return await quarantine(*asked)

    if knows == "before":
        engine.encryption.require(hooked)
    elif knows == "while the store is asked":
        monkeypatch.setattr(store, "quarantine", hear_and_ask)
    await engine.records.quarantine(NewMessage(hooked, SECRET), "it does not fit")
    assert [content_type for _, content_type in await stored(engine, QueueKey("hooked.dead"))] == [SEALED_TYPE]
    [letter] = await engine.dead_letters.page(DeadLetterFilter(queue=QueueKey("hooked.dead")))
    assert letter.payload == SECRET
    await engine.dead_letters.replay(DeadLetterFilter(queue=QueueKey("hooked.dead")))
    assert [delivery.payload for delivery in (await engine.pop(PopRequest(hooked))).deliveries] == [SECRET]


async def copied(engine: Engine, to: QueueKey) -> None:
    """Do what somebody who can write the database does: copy the sealed message of payments, whole, into another queue."""
    store = engine._store
    [one] = (await store.messages(MessageFilter(queue=PAYMENTS), engine.now())).messages
    copy = NewMessage(to, one.payload, partition=one.partition, trace_id=one.trace_id, content_type=SEALED_TYPE)
    assert not (await store.push([PushBatch([copy], [one.id])], engine.now()))[0].refused


@pytest.mark.parametrize("is_encrypted", [True, False])
@pytest.mark.parametrize("name", ["orders", "payments.dead", "payments"])
async def test_an_envelope_that_was_copied_into_another_queue_or_tenant_is_not_opened(
    engine: Engine, name: str, is_encrypted: bool
) -> None:
    """Nor in the queue's own dead-letter queue, when no dead letter is recorded there."""
    elsewhere = QueueKey(name, "rival" if name == "payments" else PAYMENTS.tenant)
    await engine.create_queue(elsewhere, QueueSettings(encryption_enabled=is_encrypted))
    await engine.push([message(trace_id=engine._ids.mint())])
    await copied(engine, elsewhere)

    assert (await engine.browse.message(elsewhere, Seq(1))).payload == b""
    with pytest.raises(SkepError) as refused:
        await engine.log.read(elsewhere, Seq(1), Seq(1))
    assert refused.value.code is Code.CANNOT_DECRYPT
    assert (await engine.pop(PopRequest(elsewhere))).deliveries == []
    assert [d.payload for d in (await engine.pop(PopRequest(PAYMENTS))).deliveries] == [SECRET]


async def test_an_envelope_opens_in_its_own_partition_only(engine: Engine) -> None:
    await engine.push([message(partition="mine")])
    row = await engine._store.message(PAYMENTS, Seq(1))
    assert row is not None
    assert engine.encryption.open(row, None)[0] == SECRET
    with pytest.raises(SkepError) as refused:
        engine.encryption.open(msgspec.structs.replace(row, partition="theirs"), None)

    assert refused.value.code is Code.CANNOT_DECRYPT


async def test_an_envelope_opens_among_dead_letters_only_for_the_source_that_is_recorded(engine: Engine) -> None:
    """Two queues bury in one place; the envelope of one was put over that of the other."""
    shared, cards = QueueKey("shared"), QueueKey("cards")
    await engine.update_queue(PAYMENTS, QueueChanges(dead_letter_queue="shared"))
    await engine.create_queue(cards, QueueSettings(encryption_enabled=True, dead_letter_queue="shared"))
    trace = engine._ids.mint()
    await engine.push([message(b"1", trace_id=trace), NewMessage(cards, b"2", trace_id=trace)])
    for key in (PAYMENTS, cards):
        [popped] = (await engine.pop(PopRequest(key))).deliveries
        await engine.settle([settlement(popped, Outcome.REJECT)])
    assert [one.payload for one in await engine.dead_letters.page(DeadLetterFilter(queue=shared))] == [b"1", b"2"]
    piece = await engine.log.read(shared, Seq(1), Seq(2), columns=["payload"])
    assert piece.batch.column("payload").to_pylist() == [b"1", b"2"]
    assert [(await engine.browse.message(shared, Seq(n))).payload for n in (1, 2)] == [b"1", b"2"]

    store, sources = engine._store, {"cards": "payments", "payments": "cards"}
    letters = await store.dead_letters(DeadLetterFilter(queue=shared), None, 2)
    swapped = [msgspec.structs.replace(one, source_queue=sources[one.source_queue]) for one in letters]
    for one in swapped:
        with pytest.raises(SkepError) as refused:
            engine.encryption.open(one, one.source_queue)
        assert refused.value.code is Code.CANNOT_DECRYPT


async def test_a_key_is_changed_when_what_all_servers_sealed_with_it_comes_to_the_limit(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that start and stop, and each seal a little, know nothing of each other's messages."""
    monkeypatch.setattr("skep.engine.encryption.MESSAGES_PER_KEY", 30)
    monkeypatch.setattr("skep.engine.encryption.SEALS_RESERVED", 10)
    counts = []
    for start in range(7):
        async with open_engine(url, clock=clock, masters=MASTERS) as engine:
            if start == 0:
                await engine.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
            await engine.push([message(b"%d" % start)])
            counts.append(len(await engine.encryption.wrapped_keys()))
    assert counts == [1] * 3 + [2] * 3 + [3]
    async with open_engine(url, clock=clock, masters=MASTERS) as engine:
        assert [d.payload for d in (await engine.pop(PopRequest(PAYMENTS, batch=99))).deliveries] == [
            b"%d" % n for n in range(7)
        ]


async def test_one_server_uses_what_it_reserved_before_it_asks_the_store_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.engine.encryption.MESSAGES_PER_KEY", 100)
    monkeypatch.setattr("skep.engine.encryption.SEALS_RESERVED", 10)
    store = engine._store
    asked: list[int] = []
    reserve = store.reserve_seals

    async def counting(id_: Id, messages: int) -> int | None:
        asked.append(messages)
        return await reserve(id_, messages)

    monkeypatch.setattr(store, "reserve_seals", counting)
    for size in (4, 6, 1, 30, 59):
        await engine.push([message(b"1")] * size)

    assert asked == [10, 10, 30, 59, 59]  # 59 do not fit into what is left of the first key
    assert len(await engine.encryption.wrapped_keys()) == 2
