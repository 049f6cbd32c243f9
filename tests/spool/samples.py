"""Records to spool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.clock import Instant, ManualClock
from skep.engine.push.spool.record import Record
from skep.engine.push.spool.slot import Slot, SlotLimits, take_slot
from skep.ids import IdMint
from skep.model import NewMessage, PushBatch, QueueKey

LIMITS = SlotLimits(max_bytes=1 << 30, free_bytes=0)
MINT = IdMint(ManualClock())


def record(*payloads: str, queue: str = "q", receipt: Any = None, tried: Any = None, **fields: Any) -> Record:
    messages = [NewMessage(QueueKey(queue), payload.encode(), **fields) for payload in payloads]
    return Record(MINT.mint(), Instant(1), PushBatch(messages, MINT.mint_many(len(messages)), receipt, tried))


def slot_in(folder: Path, limits: SlotLimits = LIMITS) -> Slot:
    slot = take_slot(folder / "spool", limits)
    slot.load(lambda _: None)
    return slot
