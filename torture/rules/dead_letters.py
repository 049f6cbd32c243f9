"""Dead letters: I11, in exactly one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from skep.model import SettleStatus
from torture.history import Violation
from torture.track import Track, Tracks


def given_up_once(tracks: Tracks) -> Iterator[Violation]:
    """I11: a message that was given up is among the dead letters, once for its group, until it is replayed or purged."""
    gone = {call.request[0].name.partition("#")[0] for call in tracks.history.verb("delete_queue")}
    for call in tracks.history.verb("dead"):
        queue = call.request
        if call.ended is None or queue.name.partition("#")[0] in gone:
            continue
        found = Counter((letter.group, int(letter.source_seq)) for letter in call.answer)
        for (group, seq), times in found.items():
            track = tracks.groups.get((queue, group))
            if times > 1 and track is not None and track.moves.last_before(call) == [None]:
                yield Violation("I11", f"seq {seq} was given up {times} times by {group}", (call,))
    for track in tracks.groups.values():
        if track.queue.name.partition("#")[0] not in gone:
            yield from not_among_them(track)


def not_among_them(track: Track) -> Iterator[Violation]:
    """Messages that were answered as dead before the first look at the dead letters after that, which has them not.

    Whoever forgets a message takes its dead letters along.
    """
    letters = track.history.dead_letters.get(track.queue)
    if letters is None or not track.history.drained:
        return
    for seq, settles in track.settles.items():
        for settled in settles:
            is_dead = settled.result is not None and settled.result.status is SettleStatus.DEAD
            if is_dead and (track.group, seq) not in letters and (track.queue, seq) not in track.history.forgotten:
                text = f"seq {seq} was given up by {track.group}, and is not among the dead letters"
                yield Violation("I11", text, (settled.call,))
