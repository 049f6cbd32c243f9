"""The gate: what it remembers, what it asks the store for, and what happens when keys change while it looks."""

from __future__ import annotations

import asyncio

import pytest

from skep.access.gate import Gate
from skep.access.keys import Minted, mint
from skep.access.rates import UNKNOWN_PER_SECOND
from skep.clock import Instant, ManualClock
from skep.config import AccessSettings
from skep.engine.access import Access
from skep.engine.inflight import InFlight
from skep.errors import Code, SkepError
from skep.model.key import Grant, KeyRecord, Verb
from tests.engine.recording import RecordingStore
from tests.support.reference_store import ReferenceStore


class Desk:
    """A store, an engine's face for keys, and a gate."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.inner = ReferenceStore()
        self.store = RecordingStore(self.inner)
        self.keys = RecordingStore(self.inner.access)  # type: ignore[arg-type] # it records any verbs
        self.store.access = self.keys  # type: ignore[attr-defined] # the same
        self.access = Access(self.store.as_store.access, self.clock, InFlight())
        self.gate = Gate(self.access, self.clock, AccessSettings(required=True))

    def minted(self, *grants: Grant) -> Minted:
        return mint("k", grants or [Grant((Verb.PUSH,))], created_by="test", now=self.clock.now())

    async def made(self) -> Minted:
        minted = self.minted()
        await self.access.put_key(minted.record)
        return minted

    @property
    def look_ups(self) -> int:
        return len(self.keys.calls["get_key"])

    async def refused(self, minted: Minted) -> None:
        with pytest.raises(SkepError) as refused:
            await self.gate.admit(minted.text.encode())
        assert refused.value.code is Code.UNAUTHENTICATED


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_key_costs_no_look_at_the_store_once_it_is_known(desk: Desk) -> None:
    minted = await desk.made()
    first = await desk.gate.admit(minted.text.encode())
    before = desk.look_ups

    assert await desk.gate.admit(minted.text.encode()) is first
    assert desk.gate.remembered(minted.text.encode()) is first
    assert desk.look_ups == before


async def test_made_up_keys_do_not_keep_the_store_busy(desk: Desk) -> None:
    for _ in range(1_000):
        await desk.refused(desk.minted())
    assert desk.look_ups <= 2 * UNKNOWN_PER_SECOND
    good = await desk.made()
    await desk.gate.admit(good.text.encode())  # they do not hold up others either


async def test_a_key_revoked_while_it_is_read_is_read_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.gate.load()
    minted = desk.minted()
    desk.inner.access.keys[minted.record.id] = minted.record  # made elsewhere, and unheard of
    look = desk.inner.access.get_key

    async def late(id_: str) -> KeyRecord | None:
        found = await look(id_)
        if found is not None and found.revoked_at is None:
            await desk.access.revoke_key(id_)  # after it was read, before that is told
        return found

    monkeypatch.setattr(desk.inner.access, "get_key", late)
    await desk.refused(minted)


async def test_a_key_revoked_while_all_are_loaded_does_not_get_in(desk: Desk) -> None:
    minted = await desk.made()
    stale = desk.inner.access.keys[minted.record.id]
    desk.keys.hold("list_keys")
    loading = asyncio.ensure_future(desk.gate.load())
    await desk.keys.held("list_keys")
    await desk.access.revoke_key(minted.record.id)
    desk.inner.access.keys[minted.record.id], revoked = stale, desk.inner.access.keys[minted.record.id]
    desk.keys.let_go("list_keys")
    await loading
    desk.inner.access.keys[minted.record.id] = revoked

    await desk.refused(minted)


async def test_after_missed_changes_everything_is_read_anew_and_who_was_revoked_is_over(desk: Desk) -> None:
    kept, lost = await desk.made(), await desk.made()
    staying, going = [await desk.gate.admit(one.text.encode()) for one in (kept, lost)]
    ended = asyncio.ensure_future(going.over())
    await desk.inner.access.revoke_key(lost.record.id, desk.clock.now(), Instant(2**60))  # elsewhere, and unheard of

    desk.access.changed(None, True)
    await asyncio.wait_for(ended, 10)

    assert (staying.is_over, going.is_over) == (False, True)
    assert await desk.gate.admit(kept.text.encode()) is staying
    await desk.refused(lost)


async def test_while_keys_cannot_be_read_nobody_gets_in(desk: Desk) -> None:
    minted = await desk.made()
    await desk.gate.admit(minted.text.encode())
    away = SkepError(Code.STORE_UNAVAILABLE, "away")
    desk.keys.fail_next("list_keys", away)
    desk.access.changed(None, True)

    assert desk.gate.remembered(minted.text.encode()) is None
    with pytest.raises(SkepError, match="away"):
        await desk.gate.admit(minted.text.encode())
    await desk.gate.admit(minted.text.encode())


async def test_news_of_a_new_key_does_not_disturb_who_uses_it_already(desk: Desk) -> None:
    minted = await desk.made()
    principal = await desk.gate.admit(minted.text.encode())
    desk.access.changed(minted.record.id, False)

    assert not principal.is_over
    assert desk.gate.remembered(minted.text.encode()) is principal
