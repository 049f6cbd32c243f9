"""The effects of one worker's call on the others: new ready messages, and changes of cached data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from skep.model import PushOutcome, QueueKey, Settlement, SettleResult
from skep.model.key import SERVER
from skep.model.scheduled import Change
from skep.model.system_event import SystemEventKind

Keys = Iterable[QueueKey]
Noted = tuple[SystemEventKind, QueueKey]


def _pushed(outcomes: Sequence[PushOutcome]) -> Keys:
    return chain.from_iterable(outcome.depths for outcome in outcomes)


def _settled(settlements: Sequence[Settlement], results: Sequence[SettleResult]) -> Iterator[QueueKey]:
    for settlement, result in zip(settlements, results, strict=True):
        if result.frees:
            yield settlement.queue
        if result.dead_letter_queue is not None:
            yield QueueKey(result.dead_letter_queue, settlement.queue.tenant)


def _transacted(transactions: Sequence[Any], outcomes: Sequence[Any]) -> Iterator[QueueKey]:
    for transaction, outcome in zip(transactions, outcomes, strict=True):
        if outcome.committed:
            yield from outcome.pushed.depths
            yield from _settled(transaction.settlements, outcome.settled)


READY: dict[str, Callable[[Any, Any], Keys]] = {
    "push": lambda _, outcomes: _pushed(outcomes),
    "push_and_pop": lambda _, done: _pushed(done[0]),
    "settle": lambda given, results: _settled(given[0], results),
    "settle_and_pop": lambda given, done: _settled(given[0], done[0]),
    "transact": lambda given, outcomes: _transacted(given[0], outcomes),
    "perform": lambda given, _: {one.queue for one in given[1]},
    "push_rows": lambda given, _: (given[0],),
    "publish": lambda _, published: published.queues,
    "replay": lambda _, step: {one.queue for one in step.replayed},
    "quarantine": lambda _, outcome: outcome.depths,
    "seek": lambda given, _: (given[0],),
    "end_leases": lambda given, ended: (given[0],) if ended else (),
    "release_lease": lambda given, released: (given[0],) if released else (),
    "delete_message": lambda given, _: (given[0],),
    "forget": lambda _, step: step.queues,
    "clear": lambda given, _: (given[0],),
    "promote": lambda given, chore: (given[0],) if chore.done else (),
    "expire": lambda given, chore: (given[0],) if chore.done else (),
    "scheduled.change": lambda given, done: (given[0].key,) if given[1] is Change.RUN and done.changed else (),
}
"""By verb: the queues where the call may have made messages ready, from its arguments and result."""

CHANGED: dict[str, Callable[[Any, Any], Noted | None]] = {
    "update_queue": lambda given, _: (SystemEventKind.QUEUE, given[0]),
    "keep_sqs_note": lambda given, kept: (SystemEventKind.QUEUE, given[0]) if kept else None,
    "delete_queue": lambda given, _: (SystemEventKind.QUEUE, given[0]),
    "shred_data_keys": lambda given, _: (SystemEventKind.DATA_KEY, QueueKey(given[1] or "", given[0])),
    "access.put_key": lambda given, kept: (SystemEventKind.KEY_MADE, QueueKey(given[0].id, SERVER)) if kept else None,
    "access.revoke_key": lambda given, _: (SystemEventKind.KEY_REVOKED, QueueKey(given[0], SERVER)),
    "access.end_session": lambda given, _: (SystemEventKind.KEY_REVOKED, QueueKey(given[0], SERVER)),
}
"""By verb: the change of data that other workers may have cached. A new queue is cached by nobody."""
