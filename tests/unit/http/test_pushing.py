"""The answer to a push: that of a range of seqs is the one that objects would make, byte for byte."""

from __future__ import annotations

from skep.clock import ManualClock
from skep.http.pushing import answer
from skep.ids import IdMint
from skep.model import Depth, PushOutcome, QueueKey, Seq, StoredRange


def test_a_range_is_answered_as_its_results_are() -> None:
    stored = StoredRange(Seq(41), IdMint(ManualClock()).mint_many(3))
    depths = {QueueKey("orders"): Depth(3, None)}

    as_range = answer(PushOutcome(stored, depths))
    as_objects = answer(PushOutcome(list(stored), depths))

    assert (as_range.status, as_range.body) == (as_objects.status, as_objects.body)
    assert isinstance(as_range.body, bytes)
    assert as_range.body.count(b"stored") == 3
