"""Acks of messages, said with as few words as they take: messages that are all that is left of their lease are acked with the lease.

What is left of a lease is the seqs of its messages that are not known to be settled. A seq leaves when the server has answered. So what
somebody said of a message, and the server may not have heard, is never completed with its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, Struct, structs

from skep.model import SettleStatus
from skep.wire.messages import Ack, AckResult, AckStatus, PoppedMessage

Left = set[int]
"""The seqs of one lease that are not known to be settled."""


class Shortened(Struct, frozen=True):
    """Acks as they are sent, and for each of those that were meant the place of the one that says it."""

    meant: Sequence[Ack]
    sent: list[Ack]
    places: list[int]

    def results(self, told: Sequence[AckResult]) -> list[AckResult]:
        """A result for each ack that was meant."""
        if len(self.sent) == len(self.meant):
            return list(told)
        return [
            told[place] if ack.seq is UNSET else structs.replace(told[place], seq=ack.seq, messages=UNSET)
            for ack, place in zip(self.meant, self.places, strict=True)
        ]


def leases_of(popped: Iterable[PoppedMessage]) -> dict[str, Left]:
    """What is left of the leases of a pop: all that it brought."""
    leases: dict[str, Left] = {}
    for one in popped:
        leases.setdefault(one.lease_id, set()).add(one.seq)
    return leases


def shortened(acks: Sequence[Ack], leases: Mapping[str, Left]) -> Shortened:
    """The acks of one request. Of a lease that is not known every message is named."""
    through = _through(acks, leases)
    sent: list[Ack] = []
    places: list[int] = []
    leased: dict[str, int] = {}
    for ack in acks:
        last = through.get(ack.lease_id)
        if last is None or ack.status is not AckStatus.COMPLETED or ack.seq is UNSET or ack.seq > last:
            places.append(len(sent))
            sent.append(ack)
        elif ack.lease_id in leased:
            places.append(leased[ack.lease_id])
        else:
            leased[ack.lease_id] = len(sent)
            places.append(len(sent))
            sent.append(Ack(ack.lease_id) if last == _ALL else Ack(ack.lease_id, through_seq=int(last)))
    return Shortened(acks, sent, places)


_ALL = float("inf")


def _through(acks: Sequence[Ack], leases: Mapping[str, Left]) -> dict[str, float]:
    """Up to which seq each lease may be acked, where that says two messages or more."""
    named: dict[str, set[int]] = {}
    done: dict[str, list[int]] = {}
    for ack in acks:
        if ack.seq is not UNSET and ack.lease_id in leases:
            named.setdefault(ack.lease_id, set()).add(ack.seq)
            if ack.status is AckStatus.COMPLETED:
                done.setdefault(ack.lease_id, []).append(ack.seq)
    found: dict[str, float] = {}
    for lease, seqs in done.items():
        others = leases[lease] - named[lease]
        below = [seq for seq in seqs if seq < min(others)] if others else seqs
        if len(below) > 1:
            found[lease] = max(below) if others else _ALL
    return found


def settled(left: Left, seq: int, said: AckStatus, status: SettleStatus) -> None:
    """A message was settled, unless it was refused or, other than as completed, only queued: that may fail yet."""
    if status is not SettleStatus.REFUSED and (said is AckStatus.COMPLETED or status is not SettleStatus.QUEUED):
        left.discard(seq)
