"""Staged messages are the same when they come back, whether they are worth compressing or not."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from skep.arrow.staged import SAMPLE_BYTES, SAMPLES, Unpacked, plain_chunk
from skep.ids import Id

HEX = "0123456789abcdef"
ALIKE = [json.dumps({"order": number, "state": "open", "country": "Switzerland"}).encode() for number in range(5_000)]
RANDOM = ["".join(random.Random(number).choices(HEX, k=300)).encode() for number in range(1_000)]


def texts(column: list[bytes]) -> pa.LargeBinaryArray:
    return pa.array(column, pa.large_binary())


@pytest.mark.parametrize(
    ("payloads", "shrinks"),
    [(ALIKE, True), (RANDOM, False), ([b""], False), ([], False)],
    ids=["alike", "random", "nothing", "none"],
)
def test_only_what_shrinks_is_compressed(payloads: list[bytes], shrinks: bool) -> None:
    partitions = [b"p"] * len(payloads)

    chunk = plain_chunk("orders", texts(partitions), texts(payloads))

    size = sum(map(len, payloads))
    assert (len(chunk) < 0.5 * size) == shrinks
    rows = Unpacked(chunk, "tenant").rows(Id((1).to_bytes(16, "big")))
    assert (rows.partition.to_pylist(), rows.payload.to_pylist()) == (partitions, payloads)


def test_the_sample_is_of_the_rows_that_are_written() -> None:
    """And not of others before them in the same memory."""
    whole = texts([b"x" * SAMPLES * SAMPLE_BYTES, *RANDOM])

    chunk = plain_chunk("orders", texts([b"p"] * len(RANDOM)), whole.slice(1))

    assert len(chunk) > sum(map(len, RANDOM))
    assert Unpacked(chunk, "tenant").rows(Id((1).to_bytes(16, "big"))).payload.to_pylist() == RANDOM
