"""Finding out which messages became of pushes whose answers were lost: every payload is pushed once, so it names its message.

- A push without an answer gets the ids under which its payloads were seen in logs and deliveries.
- A push that was refused gets them, too: nobody may have seen it.
- A push that was answered as a duplicate of itself (the client repeated it) was stored by that call.
- A replay without an answer gets the ids of messages that bear a payload already stored under another id.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct, structs

from skep.ids import Id
from skep.model import PushBatch, PushOutcome, PushResult, PushStatus, QueueKey, Seq
from skep.model.transaction import Transaction, TransactionOutcome
from torture.history import Call


class Sight(Struct, frozen=True):
    """A message as somebody saw it."""

    seq: Seq
    id: Id
    queue: QueueKey


class Sights:
    """What was seen under each payload, and the payload of each id. Of several messages the first in the log is the one that was pushed."""

    def __init__(self, calls: list[Call]) -> None:
        self.payload_of: dict[Id, bytes] = {}
        self.under: dict[bytes, dict[Id, Sight]] = defaultdict(dict)
        for call in calls:
            if call.ended is None:
                continue
            if call.verb == "log":
                for message in call.answer:
                    self._see(message.payload, Sight(message.seq, message.id, call.request))
            elif call.verb == "pop":
                for delivery in call.answer[0].deliveries:
                    self._see(delivery.payload, Sight(delivery.seq, delivery.id, delivery.queue))

    def _see(self, payload: bytes, sight: Sight) -> None:
        self.payload_of[sight.id] = payload
        self.under[payload][sight.id] = sight

    def first(self, payload: bytes) -> Sight | None:
        return min(self.under.get(payload, {}).values(), key=lambda sight: sight.seq, default=None)


def resolved(calls: list[Call]) -> list[Call]:
    """The calls, with what was found out about them."""
    sights = Sights(calls)
    pushed = [_resolved_push(call, sights) for call in calls]
    return _with_replays(pushed, sights)


def _resolved_push(call: Call, sights: Sights) -> Call:
    if call.verb in ("push", "accept"):
        batch = call.request[0]
        if call.ended is None or call.verb == "accept":
            return structs.replace(call, request=[_found(batch, sights)])
        batch, outcome = _own_duplicates(batch, call.answer[0], sights)
        return structs.replace(call, request=[batch], answer=[outcome])
    if call.verb == "transact":
        transaction: Transaction = call.request[0]
        if call.ended is None:
            found = structs.replace(transaction, push=_found(transaction.push, sights))
            return structs.replace(call, request=[found])
        answer: TransactionOutcome = call.answer[0]
        if answer.committed:
            batch, outcome = _own_duplicates(transaction.push, answer.pushed, sights)
            request = [structs.replace(transaction, push=batch)]
            return structs.replace(call, request=request, answer=[structs.replace(answer, pushed=outcome)])
    return call


def _found(batch: PushBatch, sights: Sights) -> PushBatch:
    """The batch with the ids under which its messages were seen, and in the life of the queue in which they were."""
    ids, messages = list(batch.ids), list(batch.messages)
    for place, message in enumerate(batch.messages):
        sight = sights.first(message.payload)
        if sight is not None:
            ids[place] = sight.id
            messages[place] = structs.replace(message, queue=sight.queue)
    return PushBatch(messages, ids)


def _own_duplicates(batch: PushBatch, outcome: PushOutcome, sights: Sights) -> tuple[PushBatch, PushOutcome]:
    """Duplicates of the very message were stored by an earlier try of the call; refused ones have the ids under which they were seen."""
    ids, results = list(batch.ids), list(outcome.results)
    for place, (message, result) in enumerate(zip(batch.messages, outcome.results, strict=False)):
        if result.status is PushStatus.DUPLICATE and sights.payload_of.get(result.id) == message.payload:
            ids[place] = result.id
            status = PushStatus.SCHEDULED if result.seq is None else PushStatus.STORED
            results[place] = PushResult(status, result.id, result.seq)
        elif result.status is PushStatus.REFUSED and (sight := sights.first(message.payload)) is not None:
            ids[place] = sight.id
    return PushBatch(batch.messages, ids), PushOutcome(results, {})


def _with_replays(calls: list[Call], sights: Sights) -> list[Call]:
    """Replays without an answer, with the ids of those messages that they alone can have made."""
    lost = [call for call in calls if call.verb == "replay" and call.ended is None]
    if not lost:
        return calls
    known = {id_ for call in calls for id_ in _ids(call)}
    copies: dict[QueueKey, list[Id]] = defaultdict(list)
    for found in sights.under.values():
        for sight in found.values():
            if sight.id not in known and len(found) > 1:
                copies[sight.queue].append(sight.id)
    return [_with_ids(call, copies[call.request[2]]) if call in lost else call for call in calls]


def _with_ids(replay: Call, more: list[Id]) -> Call:
    """A replay whose answer was no promise has the ids of that answer, too."""
    ids, *others = replay.request
    return structs.replace(replay, request=([*ids, *more], *others))


def _ids(call: Call) -> list[Id]:
    if call.verb in ("push", "accept"):
        return list(call.request[0].ids)
    if call.verb == "transact":
        return list(call.request[0].push.ids)
    return list(call.request[0]) if call.verb == "replay" else []
