"""Shorten acks: when the messages are all that is left of their lease, the request acks the lease and not each message.

The remainder of a lease is the set of its seqs that are not known to be settled. A seq leaves the set when the server has answered. So a
message with an unanswered settlement, a nack for example, is never completed together with its lease.

The messages of a lease of an unordered queue may run out apart. A late ack of the lease then completes those that nobody else has, and
says how many these are. So transactions name each message: they must not commit when others have one of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import UNSET, Struct

from skep.errors import Code
from skep.model import SettleStatus
from skep.wire.messages import Ack, AckResult, AckStatus

_COMPLETED, _QUEUED, _REFUSED = AckStatus.COMPLETED, SettleStatus.QUEUED, SettleStatus.REFUSED
"""By names of our own: Python takes longer to find a member of an enum than all else here."""
_REFUSAL = AckResult(None, _REFUSED, Code.STALE_LEASE)
_ALL = sys.maxsize
"""Beyond all seqs."""

Left = set[int]
"""The seqs of one lease that are not known to be settled."""


class Shortened(Struct, frozen=True):
    """The acks to send, and for each original ack the index of the sent ack that covers it."""

    meant: Sequence[Ack]
    sent: list[Ack]
    places: list[int]

    def results(self, told: Sequence[AckResult]) -> list[AckResult]:
        """A result for each original ack. Those of a lease of which others have a part count as refused: only they themselves can tell."""
        if len(self.sent) == len(self.meant):
            return list(told)
        parted = self._parted(told)
        return [
            told[place] if ack.seq is UNSET else _of_one(_REFUSAL if place in parted else told[place], ack.seq)
            for ack, place in zip(self.meant, self.places, strict=True)
        ]

    def is_open(self, told: Sequence[AckResult]) -> bool:
        """Whether others have a part of a lease, so that only acks of its messages tell which were completed. Such acks may be repeated."""
        return len(self.sent) < len(self.meant) and bool(self._parted(told))

    def _parted(self, told: Sequence[AckResult]) -> set[int]:
        """The sent acks of leases that completed fewer messages than they stand for: in an unordered queue messages run out apart."""
        meant = Counter(self.places)
        return {
            place
            for place, result in enumerate(told)
            if meant[place] > 1 and result.messages is not UNSET and result.messages < meant[place]
        }


def _of_one(told: AckResult, seq: int) -> AckResult:
    """The result of a lease as the result of one of its messages."""
    return AckResult(seq, told.status, told.code, told.retry_at, told.dead_letter_queue, told.repeated)


class Leased(Protocol):
    """A message under a lease."""

    @property
    def lease_id(self) -> str:
        """Its lease."""

    @property
    def seq(self) -> int:
        """Its seq."""


def leases_of(popped: Iterable[Leased]) -> dict[str, Left]:
    """The unsettled seqs of each lease after a pop: all that the pop brought."""
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
        lease, seq = ack.lease_id, ack.seq
        last = through.get(lease)
        if last is None or ack.status is not _COMPLETED or seq is UNSET or seq > last:
            places.append(len(sent))
            sent.append(ack)
        elif (place := leased.get(lease)) is not None:
            places.append(place)
        else:
            leased[lease] = len(sent)
            places.append(len(sent))
            sent.append(Ack(lease) if last == _ALL else Ack(lease, through_seq=last))
    return Shortened(acks, sent, places)


def _through(acks: Sequence[Ack], leases: Mapping[str, Left]) -> dict[str, int]:
    """Up to which seq each lease may be acked, where that says two messages or more."""
    spoken: dict[str, tuple[set[int], list[int]]] = {}
    for ack in acks:
        seq, lease = ack.seq, ack.lease_id
        if seq is UNSET or lease not in leases:
            continue
        if lease not in spoken:
            spoken[lease] = (set(), [])
        named, done = spoken[lease]
        named.add(seq)
        if ack.status is _COMPLETED:
            done.append(seq)
    found: dict[str, int] = {}
    for lease, (named, done) in spoken.items():
        others = leases[lease] - named
        below = [seq for seq in done if seq < min(others)] if others else done
        if len(below) > 1:
            found[lease] = max(below) if others else _ALL
    return found


def settled(left: Left, seq: int, said: AckStatus, status: SettleStatus) -> None:
    """A message was settled, unless it was refused or, other than as completed, only queued: that may fail yet."""
    if status is not _REFUSED and (said is _COMPLETED or status is not _QUEUED):
        left.discard(seq)
