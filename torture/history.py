"""Recorded histories: calls and answers with their times, from any number of clients.

A call took effect at some moment between ``started`` and ``ended`` (never known exactly), or, when it has no answer,
perhaps not at all. Times are of one monotonic clock; ``now`` is what the store was given. `torture.check` reports what no
order of those moments could explain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from typing import Any, TypeVar

from msgspec import Struct, structs

from skep.clock import Instant, seconds
from skep.ids import Id
from skep.model import (
    DEFAULT_PARTITION,
    Delivery,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    QueueStats,
    RenewResult,
    Settlement,
    SettleResult,
    SettleStatus,
    StoredMessage,
    Token,
)
from skep.model.transaction import Transaction, TransactionOutcome

A = TypeVar("A")
T = TypeVar("T")
GroupKey = tuple[QueueKey, str]
NEVER = 2**63
"""A tick after all others."""


class Call(Struct, frozen=True, eq=False):
    """One call: who asked what and when, and the answer. ``ended`` None means that no answer came.

    Where the store's own time is not known, it was between ``now`` and ``until``. ``server``: which one of several was asked, None if that is
    not known.
    """

    client: str
    verb: str
    started: int
    ended: int | None
    now: Instant
    request: Any
    answer: Any = None
    until: Instant | None = None
    server: str | None = ""

    def is_before(self, other: Call) -> bool:
        """Whether it certainly took effect before the other."""
        return self.ended is not None and self.ended < other.started

    def may_precede(self, other: Call) -> bool:
        """Whether it may have taken effect before the other."""
        return not other.is_before(self)

    @property
    def last_tick(self) -> int:
        """The tick until which it may have taken effect."""
        return NEVER if self.ended is None else self.ended

    @property
    def latest_now(self) -> Instant:
        """The latest time that the store may have had."""
        return self.now if self.until is None else self.until


class Violation(Struct, frozen=True):
    """A broken promise, told so that a person can find it in the history; ``witness`` has the calls that show it."""

    promise: str
    text: str
    witness: tuple[Call, ...] = ()


class Pushed(Struct, frozen=True, eq=False, gc=False):
    """One message of a push, with its result when there was an answer."""

    call: Call
    batch: int
    message: NewMessage
    id: Id
    result: PushResult | None

    @property
    def is_stored(self) -> bool:
        return self.result is not None and self.result.status is PushStatus.STORED

    @property
    def is_refused(self) -> bool:
        return self.result is not None and self.result.status is PushStatus.REFUSED

    @property
    def seq(self) -> int:
        """The seq of a message that was stored."""
        assert self.result is not None
        assert self.result.seq is not None
        return self.result.seq


class Entry(Struct, frozen=True, eq=False, gc=False):
    """A message that certainly came into the log: ``is_answered`` by the answer to its push, else by an operation or a look at the log."""

    call: Call
    seq: int
    partition: str
    id: Id
    is_answered: bool


class Given(Struct, frozen=True, eq=False, gc=False):
    """One delivery of a pop."""

    call: Call
    request: PopRequest
    delivery: Delivery

    @property
    def group(self) -> GroupKey:
        return (self.delivery.queue, self.delivery.group)


class Copy(Struct, frozen=True, eq=False, gc=False):
    """A message that a Spark job copied: what it was, and the seq and the partition of the copy."""

    copied_as: int
    partition: str
    id: Id
    seq: int
    transaction_id: str | None
    payload: str


_DONE = frozenset((SettleStatus.COMPLETED, SettleStatus.DEAD, SettleStatus.DISCARDED))
_EFFECTIVE = _DONE | {SettleStatus.RETRYING}


class Settled(Struct, frozen=True, eq=False, gc=False):
    """One settlement, with its result when there was an answer."""

    call: Call
    settlement: Settlement
    result: SettleResult | None

    @property
    def group(self) -> GroupKey:
        return (self.settlement.queue, self.settlement.group)

    @property
    def is_final(self) -> bool:
        """Whether the message was certainly settled by it."""
        return self.result is not None and self.result.status in _DONE

    @property
    def took_effect(self) -> bool:
        return self.result is not None and self.result.status in _EFFECTIVE and not self.result.repeated

    @property
    def may_have_taken_effect(self) -> bool:
        return self.result is None or (self.result.status is not SettleStatus.REFUSED and not self.result.repeated)

    @property
    def may_settle(self) -> bool:
        """Whether the message may have been settled by it, and not only given back."""
        result = self.result
        if result is None:
            return self.settlement.outcome is not Outcome.RELEASE
        return result.status is not SettleStatus.REFUSED and result.status is not SettleStatus.RETRYING


@dataclass
class History:
    """Calls of all clients, and the settings of the queues they used (those not named have the defaults).

    ``drained``: at the end everything was popped and settled until nothing was left. ``leases_may_last``: clocks were moved, and leases may
    have lasted longer than they were to. ``worked``: queues that workers consume, whose pops and settlements are no calls of the history.
    ``spools_apart``: servers have several processes, each with a spool of its own, and nobody knows which of them took a push.
    Each index is made once, when first asked for.
    """

    calls: list[Call]
    settings: dict[QueueKey, QueueSettings] = field(default_factory=dict)
    drained: bool = False
    leases_may_last: bool = False
    worked: frozenset[QueueKey] = frozenset()
    spools_apart: bool = False

    def settings_of(self, queue: QueueKey) -> QueueSettings:
        found = self.settings.get(queue)
        return QueueSettings() if found is None else found

    def is_ordered(self, queue: QueueKey) -> bool:
        return self.settings_of(queue).ordering is not Ordering.UNORDERED

    def partition_of(self, message: NewMessage) -> str:
        """The partition in which a message is stored: a fifo queue has only one."""
        is_fifo = self.settings_of(message.queue).ordering is Ordering.FIFO
        return DEFAULT_PARTITION if is_fifo else message.partition

    def verb(self, name: str) -> list[Call]:
        return self._by_verb.get(name, [])

    @cached_property
    def _by_verb(self) -> dict[str, list[Call]]:
        index = defaultdict(list)
        for call in self.calls:
            index[call.verb].append(call)
        return index

    @cached_property
    def logs(self) -> list[tuple[Call, list[StoredMessage]]]:
        """Every look at a whole log."""
        return [(call, call.answer) for call in self.verb("log") if call.ended is not None]

    @cached_property
    def stats(self) -> list[tuple[Call, QueueStats]]:
        return [(call, call.answer) for call in self.verb("stats") if call.ended is not None]

    # pushes

    @cached_property
    def pushes(self) -> list[Pushed]:
        found: list[Pushed] = []
        for call in self.calls:
            if call.verb in ("push", "accept"):
                batches: Sequence[PushBatch] = call.request
                found += _pushed(call, batches, call.answer if call.verb == "push" else None)
            elif call.verb == "transact":
                batches = [transaction.push for transaction in call.request]
                found += _pushed(call, batches, [_as_push(a, b) for b, a in each_told(batches, call.answer)])
        return found

    @cached_property
    def pushes_to(self) -> dict[QueueKey, list[Pushed]]:
        index = defaultdict(list)
        for pushed in self.pushes:
            index[pushed.message.queue].append(pushed)
        return index

    @cached_property
    def entries(self) -> dict[QueueKey, list[Entry]]:
        """What certainly came into the log of a queue, by seq; without replays, which are for one group only."""
        seen: dict[Id, int] = self.done | {m.id: m.seq for _, messages in self.logs for m in messages}
        found = {}
        for queue, pushes in self.pushes_to.items():
            entries = []
            for pushed in pushes:
                seq = pushed.seq if pushed.is_stored else None if pushed.is_refused else seen.get(pushed.id)
                if seq is not None:
                    entries.append(
                        Entry(pushed.call, seq, self.partition_of(pushed.message), pushed.id, pushed.is_stored)
                    )
            found[queue] = sorted(entries, key=lambda entry: entry.seq)
        return found

    @cached_property
    def operated(self) -> set[Id]:
        """The messages that were accepted as operations; other accepted ones were spooled."""
        return {id_ for call in self.verb("operation") for id_ in call.request.ids}

    @cached_property
    def done(self) -> dict[Id, int]:
        """The seqs of messages that operations say to have stored."""
        answers: list[dict[Id, PushResult]] = [call.answer for call in self.verb("operation") if call.ended is not None]
        return {
            id_: result.seq
            for results in answers
            for id_, result in results.items()
            if result.status is PushStatus.STORED and result.seq is not None
        }

    @cached_property
    def replayed_ids(self) -> set[Id]:
        """The ids that replays were given for their new messages."""
        return {id_ for call in self.verb("replay") for id_ in call.request[0]}

    # deliveries

    @cached_property
    def gives(self) -> list[Given]:
        pops: list[Call] = sorted(self.verb("pop"), key=lambda call: call.started)
        return [
            Given(call, request, delivery)
            for call in pops
            for request, result in zip(call.request, call.answer or (), strict=False)
            if result is not None
            for delivery in result.deliveries
        ]

    @cached_property
    def gives_under(self) -> dict[Token, list[Given]]:
        """All deliveries under a token."""
        index = defaultdict(list)
        for given in self.gives:
            index[given.delivery.token].append(given)
        return index

    @cached_property
    def unanswered_pops(self) -> dict[GroupKey, list[Call]]:
        """Pops without an answer, which may have leased messages all the same. A pop over several queues is for each of them."""
        index = defaultdict(list)
        for call in self.verb("pop"):
            if call.ended is None:
                for request in call.request:
                    index[request.queue, request.group].append(call)
        return index

    @cached_property
    def renewals(self) -> dict[tuple[GroupKey, Token, str], list[tuple[Call, Instant]]]:
        """The renewals that were granted, by token and partition, with the new deadline: the earliest one, when no answer came."""
        index = defaultdict(list)
        for call in self.verb("renew"):
            results: Sequence[RenewResult] | None = call.answer
            for renewal, result in each_told(call.request, results):
                if result is None or result.deadline is not None:
                    key = ((renewal.queue, renewal.group), renewal.token, renewal.partition)
                    known = None if result is None else result.deadline
                    index[key].append((call, known or Instant(call.now + seconds(renewal.lease_seconds))))
        return index

    @cached_property
    def ended_leases(self) -> dict[GroupKey, list[Call]]:
        """Calls that end leases by hand, of a group: of one token, or (token None) all of a partition."""
        index = defaultdict(list)
        for call in self.verb("release"):
            queue, group, *_ = call.request
            index[queue, group].append(call)
        return index

    @cached_property
    def deletions(self) -> dict[tuple[QueueKey, int], list[Call]]:
        """Deletions of single messages, also of those that were forgotten."""
        index = defaultdict(list, {place: list(calls) for place, calls in self.forgotten.items()})
        for call in self.verb("delete_message"):
            index[call.request].append(call)
        return index

    @cached_property
    def forgotten(self) -> dict[tuple[QueueKey, int], list[Call]]:
        """Messages that were erased with their dead letters and transaction ids, each by the calls that did it."""
        index = defaultdict(list)
        for call in self.verb("forget_message"):
            index[call.request].append(call)
        return index

    @cached_property
    def thinned(self) -> set[QueueKey]:
        """The queues that single messages were deleted from."""
        return {queue for queue, _ in self.deletions}

    @cached_property
    def dead_letters(self) -> dict[QueueKey, set[tuple[str, int]]]:
        """By queue that was looked at for them: group and seq of all dead letters that were ever seen."""
        index: dict[QueueKey, set[tuple[str, int]]] = defaultdict(set)
        for call in self.verb("dead"):
            if call.ended is not None:
                index[call.request].update((letter.group, int(letter.source_seq)) for letter in call.answer)
        return dict(index)

    # settlements

    @cached_property
    def settles(self) -> list[Settled]:
        found: list[Settled] = []
        known: set[tuple[GroupKey, Token, int]] = set()
        for call in self.calls:
            if call.verb == "settle":
                said = [Settled(call, one, result) for one, result in each_told(call.request, call.answer)]
                found += self._by_message(said, known)
            elif call.verb == "transact":
                for transaction, answer in each_told(call.request, call.answer):
                    found += _settled(call, transaction, answer)
        return found

    def _by_message(self, settles: list[Settled], known: set[tuple[GroupKey, Token, int]]) -> list[Settled]:
        """What one call settled, an ack of a lease as acks of those of its messages that neither the call nor one before it named."""
        named = [s for s in settles if s.settlement.outcome is not Outcome.ACK_THROUGH]
        known.update((s.group, s.settlement.token, s.settlement.seq) for s in named if s.took_effect)
        for settled in settles:
            said = settled.settlement
            if said.outcome is not Outcome.ACK_THROUGH:
                continue
            held = [
                given.delivery.seq
                for given in self.gives_under.get(said.token, ())
                if given.delivery.seq <= said.seq
                and (given.group, said.token, given.delivery.seq) not in known
                and (given.delivery.partition, given.group) == (said.partition, settled.group)
            ]
            result = settled.result
            if settled.took_effect and result is not None and result.messages < len(held):
                # The lease had run out: others have some of its messages, and the answer says how many were left.
                left = [seq for seq in held if not self._may_be_with_others(settled, seq)]
                if len(left) == result.messages:
                    held = left
                else:
                    result = None  # some of them were settled, and nobody knows which
            if settled.took_effect and result is not None:
                known.update((settled.group, said.token, seq) for seq in held)
            named += [
                Settled(settled.call, structs.replace(said, seq=seq, outcome=Outcome.ACK), result) for seq in held
            ]
        return named

    def _may_be_with_others(self, settled: Settled, seq: int) -> bool:
        """Whether a message of a lease may have been delivered to somebody else before the settlement."""
        token, gives = settled.settlement.token, self._gives_of[*settled.group, seq]
        mine = next(given for given in gives if given.delivery.token == token)
        return any(
            given.delivery.token != token and mine.call.may_precede(given.call) and given.call.may_precede(settled.call)
            for given in gives
        )

    @cached_property
    def _gives_of(self) -> dict[tuple[QueueKey, str, int], list[Given]]:
        """The deliveries of each message to each group."""
        index: dict[tuple[QueueKey, str, int], list[Given]] = defaultdict(list)
        for given in self.gives:
            index[*given.group, given.delivery.seq].append(given)
        return index


def each_told(asked: Iterable[A], answers: Iterable[T] | None) -> Iterator[tuple[A, T | None]]:
    """Everything that a call asked for, with the answer to it; None without an answer, or when that does not say it."""
    return zip(asked, chain(answers or (), repeat(None)), strict=False)


def _pushed(call: Call, batches: Sequence[PushBatch], outcomes: Sequence[PushOutcome | None] | None) -> list[Pushed]:
    found = []
    for number, (batch, outcome) in enumerate(each_told(batches, outcomes)):
        results = None if outcome is None else outcome.results
        if outcome is not None and (outcome.recorded is not None or outcome.held):
            # A receipt says that it was pushed before, or operations are ahead; these messages were not stored.
            results = [PushResult(PushStatus.REFUSED, id_) for id_ in batch.ids]
        pairs = zip(batch.messages, batch.ids, strict=True)
        found += [Pushed(call, number, message, id_, result) for (message, id_), result in each_told(pairs, results)]
    return found


def _as_push(outcome: TransactionOutcome | None, batch: PushBatch) -> PushOutcome | None:
    """The pushes of a transaction that did not happen did not happen either."""
    if outcome is None or outcome.committed:
        return None if outcome is None else outcome.pushed
    return PushOutcome([PushResult(PushStatus.REFUSED, id_) for id_ in batch.ids], {})


def _settled(call: Call, transaction: Transaction, answer: TransactionOutcome | None) -> list[Settled]:
    if answer is not None and not answer.committed:
        return [Settled(call, one, SettleResult(SettleStatus.REFUSED)) for one in transaction.settlements]
    results = None if answer is None else answer.settled
    return [Settled(call, one, result) for one, result in each_told(transaction.settlements, results)]
