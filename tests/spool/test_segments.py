"""A segment of the spool, cut off and damaged at every byte: no record is ever read wrong, and no other is lost with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.clock import Instant
from skep.engine.spooling import kept
from skep.engine.spooling.segments import FRAME_BYTES, HEADER_BYTES, Damage, FoundRecord, frame, new_header
from skep.engine.spooling.slots import read_segment
from skep.model import NewMessage, PushBatch, QueueKey, Tried
from skep.model.record import Receipt, ReceiptKey
from tests.spool.samples import MINT, record

BODIES = [b"", b"one", b"x" * 40, b"three"]


def segment(path: Path, bodies: list[bytes]) -> bytes:
    header, marker = new_header()
    data = header + b"".join(frame(marker, body) for body in bodies)
    path.write_bytes(data)
    return data


def found(path: Path) -> tuple[list[bytes], list[Damage]]:
    read = list(read_segment(path))
    return [one.body for one in read if isinstance(one, FoundRecord)], [one for one in read if isinstance(one, Damage)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    segment(tmp_path / "s", BODIES)
    assert found(tmp_path / "s") == (BODIES, [])


def test_I1_a_segment_cut_at_every_byte_loses_only_what_was_being_written(tmp_path: Path) -> None:
    path = tmp_path / "s"
    data = segment(path, BODIES)
    ends = [HEADER_BYTES]
    for body in BODIES:
        ends.append(ends[-1] + FRAME_BYTES + len(body))
    for size in range(len(data)):
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends[1:])
        bodies, damages = found(path)
        assert bodies == BODIES[:whole], size
        assert all(damage.torn for damage in damages), size
        assert bool(damages) == (size not in ends and size > 0), size


def test_I1_a_segment_damaged_at_every_byte_loses_one_record_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    data = segment(path, BODIES)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            bodies, damages = found(path)
            if at < HEADER_BYTES:
                assert (bodies, damages) == (BODIES, []), at
                continue
            lost = [body for body in BODIES if body not in bodies]
            assert len(lost) == 1, at
            assert bodies == [body for body in BODIES if body not in lost], at
            (damage,) = damages
            assert damage.start <= at < damage.end
            assert not damage.torn


def test_a_tail_of_zeros_was_never_answered(tmp_path: Path) -> None:
    path = tmp_path / "s"
    data = segment(path, BODIES)
    path.write_bytes(data + bytes(100))
    bodies, (damage,) = found(path)
    assert bodies == BODIES
    assert damage.torn


def test_a_payload_cannot_pass_for_a_record(tmp_path: Path) -> None:
    """A client that knows the format puts a record into its payload; when the one around it is damaged, it must not be found."""
    header, marker = new_header()
    forged_header, forged_marker = new_header()
    forged = frame(forged_marker, b"forged")
    data = header + frame(marker, b"before") + frame(marker, forged_header + forged + b"tail") + frame(marker, b"after")
    at = HEADER_BYTES + FRAME_BYTES + len(b"before") + 3
    path = tmp_path / "s"
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    bodies, damages = found(path)
    assert bodies == [b"before", b"after"]
    assert len(damages) == 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=4),
    st.integers(0, 500),
)
def test_whatever_happens_to_a_segment_only_whole_records_are_read_in_order(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], flips: list[tuple[int, int]], size: int
) -> None:
    path = tmp_path_factory.mktemp("s") / "s"
    data = bytearray(segment(path, bodies))
    for at, flip in flips:
        data[at % len(data)] ^= flip
    path.write_bytes(data[:size])
    read, damages = found(path)
    rest = iter(bodies)
    assert all(any(body == one for one in rest) for body in read)  # a subsequence
    spans = [(one.start, one.end) for one in damages]
    assert spans == sorted(spans)
    assert path.stat().st_size == size if size < len(data) else True


def test_a_record_comes_back_as_it_was() -> None:
    messages = [
        NewMessage(QueueKey("a", "t"), b'{"x":1}', "p", "tx", MINT.mint(), b'{"h":"1"}', None, Instant(7), -3),
        NewMessage(QueueKey("b"), bytes(range(256)), content_type="application/x"),
        NewMessage(QueueKey("a", "t"), b"1"),
    ]
    receipt = Receipt(ReceiptKey("hook:x", "k", "t"), b"{}", Instant(99))
    batch = PushBatch(messages, MINT.mint_many(3), receipt, Tried(Instant(1), Instant(2), "skep ab.1"))
    original = kept.Record(MINT.mint(), Instant(5), batch)
    assert kept.decode(kept.encode(original)) == original
    assert original.groups() == {(QueueKey("a", "t"), "p"), (QueueKey("b"), "Default"), (QueueKey("a", "t"), "Default")}


def test_bytes_that_are_no_record_are_refused() -> None:
    body = kept.encode(record("1", "2"))
    for size in range(len(body)):
        with pytest.raises(ValueError):
            kept.decode(body[:size])
