"""Leases: I5, I6, I9, I10, I14."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from skep.ids import Id
from torture.history import Call, History, Settled, Violation, each_told
from torture.track import Holding, Track, Tracks


def one_live_lease(tracks: Tracks) -> Iterator[Violation]:
    """I5: walking in the order of pops, each lease against those that have not ended yet."""
    for track in tracks.groups.values():
        for what, found in track.holdings.items():
            if len(found) < 2:
                continue
            live: list[Holding] = []
            for holding in found:
                going_on = []
                for one in live:
                    if may_end_before(track, one, holding):
                        if one.call.is_before(holding.call):
                            continue
                    elif not may_follow(track, one, holding, found) and not may_follow(track, holding, one, found):
                        text = (
                            f"two live leases on {what} for {track.group}: {one.token.hex()} and {holding.token.hex()}"
                        )
                        yield Violation("I5", text, (one.call, holding.call))
                    going_on.append(one)
                live = [*going_on, holding]


def may_follow(track: Track, one: Holding, other: Holding, found: list[Holding]) -> bool:
    """Whether the first lease may have ended when the second began, of itself or because a third had taken over in between."""
    return may_end_before(track, one, other) or any(
        may_end_before(track, one, third) and may_end_before(track, third, other)
        for third in found
        if third is not one and third is not other
    )


def may_end_before(track: Track, one: Holding, other: Holding) -> bool:
    """Whether the first lease may have ended when the second began."""
    if not one.call.may_precede(other.call):
        return False
    return (
        one.auto_ack
        or other.call.latest_now >= track.deadline_before(one, other.call)
        or track.end_tick(one) <= other.call.last_tick
        or track.moves.may_lie_between(one.call, other.call)
    )


# I6: fencing


def stale_tokens_do_nothing(tracks: Tracks) -> Iterator[Violation]:
    """I6: what took effect was in a lease, and nobody had claimed it since; nothing is settled twice."""
    unanswered = {r.token for call in tracks.history.verb("pop") if call.ended is None for r in call.request}
    for track in tracks.groups.values():
        claims = Claims(track)
        for seq, settles in track.settles.items():
            for settled in settles:
                if not settled.took_effect:
                    continue
                token = settled.settlement.token
                held = [given for given in track.gives.get(seq, ()) if given.delivery.token == token]
                if not held:
                    if token not in unanswered:
                        text = f"seq {seq} was settled with a token that never held it"
                        yield Violation("I6", text, (settled.call,))
                elif claims.lies_between(
                    held[0].delivery.partition if track.is_ordered else seq, held[0].call, settled.call
                ):
                    text = f"seq {seq} was settled with a stale token"
                    yield Violation("I6", text, (held[0].call, settled.call))
                elif move := track.moves.ended_lease(held[0].call, settled.call):
                    text = f"seq {seq} was settled with a token whose lease a move of {track.group} had ended"
                    yield Violation("I6", text, (held[0].call, move.call, settled.call))
            if len(settles) > 1:
                yield from settled_once(track, seq, settles)


class Claims:
    """The claims of each partition or message by their starts, and the earliest end of each and all after it."""

    def __init__(self, track: Track) -> None:
        self._holdings = track.holdings
        self._found: dict[str | int, tuple[list[int], list[int]]] = {}

    def lies_between(self, what: str | int, first: Call, last: Call) -> bool:
        """Whether a claim certainly came after the first call and before the last."""
        holdings = self._holdings[what]
        if len(holdings) == 1:
            return False
        found = self._found.get(what)
        if found is None:
            earliest = [holding.call.last_tick for holding in holdings]
            for place in range(len(earliest) - 2, -1, -1):
                earliest[place] = min(earliest[place], earliest[place + 1])
            found = self._found[what] = ([holding.call.started for holding in holdings], earliest)
        place = bisect_right(found[0], first.last_tick)
        return place < len(holdings) and found[1][place] < last.started


def settled_once(track: Track, seq: int, settles: list[Settled]) -> Iterator[Violation]:
    finals = [settled for settled in settles if settled.is_final and not (settled.result and settled.result.repeated)]
    if len(finals) < 2:
        return
    by_epoch = Counter(track.moves.epoch(settled.call) for settled in finals)
    if any(times > 1 and epoch is not None for epoch, times in by_epoch.items()):
        text = f"seq {seq} was settled {len(finals)} times for {track.group}"
        yield Violation("I6", text, tuple(settled.call for settled in finals))


# I9: redelivery


def expired_leases_come_again(tracks: Tracks) -> Iterator[Violation]:
    """I9: a pop with nobody else about, that finds nothing, leaves no message behind whose lease has run out."""
    if tracks.history.leases_may_last:
        return
    abandoned = {key: forgotten(track) for key, track in tracks.groups.items()}
    for call in alone(tracks.history):
        for request, result in each_told(call.request, call.answer):
            key = (request.queue, request.group)
            if key not in tracks.groups or result is None or result.deliveries:
                continue
            if tracks.history.settings_of(request.queue).paused:
                continue
            for holding in abandoned[key]:
                if request.partition in (None, holding.partition) and is_left(tracks.groups[key], holding, call):
                    text = f"the lease on {holding.partition} ran out and is not delivered again to {request.group}"
                    yield Violation("I9", text, (holding.call, call))


def alone(history: History) -> Iterator[Call]:
    """Answered pops that overlap with no other call."""
    calls = sorted(history.calls, key=lambda call: call.started)
    last = -1
    for place, call in enumerate(calls):
        is_last = place + 1 == len(calls) or calls[place + 1].started > call.last_tick
        if call.verb == "pop" and call.ended is not None and last < call.started and is_last:
            yield call
        last = max(last, call.last_tick)


def forgotten(track: Track) -> list[Holding]:
    """Leases of which nothing was settled, and which nobody took over."""
    found = []
    for holdings in track.holdings.values():
        # A pop that began first may have waited, and taken over: so by their ends.
        *_, second, last = sorted((-1, *(holding.call.last_tick for holding in holdings)))
        for holding in holdings:
            settled = any(
                one.settlement.token == holding.token and one.may_have_taken_effect
                for seq in holding.seqs
                for one in track.settles.get(seq, ())
            )
            buried = any(track.exhausted_tick(seq) <= holding.call.started for seq in holding.seqs)
            taken_over = (second if holding.call.last_tick == last else last) >= holding.call.started
            if not (settled or buried or holding.auto_ack or taken_over or track.may_last_longer(holding)):
                found.append(holding)
    return found


def is_left(track: Track, holding: Holding, call: Call) -> bool:
    """Whether a lease had certainly run out when the call was made, and its messages are still to be delivered."""
    return (
        holding.call.is_before(call)
        and track.deadline_before(holding, call) <= call.now
        and not track.may_expire
        and not track.moves.may_lie_between(holding.call, call)
        and not all(track.may_be_deleted(seq, call) for seq in holding.seqs)
    )


def drained_is_empty(tracks: Tracks) -> Iterator[Violation]:
    """I9: when everything that came was settled until nothing came, nothing is left."""
    gone = {call.request[0] for call in tracks.history.verb("delete_queue")}
    looks = sorted(tracks.history.stats, key=lambda look: look[0].started) if tracks.history.drained else []
    last = {stats.queue: (call, stats) for call, stats in looks if stats.queue not in gone}
    for call, stats in last.values():
        for g in stats.groups:
            if g.pending or g.in_flight:
                text = f"{g.pending} messages of {g.queue.name} were never delivered to {g.group}, {g.in_flight} are still leased"
                yield Violation("I9", text, (call,))


# I10, I14


def attempts_are_exact(tracks: Tracks) -> Iterator[Violation]:
    """I10."""
    for track in tracks.groups.values():
        limit = track.settings.max_attempts
        for seq, gives in track.gives.items():
            if len(gives) == 1 and gives[0].delivery.attempt == 1:
                continue
            by_epoch: dict[int | None, list[int]] = defaultdict(list)
            for given in gives:
                by_epoch[track.moves.epoch(given.call)].append(given.delivery.attempt)
                if 0 < limit < given.delivery.attempt:
                    text = f"seq {seq} came {given.delivery.attempt} times, the limit is {limit}"
                    yield Violation("I10", text, (given.call,))
            for epoch, attempts in by_epoch.items():
                missing = max(attempts) - len(attempts)
                twice = len(set(attempts)) < len(attempts)
                # What came in the midst of a move counts before it or after it.
                unknown = len(track.unanswered_pops) + len(by_epoch.get(None, []))
                if epoch is not None and (twice or missing > unknown):
                    text = f"attempts of seq {seq} for {track.group} are {attempts}"
                    yield Violation("I10", text, tuple(given.call for given in gives))


def groups_are_apart(tracks: Tracks) -> Iterator[Violation]:
    """I14: a replay reaches the group that gave the message up, and no other."""
    wanted: dict[Id, str] = {}
    for call in tracks.history.verb("replay"):
        groups = call.request[1]
        for replayed in call.answer or ():
            wanted[replayed.id] = groups[replayed.dead_seq]
    for given in tracks.history.gives if wanted else ():
        if wanted.get(given.delivery.id, given.delivery.group) != given.delivery.group:
            yield Violation("I14", f"seq {given.delivery.seq} was replayed for another group", (given.call,))
