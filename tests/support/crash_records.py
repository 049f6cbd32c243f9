"""What must be true of receipts and entities that a crash leaves: a receipt, its effects and its ack are all there or none is."""

from __future__ import annotations

from collections import defaultdict

from skep.clock import Instant
from skep.ids import Id
from skep.model import SettleStatus, StoredMessage
from skep.model.record import Effect, ReceiptKey
from skep.model.transaction import Transaction
from skep.store.protocol import Store
from tests.contract.driver import check_entity
from tests.support.crash import LIMIT
from torture.history import History


async def check_pushed_once(store: Store, history: History, log: list[StoredMessage], now: Instant) -> None:
    """I15: of all pushes with one receipt, exactly the one that its answer names is in the log; without it none."""
    stored = {message.id for message in log}
    tried: dict[ReceiptKey, set[Id]] = defaultdict(set)
    for call in history.verb("push"):
        for batch in call.request:
            if batch.receipt is not None:
                tried[batch.receipt.key] |= set(batch.ids)
                outcome = None if call.answer is None else call.answer[call.request.index(batch)]
                if outcome is not None:
                    (receipt,) = await store.records.receipts([batch.receipt.key], now)
                    assert receipt is not None, "I1: a receipt that was acknowledged is gone"
    for key, ids in tried.items():
        (receipt,) = await store.records.receipts([key], now)
        named = set() if receipt is None else {Id(bytes.fromhex(receipt.answer.decode().strip('"')))}
        assert ids & stored == named, f"I15: {key} stands for {named}, and {ids & stored} is in the log"


async def check_commands(store: Store, history: History, places: list[Id], now: Instant) -> None:
    """I15 for every message that a transaction handled: acked, recorded and in effect, or nothing of it."""
    effects: dict[Id, list[Effect]] = {}
    acknowledged: set[Id] = set()
    for call in history.verb("transact"):
        transaction: Transaction = call.request[0]
        for effect in transaction.effects:
            assert effect.cause is not None
            effects.setdefault(effect.cause, [])
            if call.answer is not None and call.answer[0].committed:
                acknowledged.add(effect.cause)
    caused: dict[Id, int] = defaultdict(int)
    for entity in await store.records.list_entities("crash", "Counter", "", LIMIT):
        events = await store.records.entity_events(entity.key, 0, LIMIT)
        check_entity(entity, events)
        for event in events:
            assert event.cause is not None
            caused[event.cause] += 1
    otherwise = settled_otherwise(history)
    for id_ in effects:
        (receipt,) = await store.records.receipts([ReceiptKey("once", id_.hex(), "crash")], now)
        assert receipt is not None or id_ not in acknowledged, "I1: a command that was acknowledged is gone"
        assert caused[id_] == (0 if receipt is None else 3), f"I15: {id_.hex()} has {caused[id_]} events and {receipt}"
        if receipt is not None:
            assert places.count(id_) == 0, f"I15: {id_.hex()} is in effect, and comes again"
        elif id_ not in otherwise:
            assert places.count(id_) == 1, f"I15: {id_.hex()} is acked and not in effect"
    assert set(caused) <= set(effects)


def settled_otherwise(history: History) -> set[Id]:
    """What may have been completed by a plain settlement of the script, or was purged."""
    ids = {(given.delivery.queue, int(given.delivery.seq)): given.delivery.id for given in history.gives}
    found = {id_ for call in history.verb("purge") for id_ in call.request}
    for settled in history.settles:
        place = (settled.settlement.queue, int(settled.settlement.seq))
        refused = settled.result is not None and settled.result.status is SettleStatus.REFUSED
        if settled.call.verb == "settle" and settled.call.client != "after" and not refused and place in ids:
            found.add(ids[place])
    return found
