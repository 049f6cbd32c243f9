"""One group's way through one queue, as a history shows it: deliveries, settlements, leases, and when each message may be settled."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from itertools import accumulate

from msgspec import Struct, field

from skep.clock import Instant
from skep.model import Outcome, QueueKey, StartMode, Token
from torture.history import NEVER, Call, Entry, Given, GroupKey, History, Settled
from torture.moves import Move, Moves, moves_by_group


class Holding(Struct, eq=False):
    """What one token holds of one partition (or one message of an unordered queue)."""

    token: Token
    call: Call
    deadline: Instant
    partition: str
    seqs: list[int] = field(default_factory=list)
    auto_ack: bool = False


class Ticks(Struct):
    """Since a move: the tick from which each message may have been settled, and the greatest of all up to it."""

    each: list[int]
    up_to: list[int]


class Track:
    """Everything about one group. Seqs lead to lists that have one element nearly always."""

    def __init__(self, history: History, key: GroupKey, moves: Moves) -> None:
        self.history = history
        self.key = key
        self.queue, self.group = key
        self.settings = history.settings_of(self.queue)
        self.is_ordered = history.is_ordered(self.queue)
        self.moves = moves
        self.gives: dict[int, list[Given]] = {}
        self.settles: dict[int, list[Settled]] = {}
        across = QueueKey("", self.queue.tenant)
        self.unanswered_pops = [
            call for queue in (self.queue, across) for call in history.unanswered_pops.get((queue, self.group), ())
        ]

    @property
    def entries(self) -> list[Entry]:
        return self.history.entries.get(self.queue, [])

    @cached_property
    def by_partition(self) -> dict[str, list[int]]:
        """The places of each partition's messages among the entries."""
        index = defaultdict(list)
        for place, entry in enumerate(self.entries):
            index[entry.partition].append(place)
        return index

    @cached_property
    def first_seq(self) -> int:
        """The least seq the group is known to have started at."""
        given = [one for gives in self.gives.values() for one in gives]
        if all(one.request.start.mode is StartMode.ALL for one in given):
            return 1
        return min(self.gives)

    @cached_property
    def holdings(self) -> dict[str | int, list[Holding]]:
        """The leases of each partition, or each message of an unordered queue, in the order of their pops."""
        held: dict[str | int, dict[Token, Holding]] = defaultdict(dict)
        for seq, gives in self.gives.items():
            for given in gives:
                delivery = given.delivery
                tokens = held[delivery.partition if self.is_ordered else seq]
                holding = tokens.get(delivery.token)
                if holding is None:
                    holding = tokens[delivery.token] = Holding(
                        delivery.token, given.call, delivery.lease_deadline, delivery.partition
                    )
                holding.seqs.append(seq)
                holding.auto_ack = given.request.auto_ack
        by_start = {what: list(tokens.values()) for what, tokens in held.items()}
        for holdings in by_start.values():
            holdings.sort(key=lambda holding: holding.call.started)
        return by_start

    # when a message may be settled

    @property
    def may_expire(self) -> bool:
        settings = self.settings
        return bool(settings.max_age_seconds or settings.max_wait_seconds or settings.retention_ignores_groups)

    def exhausted_tick(self, seq: int) -> int:
        """From when it may be buried for its attempts by a claim or a chore, which no call of a client shows."""
        limit = self.settings.max_attempts
        letters = self.history.dead_letters.get(self.queue) if self.history.drained else None
        if letters is not None and (self.group, seq) not in letters and (self.queue, seq) not in self.history.forgotten:
            return NEVER  # whoever replays or purges dead letters looks at them first, so that all were seen
        gives = self.gives.get(seq, [])
        if limit == 0 or len(gives) + len(self.unanswered_pops) < limit:
            return NEVER
        if len(gives) >= limit:
            return gives[limit - 1].call.started
        return min(call.started for call in self.unanswered_pops)

    def settled_tick(self, entry: Entry, since: Move | None) -> int:
        """From when the message may be settled, when ``since`` was the last move."""
        if since is not None and since.may_pass(entry):
            return 0
        found = self.exhausted_tick(entry.seq)
        for settled in self.settles.get(entry.seq, ()):
            if settled.may_settle and (since is None or not settled.call.is_before(since.call)):
                found = min(found, settled.call.started)
        for given in self.gives.get(entry.seq, ()):
            if given.request.auto_ack and (since is None or not given.call.is_before(since.call)):
                found = min(found, given.call.started)
        if self.moves.all:
            found = min([found, *(move.call.started for move in self.moves.clears_of(entry))])
        if self.history.deletions:
            found = min([found, *(c.started for c in self.history.deletions.get((self.queue, entry.seq), ()))])
        return found

    def may_be_settled(self, entry: Entry, call: Call) -> bool:
        """Whether the message may have been settled for the group when the call took effect."""
        place = bisect_left(self.entries, entry.seq, key=lambda one: one.seq)
        ticks = (self.ticks(since).each[place] for since in self.moves.last_before(call))
        return self.may_expire or any(tick <= call.last_tick for tick in ticks)

    def may_be_deleted(self, seq: int, call: Call) -> bool:
        """Whether the message may have been deleted, by itself, before the call took effect."""
        return any(deletion.may_precede(call) for deletion in self.history.deletions.get((self.queue, seq), ()))

    def ticks(self, since: Move | None) -> Ticks:
        """The ticks of all entries that the group is to see, in their order."""
        if since not in self._ticks:
            first = self.first_seq
            each = [0 if entry.seq < first else self.settled_tick(entry, since) for entry in self.entries]
            self._excuse_lost_answers(each)
            self._ticks[since] = Ticks(each, list(accumulate(each, max)))
        return self._ticks[since]

    def _excuse_lost_answers(self, each: list[int]) -> None:
        """As many messages as pops that ack at once asked for, and whose answers were lost, may be settled unseen."""
        pops = sorted(self.unanswered_pops, key=lambda call: call.started)
        lost = [(call, one) for call in pops for one in call.request if one.auto_ack]
        if lost:
            # What they took may have been settled once more, in vain. A move may have brought it back, so that it cannot be counted.
            first = lost[0][0].started
            each[:] = [tick if tick == NEVER and not self.moves.all else min(tick, first) for tick in each]
        for place, (call, _) in zip(
            (place for place, tick in enumerate(each) if tick == NEVER),
            (found for found in lost for _ in range(found[1].batch)),
            strict=False,
        ):
            each[place] = call.started

    @cached_property
    def _ticks(self) -> dict[Move | None, Ticks]:
        return {}

    def deadline_before(self, holding: Holding, call: Call) -> Instant:
        """The deadline that stood when the call was made; the earliest that may have. A renewal may make a lease shorter, too."""
        renewals = self.history.renewals.get((self.key, holding.token, holding.partition))
        if renewals is None:
            return holding.deadline
        latest = max((renewal.started for renewal, _ in renewals if renewal.is_before(call)), default=None)
        last = [
            until
            for renewal, until in renewals
            if renewal.may_precede(call) and (latest is None or renewal.last_tick >= latest)
        ]
        return min(last if latest is not None else [holding.deadline, *last])

    def may_last_longer(self, holding: Holding) -> bool:
        """Whether a renewal without an answer may have kept the lease for longer than anybody knows."""
        renewals = self.history.renewals.get((self.key, holding.token, holding.partition), ())
        return any(renewal.ended is None for renewal, _ in renewals)

    def end_tick(self, holding: Holding) -> int:
        """From when the lease may have ended because of what its holder said."""
        last = 0
        for seq in holding.seqs:
            first = NEVER
            for settled in self.settles.get(seq, ()):
                if settled.settlement.token != holding.token or not settled.may_have_taken_effect:
                    continue
                if self.is_ordered and settled.settlement.outcome is Outcome.NACK:
                    return settled.call.started
                first = min(first, settled.call.started)
            last = max(last, first)
        for call in self.history.ended_leases.get(self.key, ()):
            partition, token = call.request[2:]
            if partition == holding.partition and token in (None, holding.token) and holding.call.may_precede(call):
                last = min(last, call.started)
        for call in self._deletions.get((holding.token, holding.partition if self.is_ordered else None), ()):
            if holding.call.may_precede(call):
                last = min(last, call.started)
        return last

    @cached_property
    def _deletions(self) -> dict[tuple[Token, str | None], list[Call]]:
        """Deletions of messages that a lease held: it ends with all that it holds, of that partition or of an unordered queue."""
        index: dict[tuple[Token, str | None], list[Call]] = defaultdict(list)
        for (queue, seq), calls in self.history.deletions.items():
            for given in self.gives.get(seq, ()) if queue == self.queue else ():
                index[given.delivery.token, given.delivery.partition if self.is_ordered else None] += calls
        return index


class Tracks:
    """The track of every group that was popped for, settled for, or counted."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.groups: dict[GroupKey, Track] = {}
        self._moves = moves_by_group(history)
        for given in history.gives:
            self._group(given.group).gives.setdefault(given.delivery.seq, []).append(given)
        for settled in history.settles:
            self._group(settled.group).settles.setdefault(settled.settlement.seq, []).append(settled)
        for _, stats in history.stats:
            for figures in stats.groups:
                self._group((stats.queue, figures.group))

    def may_have_left(self, queue: QueueKey, entry: Entry, call: Call) -> bool:
        """Whether the message may have been taken from the log before the call: by hand, or by retention."""
        clears = self._moves((queue, "")).clears_of(entry)
        deletions = self.history.deletions.get((queue, entry.seq), ())
        if any(one.may_precede(call) for one in (*(move.call for move in clears), *deletions)):
            return True
        settings = self.history.settings_of(queue)
        if not (settings.retention_seconds or settings.completed_retention_seconds):
            return settings.max_age_seconds > 0
        if settings.retention_ignores_groups:
            return True
        return all(track.may_be_settled(entry, call) for track in self.groups.values() if track.queue == queue)

    def may_shrink(self, queue: QueueKey) -> bool:
        """Whether messages may have been taken from the log at any time, other than one by one."""
        settings = self.history.settings_of(queue)
        limits = (settings.max_age_seconds, settings.retention_seconds, settings.completed_retention_seconds)
        return any(limits) or self.may_be_cleared(queue)

    def may_be_cleared(self, queue: QueueKey) -> bool:
        """Whether messages may have been taken from all groups, at any time."""
        return any(move.group is None for move in self._moves((queue, "")).all)

    def _group(self, key: GroupKey) -> Track:
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = Track(self.history, key, self._moves(key))
        return found
