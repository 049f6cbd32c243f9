"""The promises as rules over histories. Each yields violations; none reports what some order of events could explain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from skep.clock import Instant, seconds
from skep.ids import Id
from skep.model import Outcome, PushStatus, QueueKey, QueueStats, StartMode, StoredMessage, Token
from tests.support.history import Call, Given, GroupKey, History, Pushed, Settled, Violation

# what may have become of a message


def is_exhausted(history: History, group: GroupKey, seq: int) -> bool:
    """Whether it may have been buried for its attempts by a claim or a chore, which no call of a client shows."""
    limit = history.settings_of(group[0]).max_attempts
    deliveries = len(history.gives_of.get((group, seq), ())) + history.unanswered_pops
    return 0 < limit <= deliveries


def may_expire(history: History, queue: QueueKey) -> bool:
    settings = history.settings_of(queue)
    return bool(settings.max_age_seconds or settings.max_wait_seconds or settings.retention_ignores_groups)


def may_be_settled_before(history: History, group: GroupKey, seq: int, call: Call) -> bool:
    """Whether the message may have been settled for the group when the call took effect."""
    if may_expire(history, group[0]) or is_exhausted(history, group, seq) or history.may_be_moved(group, call):
        return True
    settles = history.settles_of.get((group, seq), ())
    if any(s.may_have_taken_effect and s.call.may_precede(call) for s in settles):
        return True
    return any(g.request.auto_ack and g.call.may_precede(call) for g in history.gives_of.get((group, seq), ()))


def first_seq_of(history: History, group: GroupKey) -> int:
    """The least seq the group is known to have started at."""
    starts = {g.request.start.mode for g in history.gives if g.group == group}
    if starts <= {StartMode.ALL}:
        return 1
    return min((g.delivery.seq for g in history.gives if g.group == group), default=1)


# I1, I2, I15: what is in the log


def logs(history: History) -> list[tuple[Call, list[StoredMessage]]]:
    return [(call, call.answer) for call in history.verb("log") if call.ended is not None]


def durable_is_kept(history: History) -> Iterator[Violation]:
    """I1."""
    for call, messages in logs(history):
        found = {(m.seq, m.id) for m in messages}
        for pushed in history.pushes:
            if pushed.is_stored and pushed.message.queue == call.request and pushed.call.is_before(call):
                assert pushed.result is not None
                if (pushed.result.seq, pushed.id) not in found:
                    yield Violation("I1", f"seq {pushed.result.seq} was stored and is not in the log")


def replayed_ids(history: History) -> set[Id]:
    return {id_ for call in history.verb("replay") for id_ in call.request[0]}


def only_pushed_is_delivered(history: History) -> Iterator[Violation]:
    """I2."""
    known = {pushed.id: pushed for pushed in history.pushes}
    replayed = replayed_ids(history)
    for given in history.gives:
        delivery = given.delivery
        pushed = known.get(delivery.id)
        if pushed is None:
            if delivery.id not in replayed:
                yield Violation("I2", f"seq {delivery.seq} of {delivery.partition} was never pushed")
        elif pushed.is_refused:
            yield Violation("I2", f"seq {delivery.seq} was refused and is delivered")
        elif given.call.is_before(pushed.call) or delivery.payload != pushed.message.payload:
            yield Violation("I2", f"seq {delivery.seq} was delivered before it was pushed, or changed")
    for _, messages in logs(history):
        for message in messages:
            pushed = known.get(message.id)
            if pushed is not None and pushed.is_refused:
                yield Violation("I2", f"seq {message.seq} was refused and is in the log")


def batches_are_whole(history: History) -> Iterator[Violation]:
    """I15: of a push without an answer, all or nothing is in the log; transactions likewise."""
    for call, messages in logs(history):
        found = {m.id for m in messages}
        batches: dict[tuple[int, int], list[Pushed]] = defaultdict(list)
        for pushed in history.pushes:
            if pushed.message.queue == call.request and pushed.message.deliver_at is None:
                batches[id(pushed.call), pushed.batch].append(pushed)
        for batch in batches.values():
            # A duplicate is not stored again, and nobody knows of an unanswered one; so only plain messages tell.
            plain = [p for p in batch if p.message.transaction_id is None and p.call.ended is None]
            present = [p for p in plain if p.id in found]
            if present and len(present) < len(plain):
                yield Violation("I15", f"{len(present)} of {len(plain)} messages of a batch are in the log")
    for transact in history.verb("transact"):
        yield from transaction_is_whole(history, transact)


def transaction_is_whole(history: History, call: Call) -> Iterator[Violation]:
    """An unanswered transaction whose push is seen must have settled too: its messages may not come again."""
    if call.ended is not None:
        return
    seen = {g.delivery.id: g.call for g in history.gives} | {m.id: c for c, messages in logs(history) for m in messages}
    for transaction in call.request:
        witnesses = [seen[id_] for id_ in transaction.push.ids if id_ in seen]
        for one in transaction.settlements:
            again = history.gives_of.get(((one.queue, one.group), one.seq), ())
            if one.outcome is Outcome.ACK and any(w.is_before(g.call) for w in witnesses for g in again):
                yield Violation("I15", f"the push of a transaction happened, its ack of seq {one.seq} did not")


# I3: duplicates


def stored_once(history: History) -> Iterator[Violation]:
    """I3."""
    by_key: dict[tuple[QueueKey, str, str], list[Pushed]] = defaultdict(list)
    for pushed in history.pushes:
        if pushed.message.transaction_id is not None and pushed.result is not None:
            by_key[pushed.message.queue, pushed.message.partition, pushed.message.transaction_id].append(pushed)
    for (queue, partition, transaction_id), pushes in by_key.items():
        window = seconds(history.settings_of(queue).dedup_window_seconds)
        stored = [p for p in pushes if p.result and p.result.status in (PushStatus.STORED, PushStatus.SCHEDULED)]
        for one, other in combinations(stored, 2):
            if abs(one.call.now - other.call.now) < window:
                yield Violation("I3", f"transaction id {transaction_id} is stored twice in {partition}")
        firsts = {p.id for p in stored} | {p.id for p in history.pushes if p.result is None}
        for pushed in pushes:
            duplicate = pushed.result is not None and pushed.result.status is PushStatus.DUPLICATE
            if duplicate and pushed.result is not None and pushed.result.id not in firsts:
                yield Violation("I3", f"a duplicate of {transaction_id} got an id that is not the first one's")
    yield from in_the_log_once(history)


def in_the_log_once(history: History) -> Iterator[Violation]:
    for call, messages in logs(history):
        seen: dict[tuple[str, str], StoredMessage] = {}
        window = seconds(history.settings_of(call.request).dedup_window_seconds)
        for message in messages:
            if message.transaction_id is None or message.id in replayed_ids(history):
                continue
            key = (message.partition, message.transaction_id)
            if key in seen and message.created_at - seen[key].created_at < window:
                yield Violation("I3", f"transaction id {message.transaction_id} is in the log twice")
            seen[key] = message


# I4: order


def log_order_is_commit_order(history: History) -> Iterator[Violation]:
    """I4: who was answered first has the lower seqs; and a batch is in its own order."""
    by_queue: dict[QueueKey, list[Pushed]] = defaultdict(list)
    for pushed in history.pushes:
        if pushed.is_stored:
            by_queue[pushed.message.queue].append(pushed)
    for pushes in by_queue.values():
        # Walking in the order of starts, with the greatest seq of all that had ended by then.
        ends = sorted(pushes, key=lambda p: p.call.ended or 0)
        next_end, highest = 0, 0
        for pushed in sorted(pushes, key=lambda p: p.call.started):
            while (ends[next_end].call.ended or 0) < pushed.call.started:
                highest = max(highest, seq_of(ends[next_end]))
                next_end += 1
            if seq_of(pushed) <= highest:
                yield Violation("I4", f"seq {seq_of(pushed)} was given out after {highest}")
        if len({seq_of(p) for p in pushes}) < len(pushes):
            yield Violation("I4", "a seq was given out twice")


def seq_of(pushed: Pushed) -> int:
    assert pushed.result is not None
    assert pushed.result.seq is not None
    return pushed.result.seq


def first_deliveries_in_order(history: History) -> Iterator[Violation]:
    """I4: per partition and group, in ordered queues."""
    for (group, partition), gives in history.gives_in.items():
        if not history.is_ordered(group[0]):
            continue
        firsts = [g for g in gives if g.delivery.attempt == 1]
        for one, other in combinations(firsts, 2):
            same_epoch = history.epoch(group, one.call) == history.epoch(group, other.call) is not None
            if one.call is other.call:
                in_order = one.delivery.seq < other.delivery.seq
            else:
                in_order = not one.call.is_before(other.call) or one.delivery.seq < other.delivery.seq
            if same_epoch and not in_order:
                yield Violation("I4", f"{partition}: seq {other.delivery.seq} first came after {one.delivery.seq}")


def nothing_overtakes(history: History) -> Iterator[Violation]:
    """I4: a message comes only when the earlier ones of its partition are settled or in the same lease."""
    first_seqs = {group: first_seq_of(history, group) for group in {g.group for g in history.gives}}
    for (group, partition), gives in history.gives_in.items():
        if not history.is_ordered(group[0]):
            continue
        seqs = sorted(seq_of(p) for p in history.stored_in.get((group[0], partition), ()))
        for given in gives:
            together = {
                g.delivery.seq for g in gives if g.call is given.call and g.delivery.token == given.delivery.token
            }
            for seq in seqs:
                if seq >= given.delivery.seq:
                    break
                earlier = seq >= first_seqs[group] and seq not in together
                if earlier and not may_be_settled_before(history, group, seq, given.call):
                    yield Violation("I4", f"{partition}: seq {given.delivery.seq} overtook {seq}")


# I5: one live lease


@dataclass
class Holding:
    """What one token holds of one partition (or one message of an unordered queue)."""

    group: GroupKey
    token: Token
    call: Call
    deadline: Instant
    seqs: set[int] = field(default_factory=set)
    auto_ack: bool = False


Holdings = dict[tuple[GroupKey, str | int], list[Holding]]


def holdings(history: History) -> Holdings:
    held: dict[tuple[GroupKey, str | int], dict[Token, Holding]] = defaultdict(dict)
    for given in history.gives:
        delivery = given.delivery
        what = delivery.partition if history.is_ordered(delivery.queue) else int(delivery.seq)
        tokens = held[given.group, what]
        if delivery.token not in tokens:
            tokens[delivery.token] = Holding(given.group, delivery.token, given.call, delivery.lease_deadline)
        tokens[delivery.token].seqs.add(delivery.seq)
        tokens[delivery.token].auto_ack = given.request.auto_ack
    return {key: list(tokens.values()) for key, tokens in held.items()}


def one_live_lease(history: History) -> Iterator[Violation]:
    """I5."""
    for (_, what), found in holdings(history).items():
        for one, other in combinations(found, 2):
            if not may_follow(history, one, other, found) and not may_follow(history, other, one, found):
                yield Violation("I5", f"two live leases on {what}: {one.token.hex()} and {other.token.hex()}")


def may_follow(history: History, one: Holding, other: Holding, found: Sequence[Holding]) -> bool:
    """Whether the first lease may have ended when the second began, of itself or because a third had taken over in between."""
    return may_end_before(history, one, other) or any(
        may_end_before(history, one, third) and may_end_before(history, third, other)
        for third in found
        if third is not one and third is not other
    )


def may_end_before(history: History, one: Holding, other: Holding) -> bool:
    """Whether the first lease may have ended when the second began."""
    if not one.call.may_precede(other.call):
        return False
    if one.auto_ack or history.may_be_moved(one.group, other.call):
        return True
    if other.call.now >= deadline_before(history, one, other.call):
        return True
    left = set(one.seqs)
    for seq in one.seqs:
        for settled in history.settles_of.get((one.group, seq), ()):
            if settled.settlement.token != one.token or not settled.may_have_taken_effect:
                continue
            if settled.call.may_precede(other.call):
                if settled.settlement.outcome is Outcome.NACK and history.is_ordered(one.group[0]):
                    return True
                left.discard(seq)
    return not left


def deadline_before(history: History, holding: Holding, call: Call) -> Instant:
    """The deadline that certainly stood when the call was made."""
    deadline = holding.deadline
    for renew in history.verb("renew"):
        for renewal, result in zip(renew.request, renew.answer or (), strict=False):
            mine = renewal.token == holding.token and (renewal.queue, renewal.group) == holding.group
            if mine and result.deadline is not None and renew.is_before(call):
                deadline = max(deadline, result.deadline)
    return deadline


# I6: fencing


def stale_tokens_do_nothing(history: History) -> Iterator[Violation]:
    """I6: what took effect was in a lease, and nobody had claimed it since; nothing is settled twice."""
    unanswered = {r.token for call in history.verb("pop") if call.ended is None for r in call.request}
    for (group, seq), settles in history.settles_of.items():
        gives = history.gives_of.get((group, seq), [])
        tokens = {g.delivery.token: g for g in gives}
        for settled in settles:
            if not settled.took_effect:
                continue
            token = settled.settlement.token
            if token not in tokens:
                if token not in unanswered:
                    yield Violation("I6", f"seq {seq} was settled with a token that never held it")
            elif claimed_between(history, tokens[token], settled):
                yield Violation("I6", f"seq {seq} was settled with a stale token")
        yield from settled_once(history, group, seq, settles)


def claimed_between(history: History, given: Given, settled: Settled) -> bool:
    """Whether another claim of the same partition or message certainly came after the lease and before the settlement."""
    if history.is_ordered(given.group[0]):
        others: Iterable[Given] = history.gives_in[given.group, given.delivery.partition]
    else:
        others = history.gives_of[given.group, given.delivery.seq]
    return any(
        other.delivery.token != given.delivery.token
        and given.call.is_before(other.call)
        and other.call.is_before(settled.call)
        for other in others
    )


def settled_once(history: History, group: GroupKey, seq: int, settles: list[Settled]) -> Iterator[Violation]:
    by_epoch = Counter(history.epoch(group, s.call) for s in settles if s.is_final)
    if any(times > 1 and epoch is not None for epoch, times in by_epoch.items()):
        finals = [s for s in settles if s.is_final]
        yield Violation("I6", f"seq {seq} was settled {len(finals)} times for {group[1]}")


# I7, I8: progress


def stats_of(history: History) -> list[tuple[Call, QueueStats]]:
    return [(call, call.answer) for call in history.verb("stats") if call.ended is not None]


def progress_never_goes_back(history: History) -> Iterator[Violation]:
    """I7: neither in figures nor by delivering again what was settled."""
    seen: dict[GroupKey, list[tuple[Call, int]]] = defaultdict(list)
    for call, stats in stats_of(history):
        for figures in stats.groups:
            group = (stats.queue, figures.group)
            for before, progress in seen[group]:
                same = history.epoch(group, before) == history.epoch(group, call) is not None
                if same and before.is_before(call) and figures.progress_seq < progress:
                    yield Violation("I7", f"progress of {group[1]} fell from {progress} to {figures.progress_seq}")
            seen[group].append((call, figures.progress_seq))
    for (group, seq), gives in history.gives_of.items():
        settles = [s for s in history.settles_of.get((group, seq), ()) if s.is_final]
        for given in gives:
            for settled in settles:
                same = history.epoch(group, settled.call) == history.epoch(group, given.call) is not None
                if same and settled.call.is_before(given.call):
                    yield Violation("I7", f"seq {seq} was settled for {group[1]} and came again")


def no_skips(history: History) -> Iterator[Violation]:
    """I8: below the progress everything may have been settled."""
    for call, stats in stats_of(history):
        for figures in stats.groups:
            group = (stats.queue, figures.group)
            start = first_seq_of(history, group)
            for pushed in history.pushes:
                if not pushed.is_stored or pushed.message.queue != stats.queue:
                    continue
                below = start <= seq_of(pushed) <= figures.progress_seq
                if below and not may_be_settled_before(history, group, seq_of(pushed), call):
                    yield Violation("I8", f"progress of {group[1]} is past {seq_of(pushed)}, which is not settled")


# I9: redelivery


def expired_leases_come_again(history: History) -> Iterator[Violation]:
    """I9: a pop with nobody else about, that finds nothing, leaves no message behind whose lease has run out."""
    held = holdings(history)
    for call in history.verb("pop"):
        if call.ended is None or not is_alone(history, call):
            continue
        for request, result in zip(call.request, call.answer, strict=True):
            if result.deliveries or history.settings_of(request.queue).paused:
                continue
            yield from left_behind(history, held, call, (request.queue, request.group), request.partition)


def is_alone(history: History, call: Call) -> bool:
    return all(other is call or other.is_before(call) or call.is_before(other) for other in history.calls)


def left_behind(
    history: History, held: Holdings, call: Call, group: GroupKey, partition: str | None
) -> Iterator[Violation]:
    for (_, what), found in held.items():
        for holding in found:
            over = deadline_before(history, holding, call) <= call.now
            if holding.group != group or not holding.call.is_before(call) or not over:
                continue
            if partition is not None and what != partition:
                continue
            waiting = any(
                settled.settlement.token == holding.token and settled.may_have_taken_effect
                for seq in holding.seqs
                for settled in history.settles_of.get((group, seq), ())
            )
            later = any(o.token != holding.token and not o.call.is_before(holding.call) for o in found)
            exhausted = any(is_exhausted(history, group, seq) for seq in holding.seqs)
            if not (waiting or later or exhausted or holding.auto_ack or history.may_be_moved(group, call)):
                yield Violation("I9", f"the lease on {what} ran out and is not delivered again")


# I10: attempts


def attempts_are_exact(history: History) -> Iterator[Violation]:
    """I10."""
    for (group, seq), gives in history.gives_of.items():
        limit = history.settings_of(group[0]).max_attempts
        by_epoch: dict[int | None, list[int]] = defaultdict(list)
        for given in gives:
            by_epoch[history.epoch(group, given.call)].append(given.delivery.attempt)
            if 0 < limit < given.delivery.attempt:
                yield Violation("I10", f"seq {seq} came {given.delivery.attempt} times, the limit is {limit}")
        for epoch, attempts in by_epoch.items():
            missing = max(attempts) - len(attempts)
            if epoch is not None and (len(set(attempts)) < len(attempts) or missing > history.unanswered_pops):
                yield Violation("I10", f"attempts of seq {seq} for {group[1]} are {attempts}")


# I12, I13, I14


def accounts_add_up(history: History) -> Iterator[Violation]:
    """I12."""
    for _, stats in stats_of(history):
        for g in stats.groups:
            parts = (g.completed, g.pending, g.in_flight, g.dead, g.expired)
            if g.pushed != sum(parts) or min(parts) < 0:
                yield Violation("I12", f"the account of {g.group} does not add up: {g}")


def accepted_takes_effect_once_in_order(history: History) -> Iterator[Violation]:
    """I13: what was accepted for later is in the log once, in order, before later pushes to its partition."""
    for call, messages in logs(history):
        places: dict[Id, list[int]] = defaultdict(list)
        for message in messages:
            places[message.id].append(message.seq)
        for pushed in history.pushes:
            if pushed.call.verb != "accept" or pushed.message.queue != call.request or not pushed.call.is_before(call):
                continue
            found = places.get(pushed.id, [])
            if len(found) != 1:
                yield Violation("I13", f"an accepted message is in the log {len(found)} times")
                continue
            for other in history.pushes:
                same = (other.message.queue, other.message.partition) == (call.request, pushed.message.partition)
                if same and pushed.call.is_before(other.call) and min(places.get(other.id, [2**62])) < found[0]:
                    yield Violation("I13", f"seq {min(places[other.id])} overtook an accepted message")


def groups_are_apart(history: History) -> Iterator[Violation]:
    """I14: a replay reaches the group that gave the message up, and no other."""
    wanted: dict[Id, str] = {}
    for call in history.verb("replay"):
        groups = call.request[1]
        for replayed in call.answer or ():
            wanted[replayed.id] = groups[replayed.dead_seq]
    for given in history.gives:
        if wanted.get(given.delivery.id, given.delivery.group) != given.delivery.group:
            yield Violation("I14", f"seq {given.delivery.seq} was replayed for another group")


RULES: list[Callable[[History], Iterator[Violation]]] = [
    durable_is_kept,
    only_pushed_is_delivered,
    batches_are_whole,
    stored_once,
    log_order_is_commit_order,
    first_deliveries_in_order,
    nothing_overtakes,
    one_live_lease,
    stale_tokens_do_nothing,
    progress_never_goes_back,
    no_skips,
    expired_leases_come_again,
    attempts_are_exact,
    accounts_add_up,
    accepted_takes_effect_once_in_order,
    groups_are_apart,
]
