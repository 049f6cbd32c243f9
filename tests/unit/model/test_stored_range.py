"""The results of a plain push: a range of seqs until somebody asks for one."""

from __future__ import annotations

import msgspec
import pytest

from skep.ids import Id
from skep.model import PushOutcome, PushResult, PushStatus, Seq, StoredRange

IDS = [Id(bytes([number]) * 16) for number in range(1, 5)]
RESULTS = [PushResult(PushStatus.STORED, id_, Seq(seq), None, id_) for seq, id_ in enumerate(IDS, 7)]


def test_it_has_a_result_for_each_message() -> None:
    stored = StoredRange(Seq(7), IDS)

    assert list(stored) == RESULTS
    assert len(stored) == 4
    assert [stored[index] for index in (0, 3, -1, -4)] == [RESULTS[index] for index in (0, 3, -1, -4)]
    with pytest.raises(IndexError):
        stored[4]


def test_a_part_has_the_seqs_of_its_messages() -> None:
    assert list(StoredRange(Seq(7), IDS).part(1, 3)) == RESULTS[1:3]
    assert not StoredRange(Seq(7), IDS).part(2, 2)


def test_nothing_of_it_was_refused() -> None:
    assert not PushOutcome(StoredRange(Seq(7), IDS), {}).refused
    assert not PushOutcome([], {}).refused
    assert PushOutcome([PushResult(PushStatus.REFUSED, IDS[0])], {}).refused


def test_a_store_in_another_process_hands_it_on_as_it_is() -> None:
    outcome = PushOutcome(StoredRange(Seq(7), IDS), {})

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=PushOutcome) == outcome
    plain = PushOutcome(RESULTS, {})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=PushOutcome) == plain
