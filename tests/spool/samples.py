"""Records to spool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.clock import Instant, ManualClock
from skep.engine.spooling.kept import Record
from skep.engine.spooling.slots import Slot, SpoolLimits, take_slot
from skep.ids import IdMint
from skep.model import NewMessage, PushBatch, QueueKey

LIMITS = SpoolLimits(max_bytes=1 << 30, free_bytes=0, segment_bytes=1 << 26)
MINT = IdMint(ManualClock())


def record(*payloads: str, queue: str = "q", receipt: Any = None, tried: Any = None, **fields: Any) -> Record:
    messages = [NewMessage(QueueKey(queue), payload.encode(), **fields) for payload in payloads]
    return Record(MINT.mint(), Instant(1), PushBatch(messages, MINT.mint_many(len(messages)), receipt, tried))


def slot_in(folder: Path, limits: SpoolLimits = LIMITS) -> Slot:
    return take_slot(folder / "spool", limits)
