"""What is in the log: I1, I2, I3, I13, I15, and that log order is commit order (I4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations

from skep.clock import seconds
from skep.ids import Id
from skep.model import Outcome, PushStatus, QueueKey, StoredMessage
from torture.history import NEVER, Call, Pushed, Violation
from torture.track import Tracks

ALL_SERVERS = "all"
NO_SERVER = "none"
"""Beside the names of servers, for whose later pushes an order is promised."""


def durable_is_kept(tracks: Tracks) -> Iterator[Violation]:
    """I1: what was stored is in the log, unless it may have been taken from there since."""
    for call, messages in tracks.history.logs:
        found = {(m.seq, m.id) for m in messages}
        for entry in tracks.history.entries.get(call.request, ()):
            if not entry.is_answered or (entry.seq, entry.id) in found or not entry.call.is_before(call):
                continue
            if not tracks.may_have_left(call.request, entry, call):
                text = f"seq {entry.seq} of {call.request.name} was stored and is not in the log"
                yield Violation("I1", text, (entry.call, call))


def only_pushed_is_delivered(tracks: Tracks) -> Iterator[Violation]:
    """I2."""
    known = {pushed.id: pushed for pushed in tracks.history.pushes}
    for given in tracks.history.gives:
        delivery = given.delivery
        pushed = known.get(delivery.id)
        if pushed is None:
            # If a message is forgotten between two tries of its push, the push has made two, and knows the second.
            is_known = (
                delivery.id in tracks.history.replayed_ids or (delivery.queue, delivery.seq) in tracks.history.forgotten
            )
            if delivery.dead_letter is None and not is_known:
                text = f"seq {delivery.seq} of {delivery.partition} was never pushed"
                yield Violation("I2", text, (given.call,))
        elif pushed.is_refused:
            yield Violation("I2", f"seq {delivery.seq} was refused and is delivered", (pushed.call, given.call))
        elif given.call.is_before(pushed.call) or delivery.payload != pushed.message.payload:
            text = f"seq {delivery.seq} was delivered before it was pushed, or changed"
            yield Violation("I2", text, (pushed.call, given.call))
    for call, messages in tracks.history.logs:
        for message in messages:
            pushed = known.get(message.id)
            if pushed is not None and pushed.is_refused:
                yield Violation("I2", f"seq {message.seq} was refused and is in the log", (pushed.call, call))


def batches_are_whole(tracks: Tracks) -> Iterator[Violation]:
    """I15: of a push without an answer, all or nothing is in the log; transactions likewise."""
    for call, messages in tracks.history.logs:
        found: set[Id] | None = None
        batches: dict[tuple[Call, int], list[Pushed]] = defaultdict(list)
        for pushed in tracks.history.pushes_to.get(call.request, ()):
            # A duplicate is not stored again, and nobody knows of an unanswered one; so only plain messages tell.
            if (
                pushed.call.ended is None
                and pushed.message.transaction_id is None
                and pushed.message.deliver_at is None
            ):
                batches[pushed.call, pushed.batch].append(pushed)
        for (push, _), batch in batches.items():
            found = found or {m.id for m in messages}
            present = [pushed.id in found for pushed in batch]
            if any(present) and not all(present) and not may_be_a_rest(tracks, call.request, present):
                text = f"{sum(present)} of {len(batch)} messages of a batch are in the log"
                yield Violation("I15", text, (push, call))
    yield from transactions_are_whole(tracks)


def may_be_a_rest(tracks: Tracks, queue: QueueKey, present: list[bool]) -> bool:
    """Whether a part of a batch may be what is left of all of it: retention takes the first messages of a log, others any."""
    if tracks.may_be_cleared(queue) or queue in tracks.history.thinned:
        return True
    settings = tracks.history.settings_of(queue)
    return bool(settings.retention_seconds or settings.completed_retention_seconds) and present == sorted(present)


def transactions_are_whole(tracks: Tracks) -> Iterator[Violation]:
    """An unanswered transaction whose push is seen must have settled too: its messages may not come again."""
    unanswered = [call for call in tracks.history.verb("transact") if call.ended is None]
    if not unanswered:
        return
    seen = {g.delivery.id: g.call for g in tracks.history.gives} | {
        m.id: c for c, messages in tracks.history.logs for m in messages
    }
    for call in unanswered:
        for transaction in call.request:
            witnesses = [seen[id_] for id_ in transaction.push.ids if id_ in seen]
            for one in transaction.settlements:
                track = tracks.groups.get((one.queue, one.group))
                again = track.gives.get(one.seq, ()) if track is not None else ()
                for witness in witnesses if one.outcome is Outcome.ACK else ():
                    if late := [given.call for given in again if witness.is_before(given.call)]:
                        text = f"the push of a transaction happened, its ack of seq {one.seq} did not"
                        yield Violation("I15", text, (call, witness, late[0]))


def stored_once(tracks: Tracks) -> Iterator[Violation]:
    """I3. A push that nobody saw may be the first: then its id is known by its duplicates only.

    It had no answer; or it is an earlier try of the very call that is answered as a duplicate, in a log that messages may leave.
    """
    gone = {call.request[0] for call in tracks.history.verb("delete_queue")}
    unseen: Counter[tuple[str, str, str]] | None = None
    by_key: dict[tuple[QueueKey, str, str], list[Pushed]] = defaultdict(list)
    for pushed in tracks.history.pushes:
        if pushed.message.transaction_id is not None and not pushed.is_refused:
            partition = tracks.history.partition_of(pushed.message)
            by_key[pushed.message.queue, partition, pushed.message.transaction_id].append(pushed)
    for (queue, partition, transaction_id), pushes in by_key.items():
        if len(pushes) == 1 and pushes[0].is_stored:
            continue
        window = seconds(tracks.history.settings_of(queue).dedup_window_seconds)
        duplicates = [p for p in pushes if p.result is not None and p.result.status is PushStatus.DUPLICATE]
        stored = [p for p in pushes if p.result and p.result.status in (PushStatus.STORED, PushStatus.SCHEDULED)]
        for one, other in combinations(stored, 2):
            if abs(one.call.now - other.call.now) < window and not may_be_forgotten(tracks, one, other):
                text = f"transaction id {transaction_id} is stored twice in {partition}"
                yield Violation("I3", text, (one.call, other.call))
        firsts = {p.id for p in pushes if p.result is None or p.result.status is not PushStatus.DUPLICATE}
        unknown = {p.result.id: p.call for p in duplicates if p.result is not None and p.result.id not in firsts}
        if unknown:
            unseen = _unseen_pushes(tracks) if unseen is None else unseen
            earlier_tries = int(queue in gone or queue in tracks.history.thinned or tracks.may_shrink(queue))
            if len(unknown) > unseen[_log_name(queue), partition, transaction_id] + earlier_tries:
                text = f"a duplicate of {transaction_id} got an id that is not the first one's"
                yield from (Violation("I3", text, (call,)) for call in unknown.values())
    yield from in_the_log_once(tracks)


def may_be_forgotten(tracks: Tracks, one: Pushed, other: Pushed) -> bool:
    """Whether either message may have been forgotten, with its transaction id, before the other one was stored."""
    return any(
        first.is_stored and forgotten.may_precede(second.call)
        for first, second in ((one, other), (other, one))
        for forgotten in tracks.history.forgotten.get((first.message.queue, first.seq if first.is_stored else 0), ())
    )


def _unseen_pushes(tracks: Tracks) -> Counter[tuple[str, str, str]]:
    """How many messages of pushes without an answer nobody saw, by queue, partition and transaction id.

    Such a push may take effect late, and then be of the next life of its queue.
    """
    seen = {given.delivery.id for given in tracks.history.gives}
    seen.update(message.id for _, messages in tracks.history.logs for message in messages)
    return Counter(
        (_log_name(pushed.message.queue), tracks.history.partition_of(pushed.message), pushed.message.transaction_id)
        for pushed in tracks.history.pushes
        if pushed.result is None and pushed.message.transaction_id is not None and pushed.id not in seen
    )


def _log_name(queue: QueueKey) -> str:
    """The name that all lives of a queue have (`torture.queues`)."""
    return queue.name.partition("#")[0]


def in_the_log_once(tracks: Tracks) -> Iterator[Violation]:
    for call, messages in tracks.history.logs:
        seen: dict[tuple[str, str], StoredMessage] = {}
        window = seconds(tracks.history.settings_of(call.request).dedup_window_seconds)
        for message in messages:
            if message.transaction_id is None or message.id in tracks.history.replayed_ids:
                continue
            key = (message.partition, message.transaction_id)
            if key in seen and message.created_at - seen[key].created_at < window:
                yield Violation("I3", f"transaction id {message.transaction_id} is in the log twice", (call,))
            seen[key] = message


def log_order_is_commit_order(tracks: Tracks) -> Iterator[Violation]:
    """I4: who was answered first has the lower seqs; and no seq is given out twice."""
    for queue, all_pushes in tracks.history.pushes_to.items():
        pushes = [pushed for pushed in all_pushes if pushed.is_stored]
        # Walking in the order of starts, with the greatest seq of all that had ended by then.
        ends = sorted(pushes, key=lambda p: p.call.last_tick)
        next_end, highest = 0, 0
        by_seq: dict[int, Pushed] = {}
        for pushed in sorted(pushes, key=lambda p: p.call.started):
            while ends[next_end].call.last_tick < pushed.call.started:
                highest = max(highest, ends[next_end].seq)
                next_end += 1
            if pushed.seq <= highest:
                earlier = next(one for one in ends if one.seq == highest)
                text = f"seq {pushed.seq} of {queue.name} was given out after {highest}"
                yield Violation("I4", text, (earlier.call, pushed.call))
            if pushed.seq in by_seq:
                text = f"seq {pushed.seq} of {queue.name} was given out twice"
                yield Violation("I4", text, (by_seq[pushed.seq].call, pushed.call))
            by_seq[pushed.seq] = pushed


def accepted_takes_effect_once_in_order(tracks: Tracks) -> Iterator[Violation]:
    """I13: what was accepted for later is in the log once, in order, before later pushes to its partition."""
    last = {call.request: call for call, _ in sorted(tracks.history.logs, key=lambda look: look[0].started)}
    for call, messages in tracks.history.logs:
        pushes = tracks.history.pushes_to.get(call.request, [])
        accepted = [p for p in pushes if p.call.verb == "accept" and p.call.is_before(call)]
        accepted = [p for p in accepted if p.message.deliver_at is None]
        if not accepted:
            continue
        places: dict[Id, list[int]] = defaultdict(list)
        for message in messages:
            places[message.id].append(message.seq)
        for pushed in accepted:
            if (times := len(places.get(pushed.id, ()))) > 1:
                yield Violation("I13", f"an accepted message is in the log {times} times", (pushed.call, call))
        missing = [p for p in accepted if p.id not in places and not may_stay_away(tracks, p)]
        deleted = sum(len(calls) for key, calls in tracks.history.deletions.items() if key[0] == call.request)
        for pushed in missing if last[call.request] is call and len(missing) > deleted else ():
            yield Violation("I13", "an accepted message is not in the log", (pushed.call, call))
        yield from overtaken(tracks, call, accepted, pushes, places)


def operations_are_done(tracks: Tracks) -> Iterator[Violation]:
    """I13: an operation that is completed has stored its messages, where it says, and says it of each."""
    looks = sorted(tracks.history.logs, key=lambda look: look[0].started)
    last = {call.request: (call, {(m.seq, m.id) for m in messages}) for call, messages in looks}
    entries = {entry.id: entry for found in tracks.history.entries.values() for entry in found}
    for call in tracks.history.verb("operation"):
        queue = call.request.messages[0].queue
        if call.ended is None or queue not in last:
            continue
        look, found = last[queue]
        if len(call.answer) < len(call.request.messages):
            yield Violation("I13", "an operation is completed and does not say where its messages are", (call,))
        for id_, result in call.answer.items() if call.is_before(look) else ():
            if result.status is not PushStatus.STORED or (result.seq, result.id) in found:
                continue
            entry = entries.get(id_)
            if entry is None or entry.seq != result.seq or not tracks.may_have_left(queue, entry, look):
                text = f"an operation stored seq {result.seq}, which is not in the log"
                yield Violation("I13", text, (call, look))


def may_stay_away(tracks: Tracks, pushed: Pushed) -> bool:
    """Whether an accepted message may not be in the log at the end: given up, a duplicate, or gone from there again."""
    queue, transaction_id = pushed.message.queue, pushed.message.transaction_id
    if tracks.history.settings_of(queue).max_depth or tracks.may_shrink(queue):
        return True
    pushes = tracks.history.pushes_to.get(queue, ())
    return transaction_id is not None and any(
        other is not pushed and other.message.transaction_id == transaction_id for other in pushes
    )


def overtaken(
    tracks: Tracks, call: Call, accepted: list[Pushed], pushes: list[Pushed], places: dict[Id, list[int]]
) -> Iterator[Violation]:
    """Pushes that came after an accepted one to its partition, and are before it in the log.

    Operations keep the order over all servers. What is spooled is before later pushes through the same server only.
    """
    ends = sorted((p for p in accepted if p.id in places), key=lambda p: p.call.last_tick)
    highest: dict[tuple[str, str | None], Pushed] = {}
    next_end = 0
    for pushed in sorted(pushes, key=lambda p: p.call.started):
        while next_end < len(ends) and ends[next_end].call.last_tick < pushed.call.started:
            one = ends[next_end]
            lane = (tracks.history.partition_of(one.message), before_whom(tracks, one))
            if lane not in highest or min(places[highest[lane].id]) < min(places[one.id]):
                highest[lane] = one
            next_end += 1
        place = min(places.get(pushed.id, [NEVER]))
        for server in {ALL_SERVERS, pushed.call.server}:
            first = highest.get((tracks.history.partition_of(pushed.message), server))
            if first is not None and place < min(places[first.id]):
                text = f"seq {place} overtook an accepted message"
                yield Violation("I13", text, (first.call, pushed.call, call))


def before_whom(tracks: Tracks, accepted: Pushed) -> str:
    """The server whose later pushes come after an accepted one."""
    if accepted.id in tracks.history.operated:
        return ALL_SERVERS
    if tracks.history.spools_apart or accepted.call.server is None:
        return NO_SERVER
    return accepted.call.server
