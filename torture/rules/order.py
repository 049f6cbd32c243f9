"""The order of deliveries (I4), and progress: I7, I8, I12."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from torture.history import Call, Given, Violation
from torture.moves import Move
from torture.track import Track, Tracks


def first_deliveries_in_order(tracks: Tracks) -> Iterator[Violation]:
    """I4: per partition and group, in ordered queues."""
    for track in tracks.groups.values():
        if not track.is_ordered:
            continue
        firsts: dict[tuple[str, int], list[Given]] = defaultdict(list)
        for gives in track.gives.values():
            for given in gives:
                epoch = track.moves.epoch(given.call) if given.delivery.attempt == 1 else None
                if epoch is not None:
                    firsts[given.delivery.partition, epoch].append(given)
        for (partition, _), given_first in firsts.items():
            yield from out_of_order(partition, given_first)


def out_of_order(partition: str, gives: list[Given]) -> Iterator[Violation]:
    """Those that came after a later one: walking in the order of starts, with the greatest of all that had ended by then."""
    ends = sorted(gives, key=lambda given: given.call.last_tick)
    next_end = 0
    highest: Given | None = None
    for given in sorted(gives, key=lambda given: (given.call.started, given.delivery.seq)):
        while ends[next_end].call.last_tick < given.call.started:
            if highest is None or highest.delivery.seq < ends[next_end].delivery.seq:
                highest = ends[next_end]
            next_end += 1
        if highest is not None and given.delivery.seq < highest.delivery.seq:
            text = f"{partition}: seq {given.delivery.seq} first came after {highest.delivery.seq}"
            yield Violation("I4", text, (highest.call, given.call))


def answers_are_in_order(tracks: Tracks) -> Iterator[Violation]:
    """I4: within one answer, too."""
    for call in tracks.history.verb("pop"):
        for result in call.answer or ():
            last: dict[tuple[object, str], int] = {}
            for delivery in result.deliveries if result is not None else ():
                what = (delivery.queue.name, delivery.partition)
                if delivery.seq <= last.get(what, 0) and tracks.history.is_ordered(delivery.queue):
                    text = f"{delivery.partition}: seq {delivery.seq} came after {last[what]} in one answer"
                    yield Violation("I4", text, (call,))
                last[what] = delivery.seq


def nothing_overtakes(tracks: Tracks) -> Iterator[Violation]:
    """I4: a message comes only when the earlier ones of its partition are settled or in the same lease."""
    for track in tracks.groups.values():
        if not track.is_ordered or track.may_expire:
            continue
        ways = Ways(track)
        for what, holdings in track.holdings.items():
            for holding in holdings:
                witness = ways.overtaken(str(what), holding.seqs, holding.call)
                if witness is not None:
                    text = f"{what}: seq {max(holding.seqs)} overtook {witness} for {track.group}"
                    yield Violation("I4", text, (push_of(track, witness), holding.call))


def push_of(track: Track, seq: int) -> Call:
    return next(entry.call for entry in track.entries if entry.seq == seq)


class Ways:
    """For each partition and last move: from when its messages may be settled, in their order."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.seqs = {
            partition: [track.entries[place].seq for place in places]
            for partition, places in track.by_partition.items()
        }
        self._ticks: dict[tuple[str, Move | None], tuple[list[int], list[int]]] = {}

    def ticks(self, partition: str, since: Move | None) -> tuple[list[int], list[int]]:
        """Of each message, and the greatest up to it."""
        found = self._ticks.get((partition, since))
        if found is None:
            all_ticks = self.track.ticks(since).each
            each = [all_ticks[place] for place in self.track.by_partition[partition]]
            up_to, greatest = [], 0
            for tick in each:
                greatest = max(greatest, tick)
                up_to.append(greatest)
            found = self._ticks[partition, since] = (each, up_to)
        return found

    def overtaken(self, partition: str, leased: list[int], call: Call) -> int | None:
        """An earlier message that cannot have been settled when these were leased; None when there may be none."""
        seqs = self.seqs.get(partition)
        if seqs is None:
            return None
        first, last = bisect_left(seqs, min(leased)), bisect_left(seqs, max(leased))
        witness = None
        for since in self.track.moves.last_before(call):
            each, up_to = self.ticks(partition, since)
            witness = None
            if first > 0 and up_to[first - 1] > call.last_tick:
                witness = next(seqs[place] for place in range(first) if each[place] > call.last_tick)
            elif last > first:
                together = set(leased)
                between = (p for p in range(first, last) if seqs[p] not in together and each[p] > call.last_tick)
                witness = next((seqs[place] for place in between), None)
            if witness is None:
                return None
        return witness


# progress


def progress_never_goes_back(tracks: Tracks) -> Iterator[Violation]:
    """I7: neither in figures nor by delivering again what was settled."""
    seen: dict[tuple[object, int], list[tuple[Call, int]]] = defaultdict(list)
    for call, stats in tracks.history.stats:
        for figures in stats.groups:
            track = tracks.groups[stats.queue, figures.group]
            epoch = track.moves.epoch(call)
            if epoch is not None:
                seen[track.key, epoch].append((call, figures.progress_seq))
    for looks in seen.values():
        yield from fallen(looks)
    for track in tracks.groups.values():
        yield from came_again(track)


def fallen(looks: list[tuple[Call, int]]) -> Iterator[Violation]:
    ends = sorted(looks, key=lambda look: look[0].last_tick)
    next_end = 0
    highest: tuple[Call, int] | None = None
    for call, progress in sorted(looks, key=lambda look: look[0].started):
        while ends[next_end][0].last_tick < call.started:
            if highest is None or highest[1] < ends[next_end][1]:
                highest = ends[next_end]
            next_end += 1
        if highest is not None and progress < highest[1]:
            yield Violation("I7", f"progress fell from {highest[1]} to {progress}", (highest[0], call))


def came_again(track: Track) -> Iterator[Violation]:
    """Deliveries of what was settled, when no move lies between."""
    for seq, gives in track.gives.items():
        if len(gives) == 1 and seq in track.settles and gives[0].call.last_tick < track.settles[seq][0].call.started:
            continue
        finals = [settled for settled in track.settles.get(seq, ()) if settled.is_final]
        if track.moves.all:  # a repeat tells of what was settled earlier, perhaps before a move
            finals = [settled for settled in finals if settled.took_effect]
        ends = [settled.call for settled in finals] + [given.call for given in gives if given.request.auto_ack]
        for given in gives:
            for end in ends:
                if end.is_before(given.call) and not track.moves.may_lie_between(end, given.call):
                    text = f"seq {seq} was settled for {track.group} and came again"
                    yield Violation("I7", text, (end, given.call))


def moved_past_does_not_come(tracks: Tracks) -> Iterator[Violation]:
    """I7: what a group was moved past, or was cleared for all, is not delivered to it until it is moved again."""
    for track in tracks.groups.values():
        if not track.moves.all:
            continue
        entries = {entry.seq: entry for entry in track.entries}
        for seq, gives in track.gives.items():
            for given in gives if seq in entries else ():
                last = track.moves.last_before(given.call)
                if all(move is not None and move.must_pass(entries[seq]) for move in last):
                    text = f"{track.group} was moved past seq {seq}, which came all the same"
                    yield Violation("I7", text, (*(move.call for move in last if move is not None), given.call))


def deleted_does_not_come(tracks: Tracks) -> Iterator[Violation]:
    """I7: what was deleted by itself, or forgotten, is settled for all groups for good: nobody gets it, and no log shows it."""
    for queue in tracks.history.thinned:
        ends = {
            seq: [call for call in calls if call.ended is not None]
            for (where, seq), calls in tracks.history.deletions.items()
            if where == queue
        }
        sights = [
            (int(given.delivery.seq), given.call)
            for track in tracks.groups.values()
            if track.queue == queue
            for seq in ends
            for given in track.gives.get(seq, ())
        ]
        sights += [
            (int(m.seq), call) for call, messages in tracks.history.logs if call.request == queue for m in messages
        ]
        for seq, call in sights:
            for end in ends.get(seq, ()):
                if end.is_before(call):
                    yield Violation("I7", f"seq {seq} was deleted and is seen again", (end, call))


def no_skips(tracks: Tracks) -> Iterator[Violation]:
    """I8: below the progress everything may have been settled."""
    for call, stats in tracks.history.stats:
        for figures in stats.groups:
            track = tracks.groups[stats.queue, figures.group]
            if track.may_expire or track.queue in tracks.history.worked:
                continue
            last = bisect_right(track.entries, int(figures.progress_seq), key=lambda entry: entry.seq)
            skipped = None
            for since in track.moves.last_before(call):
                ticks = track.ticks(since)
                if last == 0 or ticks.up_to[last - 1] <= call.last_tick:
                    break
                skipped = next(track.entries[p] for p in range(last) if ticks.each[p] > call.last_tick)
            else:
                if skipped is not None:
                    text = f"progress of {track.group} is past {skipped.seq}, which is not settled"
                    yield Violation("I8", text, (skipped.call, call))


def accounts_add_up(tracks: Tracks) -> Iterator[Violation]:
    """I12."""
    for call, stats in tracks.history.stats:
        for g in stats.groups:
            parts = (g.completed, g.pending, g.in_flight, g.dead, g.expired)
            if g.pushed != sum(parts) or min(parts) < 0:
                yield Violation("I12", f"the account of {g.group} does not add up: {g}", (call,))
