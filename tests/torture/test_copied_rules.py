"""What a Spark job copied is judged by the logs of both queues: each message once, unchanged, in the order of its partition."""

from __future__ import annotations

import pytest
from msgspec import structs

from skep.clock import Instant, ManualClock
from skep.ids import IdMint
from skep.model import QueueKey, Seq, StoredMessage
from torture.check import check, occasions
from torture.history import Call, Copy, History

SOURCE, SINK = QueueKey("round0-streamed"), QueueKey("round0-copies")
IDS = IdMint(ManualClock()).mint_many(5)
PARTITIONS = ("p", "p", "q", "p")


def message(place: int) -> StoredMessage:
    payload = f'"{place}"'.encode()
    return StoredMessage(
        queue=SOURCE, seq=Seq(place + 1), partition=PARTITIONS[place], id=IDS[place], transaction_id=f"t{place}",
        trace_id=IDS[place], headers=None, content_type=None, payload=payload, payload_bytes=len(payload), priority=0,
        created_at=Instant(0),
    )  # fmt: skip


LOG = [message(place) for place in range(len(PARTITIONS))]


def copies(places: list[int]) -> list[Copy]:
    """Good copies of the messages at these places, in this order."""
    of = [LOG[place] for place in places]
    return [
        Copy(number, one.partition, one.id, one.seq, one.transaction_id, one.payload.decode())
        for number, one in enumerate(of, 1)
    ]


def history(found: list[Copy], *, drained: bool = True) -> History:
    log = Call("observer", "log", 1, 2, Instant(0), SOURCE, LOG)
    return History([log, Call("observer", "copies", 3, 4, Instant(0), (SOURCE, SINK), found)], drained=drained)


def broken(found: list[Copy], *, drained: bool = True) -> list[str]:
    return [violation.promise for violation in check(history(found, drained=drained))]


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [2, 0, 1, 3], [0, 1, 3, 2]])
def test_each_message_copied_once_in_the_order_of_its_partition_is_right(places: list[int]) -> None:
    assert broken(copies(places)) == []


@pytest.mark.parametrize(
    ("places", "promises"),
    [
        ([0, 1, 2], ["I1"]),
        ([], ["I1", "I1", "I1", "I1"]),
        ([0, 1, 1, 2, 3], ["I3"]),
        ([0, 1, 2, 3, 0], ["I3"]),
        ([1, 0, 2, 3], ["I4"]),
        ([0, 3, 2, 1], ["I4"]),
    ],
)
def test_a_lost_doubled_or_reordered_copy_breaks_its_promise(places: list[int], promises: list[str]) -> None:
    assert broken(copies(places)) == promises


def test_I2_an_invented_copy_breaks_it() -> None:
    invented = structs.replace(copies([3])[0], copied_as=5, id=IDS[4], seq=5)

    assert broken([*copies([0, 1, 2, 3]), invented]) == ["I2"]


@pytest.mark.parametrize(
    "change", [{"payload": '"other"'}, {"transaction_id": None}, {"transaction_id": "t9"}, {"seq": 9}, {"partition": "q"}]
)  # fmt: skip
def test_I2_a_changed_copy_breaks_it(change: dict[str, object]) -> None:
    *good, last = copies([0, 1, 2, 3])

    assert broken([*good, structs.replace(last, **change)]) == ["I2"]


def test_what_is_not_copied_yet_is_no_loss_while_the_job_goes_on() -> None:
    assert broken(copies([0, 1]), drained=False) == []


def test_every_copy_tries_four_promises() -> None:
    tried = occasions(history(copies([0, 1, 2, 3])))

    assert {promise for promise, times in tried.items() if times == 4} == {"I1", "I2", "I3", "I4"}
