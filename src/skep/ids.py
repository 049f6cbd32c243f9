"""Ids: RFC 9562 UUIDv7, rising within a process whatever the clock does.

Ids name things; order never rests on them. They are 16 raw bytes inside and text at the edges. The mint is
ours because it must follow the injected clock and stay monotonic within one millisecond and when the clock
stands still or goes back; `uuid_utils` takes its time from the machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import NewType, cast
from uuid import UUID

from skep.clock import MICROS_PER_MS, Clock, Instant

Id = NewType("Id", bytes)

_RANDOM_BITS = 74
_LOW_BITS = 62
_VERSION = 7 << 76
_VARIANT = 2 << 62
_LOW_MASK = (1 << _LOW_BITS) - 1
_COUNTER_MAX = (1 << _RANDOM_BITS) - 1
_RESEED_MASK = (1 << (_RANDOM_BITS - 1)) - 1


def ids_from(first: Id, count: int) -> list[Id]:
    """``count`` ids from the first one on."""
    return _ids(int.from_bytes(first, "big"), count)


def _ids(first: int, count: int) -> list[Id]:
    # Cast as a whole: making an Id of each costs as much as minting it.
    return cast("list[Id]", [number.to_bytes(16, "big") for number in range(first, first + count)])


def id_after(first: Id, count: int) -> Id:
    """The id that comes ``count`` after another one."""
    return Id((int.from_bytes(first, "big") + count).to_bytes(16, "big"))


class IdMint:
    """Mints UUIDv7s: 48 bits of Unix milliseconds, then a 74-bit counter that starts random each millisecond."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._ms = 0
        self._counter = 0

    def mint(self) -> Id:
        """One new id, greater than all this mint gave before."""
        return self.mint_many(1)[0]

    def mint_many(self, count: int) -> list[Id]:
        """``count`` new ids, rising."""
        return _ids(self._mint(count), count)

    def mint_range(self, count: int) -> Id:
        """The first of ``count`` new ids; the others are the numbers that follow it (`ids_from`)."""
        return Id(self._mint(count).to_bytes(16, "big"))

    def _mint(self, count: int) -> int:
        """The number that is the first of ``count`` new ids."""
        while True:
            with self._lock:
                ms = self.clock.now() // MICROS_PER_MS
                if ms > self._ms:
                    self._ms = ms
                    # The top bit stays clear, so a millisecond has room for 2^73 further ids.
                    self._counter = int.from_bytes(os.urandom(10), "big") & _RESEED_MASK
                elif self._counter + count > _COUNTER_MAX:
                    self._ms += 1
                    self._counter = int.from_bytes(os.urandom(10), "big") & _RESEED_MASK
                high, first = self._ms << 80 | _VERSION | _VARIANT, self._counter + 1
                self._counter += count
            low = first & _LOW_MASK
            if low + count <= _LOW_MASK:  # else a carry would run into the variant's bits: take the next ones
                return high | (first >> _LOW_BITS) << 64 | low


def minted_at(id_: bytes) -> Instant | None:
    """The millisecond a UUIDv7 was minted in, or None for any other UUID."""
    if id_[6] >> 4 != 7:  # the version nibble of RFC 9562
        return None
    return Instant(int.from_bytes(id_[:6], "big") * MICROS_PER_MS)


def id_text(id_: bytes) -> str:
    """The id in its usual written form."""
    h = id_.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def id_texts(ids: Iterable[bytes]) -> list[str]:
    """Ids in their usual written form. Those minted together share all but the last group, which is written once."""
    texts: list[str] = []
    head, start = b"", ""
    for id_ in ids:
        if id_[:10] != head:
            head = id_[:10]
            start = id_text(id_)[:24]
        texts.append(start + id_[10:].hex())
    return texts


def parse_id(text: str) -> Id:
    """The id that ``text`` writes; ValueError when it is no UUID."""
    return Id(UUID(text).bytes)
