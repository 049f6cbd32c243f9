"""The bytes of a spooled push."""

from __future__ import annotations

import pytest

from skep.clock import Instant
from skep.engine.push.spool.record import Record, decode, encode
from skep.model import NewMessage, PushBatch, QueueKey, Tried
from skep.model.record import Receipt, ReceiptKey
from tests.spool.samples import MINT, record


def test_a_record_comes_back_as_it_was() -> None:
    messages = [
        NewMessage(QueueKey("a", "t"), b'{"x":1}', "p", "tx", MINT.mint(), b'{"h":"1"}', None, Instant(7), -3),
        NewMessage(QueueKey("b"), bytes(range(256)), content_type="application/x"),
        NewMessage(QueueKey("a", "t"), b"1"),
    ]
    receipt = Receipt(ReceiptKey("hook:x", "k", "t"), b"{}", Instant(99))
    batch = PushBatch(messages, MINT.mint_many(3), receipt, Tried(Instant(1), Instant(2), "skep ab.1"))
    original = Record(MINT.mint(), Instant(5), batch)
    assert decode(encode(original)) == original
    assert original.groups() == {(QueueKey("a", "t"), "p"), (QueueKey("b"), "Default"), (QueueKey("a", "t"), "Default")}


def test_bytes_that_are_no_record_are_refused() -> None:
    body = encode(record("1", "2"))
    for size in range(len(body)):
        with pytest.raises(ValueError):
            decode(body[:size])
