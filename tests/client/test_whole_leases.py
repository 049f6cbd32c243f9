"""A batch that succeeded is completed by its leases: the server is told of these, and not of every message."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import skep
from skep.client.lease_acks import shortened
from skep.clock import ManualClock
from skep.errors import Code
from skep.model import Ordering, SettleStatus
from skep.testing.server import running_server
from skep.wire.messages import Ack, AckResult, AckStatus

DONE = SettleStatus.COMPLETED


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[Ack]]:
    """What clients of either kind tell the server of messages, request by request."""
    requests: list[list[Ack]] = []
    settle, settle_async = skep.Client.settle, skep.AsyncClient.settle

    def noted(self: skep.Client, acks: Sequence[Ack]) -> list[AckResult]:
        requests.append(list(acks))
        return settle(self, acks)

    async def noted_async(self: skep.AsyncClient, acks: Sequence[Ack]) -> list[AckResult]:
        requests.append(list(acks))
        return await settle_async(self, acks)

    monkeypatch.setattr(skep.Client, "settle", noted)
    monkeypatch.setattr(skep.AsyncClient, "settle", noted_async)
    return requests


def completed(client: skep.Client, queue: str = "orders") -> int:
    return client.stats(queue).groups[0].completed


@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_batch_is_acked_by_its_leases_and_answered_by_message(
    client: skep.Client, sent: list[list[Ack]], ordering: Ordering
) -> None:
    client.configure("orders", ordering=ordering)
    for partition in "ab":
        client.push("orders", [1, 2, 3], partition=partition)
    messages = client.pop("orders", batch=10)

    results = client.ack(*messages)

    leases = list(dict.fromkeys(message.lease_id for message in messages))
    assert sent == [[Ack(lease) for lease in leases]]
    assert [(one.seq, one.status) for one in results] == [(message.seq, DONE) for message in messages]
    assert {message.settled for message in messages} == {AckStatus.COMPLETED}
    assert completed(client) == 6


async def test_the_asynchronous_client_does_the_same(
    async_client: skep.AsyncClient, client: skep.Client, sent: list[list[Ack]]
) -> None:
    await async_client.push("orders", [1, 2, 3])
    messages = await async_client.pop("orders", batch=10)

    assert {one.status for one in await async_client.ack(*messages)} == {DONE}
    assert sent == [[Ack(messages[0].lease_id)]]
    assert completed(client) == 3


def test_what_is_not_acked_stays_leased(client: skep.Client, sent: list[list[Ack]]) -> None:
    client.push("orders", [1, 2, 3, 4, 5])
    a, b, c, d, e = client.pop("orders", batch=5)
    lease = a.lease_id

    client.ack(b, a, d)
    client.ack(c, e)

    assert sent == [[Ack(lease, through_seq=b.seq), Ack(lease, d.seq)], [Ack(lease)]]
    assert completed(client) == 5


def test_what_failed_is_named_and_the_rest_goes_with_the_lease(client: skep.Client, sent: list[list[Ack]]) -> None:
    client.push("orders", [1, 2, 3])
    a, b, c = client.pop("orders", batch=3)
    b.reject(error="no")

    client.ack(a, c)

    assert sent == [[Ack(a.lease_id)]]
    [group] = client.stats("orders").groups
    assert (group.completed, group.dead) == (2, 1)


def test_what_the_server_may_not_have_heard_is_not_completed_with_the_lease(
    client: skep.Client, sent: list[list[Ack]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.push("orders", [1, 2, 3])
    a, b, c = client.pop("orders", batch=3)
    with monkeypatch.context() as patched:
        patched.setattr(skep.Client, "said", _away)
        with pytest.raises(skep.SkepError):
            a.reject(error="no")

    client.ack(b, c)

    assert sent == [[Ack(b.lease_id, b.seq), Ack(c.lease_id, c.seq)]]
    assert completed(client) == 2


def _away(*_: Any) -> Any:
    raise skep.SkepError(Code.STORE_UNAVAILABLE, "away")


def test_I6_a_lease_that_has_ended_is_refused_message_by_message(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    messages = client.pop("orders", batch=3)
    client.release(messages[0].lease_id)

    results = client.ack(*messages)

    assert [(one.seq, one.status, one.code) for one in results] == [
        (message.seq, SettleStatus.REFUSED, Code.STALE_LEASE) for message in messages
    ]
    assert {message.settled for message in messages} == {None}


def test_a_lease_is_acked_by_its_id(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    messages = client.pop("orders", batch=3)
    lease = messages[0].lease_id

    first, rest = client.ack_lease(lease, through_seq=messages[0].seq), client.ack_lease(lease)

    assert (first.messages, rest.messages, client.ack_lease(lease).repeated) == (1, 2, True)
    with pytest.raises(skep.SkepError) as refused:
        client.ack_lease(lease, through_seq=messages[1].seq)
    assert refused.value.code is Code.STALE_LEASE


def test_I15_a_transaction_acks_leases_and_pushes(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    messages = client.pop("orders", batch=3)

    with client.transaction() as transaction:
        transaction.ack(*messages)
        transaction.push("next", 1)

    assert transaction.committed is not None
    assert [one.seq for one in transaction.committed.results] == [message.seq for message in messages]
    assert {message.settled for message in messages} == {AckStatus.COMPLETED}
    assert (completed(client), len(client.pop("next"))) == (3, 1)


@pytest.fixture
def late() -> Iterator[tuple[skep.Client, list[skep.Message]]]:
    """Messages 2 to 4 of an unordered queue, under a lease that ran out. Another consumer has 2; 3 and 4 were never with anybody else."""
    clock = ManualClock()
    with running_server(clock=clock) as server, skep.Client(server.url) as client:
        client.configure("orders", ordering=Ordering.UNORDERED)
        client.push("orders", [1, 2])
        client.ack(*client.pop("orders"))
        client.push("orders", [3, 4])  # which run out apart from 2, as they came later
        messages = client.pop("orders", batch=3, lease_seconds=10)
        clock.advance(11)
        assert [one.seq for one in client.pop("orders")] == [2]
        yield client, messages


Told = list[tuple[int | None, SettleStatus, Code | None]]
REFUSED, STALE = SettleStatus.REFUSED, Code.STALE_LEASE


def told_of(results: Sequence[AckResult]) -> Told:
    return [(one.seq, one.status, one.code) for one in results]


def test_I6_of_a_lease_of_which_another_has_a_part_each_message_has_its_own_result(
    late: tuple[skep.Client, list[skep.Message]],
) -> None:
    client, messages = late

    assert told_of(client.ack(*messages)) == [(2, REFUSED, STALE), (3, DONE, None), (4, DONE, None)]
    assert [message.settled for message in messages] == [None, AckStatus.COMPLETED, AckStatus.COMPLETED]
    assert completed(client) == 3


def test_I6_acks_that_go_with_a_pop_say_nothing_certain_of_such_a_lease(
    late: tuple[skep.Client, list[skep.Message]],
) -> None:
    client, messages = late

    client.pop("orders", ack=messages)

    assert [message.settled for message in messages] == [None] * 3
    assert told_of(client.ack(*messages)) == [(2, REFUSED, STALE), (3, DONE, None), (4, DONE, None)]


def test_I15_a_transaction_with_a_message_that_another_has_does_not_commit(
    late: tuple[skep.Client, list[skep.Message]],
) -> None:
    client, messages = late

    transaction = client.transaction()
    transaction.ack(*messages)
    transaction.push("next", 1)

    with pytest.raises(skep.SkepError) as refused:
        transaction.commit()
    assert refused.value.code is Code.NOT_IN_LEASE
    assert completed(client) == 1
    assert [queue.name for queue in client.queues()] == ["orders"]


@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_worker_completes_a_batch_that_succeeded_by_its_lease(
    client: skep.Client, sent: list[list[Ack]], ordering: Ordering
) -> None:
    client.configure("orders", ordering=ordering)
    client.push("orders", list(range(20)))
    worker = skep.Worker(client)
    leases = set()

    @worker.on("orders", batch=20, ordered=ordering is not Ordering.UNORDERED, concurrency=20)
    async def handle(message: skep.AsyncMessage) -> None:
        leases.add(message.lease_id)

    assert worker.run(until_empty=True) == 20
    assert sent == [[Ack(lease) for lease in leases]]
    assert completed(client) == 20


def test_a_worker_acks_what_is_done_while_it_goes_on(client: skep.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the batch is not waited for, so that a crash repeats as little as it can."""
    client.push("orders", [1, 2, 3, 4])
    worker = skep.Worker(client)
    settle, told, done = skep.AsyncClient.settle, threading.Event(), []

    async def noted(self: skep.AsyncClient, acks: Sequence[Ack]) -> list[AckResult]:
        results = await settle(self, acks)
        told.set()
        return results

    monkeypatch.setattr(skep.AsyncClient, "settle", noted)

    @worker.on("orders", batch=4)
    def handle(message: skep.Message) -> None:
        if message.json() == 4:
            assert told.wait(60)
            done.append(completed(client))

    worker.run(until_empty=True)

    assert done[0] > 0
    assert completed(client) == 4


def test_a_worker_names_the_message_that_failed(client: skep.Client) -> None:
    client.configure("orders", ordering="unordered", max_attempts=1)
    client.push("orders", [1, 2, 3])
    worker = skep.Worker(client)

    @worker.on("orders", batch=3, ordered=False)
    async def handle(message: skep.AsyncMessage) -> None:
        if message.json() == 2:
            raise ValueError("no")

    worker.run(until_empty=True)

    [group] = client.stats("orders").groups
    assert (group.completed, group.dead) == (2, 1)


@pytest.mark.parametrize(
    ("left", "acked", "others", "wanted"),
    [
        ({1, 2, 3}, [1, 2, 3], [], [Ack("L")]),
        ({2, 3}, [3, 2], [], [Ack("L")]),
        ({1, 2, 3}, [1, 2], [], [Ack("L", through_seq=2)]),
        ({1, 2, 3}, [2, 3], [], [Ack("L", 2), Ack("L", 3)]),
        ({1, 2, 3}, [1], [], [Ack("L", 1)]),
        ({1}, [1], [], [Ack("L", 1)]),
        ({1, 2, 3}, [1, 3], [2], [Ack("L"), Ack("L", 2, AckStatus.FAILED)]),
        ({1, 2, 3, 4}, [1, 2], [4], [Ack("L", through_seq=2), Ack("L", 4, AckStatus.FAILED)]),
        (None, [1, 2, 3], [], [Ack("L", 1), Ack("L", 2), Ack("L", 3)]),
    ],
)
def test_acks_say_no_more_than_they_mean(
    left: set[int] | None, acked: list[int], others: list[int], wanted: list[Ack]
) -> None:
    acks = [Ack("L", seq) for seq in acked] + [Ack("L", seq, AckStatus.FAILED) for seq in others]

    short = shortened(acks, {} if left is None else {"L": left})

    assert short.sent == wanted
    told = [AckResult(None, DONE, messages=2) for _ in wanted]
    assert len(short.results(told)) == len(acks)


def test_a_message_reads_its_payload_and_headers_once(client: skep.Client) -> None:
    client.push("once", {"total": 10}, headers={"kind": "order"})
    client.push("once", b"\x00raw", content_type="application/octet-stream")
    first, second = client.pop("once", batch=2)

    assert first.known_payload is None
    assert first.known_headers is None
    assert (first.payload, first.headers) == (b'{"total":10}', {"kind": "order"})
    assert first.payload is first.payload
    assert first.headers is first.headers
    assert (second.payload, second.headers) == (b"\x00raw", {})
    assert (first.client, second.client) == (client, client)
    assert first.left is second.left
