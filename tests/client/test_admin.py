"""Looking around and managing with the client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TypeVar

import pyarrow as pa
import pytest

import skep
from skep.client.exchange import ApiCall, Request
from skep.client.log_calls import LogCalls
from skep.errors import Code
from skep.model import ClearScope, Ordering
from skep.wire.pipelines import RunReport, RunStatus
from skep.wire.staging import Attempt

T = TypeVar("T")
TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"


def test_a_queue_is_made_and_changed(client: skep.Client) -> None:
    made = client.configure("mails", ordering=Ordering.UNORDERED, lease_seconds=7)
    changed = client.queue("mails").configure(max_attempts=9)

    assert (made.settings.ordering, made.settings.lease_seconds) == (Ordering.UNORDERED, 7)
    assert (changed.settings.lease_seconds, changed.settings.max_attempts) == (7, 9)


def test_an_unknown_setting_is_refused(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError) as raised:
        client.configure("mails", lease_second=7)  # type: ignore[call-arg] # a typing mistake is what the test is about

    assert raised.value.code is Code.INVALID_SETTING


def test_all_queues_are_listed_over_several_pages(client: skep.Client) -> None:
    names = [f"queue-{number:03}" for number in range(101)]
    for name in names:
        client.configure(name, namespace="shop" if name == "queue-007" else None)

    assert [queue.name for queue in client.queues(stats=False)] == names
    assert [queue.name for queue in client.queues(namespace="shop")] == ["queue-007"]
    assert [(label.name, label.queues) for label in client.namespaces()] == [("shop", 1)]
    assert client.tasks() == []


def test_a_queues_figures_are_told(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    client.pop("orders", group="billing")

    detail = client.queue("orders").stats()

    assert (detail.stats.last_seq, detail.stats.in_flight) == (3, 1)
    assert [(group.consumer_group, group.lag) for group in detail.groups] == [("billing", 3)]
    assert client.overview().depth == 3
    assert client.status().totals.queues == 1
    assert [lease.consumer_group for lease in client.leases("orders")] == ["billing"]
    assert client.leases(expiring_within=1) == []


def test_a_paused_queue_hands_out_nothing(client: skep.Client) -> None:
    client.push("orders", [1])

    assert client.pause("orders").settings.paused
    assert client.pop("orders") == []
    assert not client.resume("orders").settings.paused
    assert len(client.pop("orders")) == 1


def test_a_queue_is_cleared_and_deleted(client: skep.Client) -> None:
    client.push("orders", [1, 2])

    assert client.clear("orders", dry_run=True).pending == 2
    assert client.clear("orders", ClearScope.ALL).pending == 2
    assert client.delete_queue("orders", dry_run=True).depth == 0
    assert [queue.name for queue in client.queues()] == ["orders"]
    client.queue("orders").delete()
    assert list(client.queues()) == []


def test_groups_are_listed_moved_and_forgotten(client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    client.pop("orders", group="billing", auto_ack=True, batch=3)

    assert client.seek("orders", "billing", 2, dry_run=True).to_seq == 1
    assert client.seek("orders", "billing", 2).pending == 2
    assert [message.json() for message in client.pop("orders", group="billing", batch=9)] == [2, 3]
    assert client.seek("orders", "billing", "end").pending == 0
    assert client.seek("orders", "billing", datetime(2000, 1, 1, tzinfo=UTC)).pending == 3
    assert [group.lag for group in client.groups("orders")] == [3]
    assert client.group("billing").lag == 3
    client.delete_group("orders", "billing")
    assert list(client.groups()) == []


def test_seeking_somewhere_unknown_is_refused(client: skep.Client) -> None:
    with pytest.raises(skep.SkepError, match="beginning, end, a time or a seq"):
        client.seek("orders", "billing", "middle")  # type: ignore[arg-type] # that is what is tested


def test_dead_letters_are_listed_replayed_and_purged(client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(n, partition=str(n)) for n in range(3)])
    for message in client.pop("orders", batch=3):
        message.reject(error=f"no {message.json()}")

    letters = list(client.dead_letters("orders"))
    assert sorted(letter.error or "" for letter in letters) == ["no 0", "no 1", "no 2"]
    assert [letter.error for letter in client.dead_letters("orders.dead", error="no 1")] == ["no 1"]
    assert client.dead_letter("orders", letters[0].id).seq == letters[0].seq
    assert client.replay("orders", error="no 1", dry_run=True).count == 1
    assert client.replay("orders", error="no 1").count == 1
    assert client.pop("orders")[0].json() == 1
    assert client.purge("orders", seqs=[letters[0].seq]).count == 1
    assert client.purge("orders").count == 1
    assert list(client.dead_letters("orders")) == []


def test_a_dead_letter_is_edited_and_replayed(client: skep.Client) -> None:
    client.push("orders", {"total": "10"}, partition="a")
    client.pop("orders")[0].reject(error="a total is a number")
    [letter] = client.dead_letters("orders")

    done = client.replay_edited("orders", letter.id, {"total": 10})

    [back] = client.pop("orders")
    assert (done.count, back.json(), back.partition) == (1, {"total": 10}, "a")
    assert list(client.dead_letters("orders")) == []


def test_messages_are_browsed_without_a_lease(client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(n, transaction_id=f"t-{n}") for n in range(101)], trace_id=TRACE)

    assert [message.seq for message in client.messages("orders")] == list(range(1, 102))
    assert next(iter(client.messages("orders", descending=True))).transaction_id == "t-100"
    assert bytes(client.message("orders", 5).payload) == b"4"
    assert client.message_pushed_as("orders", "t-7", partition="Default").seq == 8
    assert len(client.trace(TRACE)) == 101
    with pytest.raises(skep.SkepError) as raised:
        client.message("orders", 999)
    assert raised.value.code is Code.MESSAGE_NOT_FOUND


async def test_the_asynchronous_client_looks_around_alike(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1, 2])

    assert [queue.name async for queue in async_client.queues()] == ["orders"]
    assert [message.seq async for message in async_client.messages("orders")] == [1, 2]
    assert (await async_client.stats("orders")).stats.depth == 2


def test_a_reader_of_the_log_tells_its_progress(client: skep.Client) -> None:
    client.push("orders", [1, 2])

    told = client.report_progress("orders", "lake", 1)

    assert (told.external, told.progress_seq, told.lag) == (True, 1, 1)


def test_messages_are_forgotten_and_told_of(client: skep.Client) -> None:
    client.push("orders", list(range(6)))
    bounds = client.log_bounds("orders")

    would = client.forget("orders", [1, (3, 4)], dry_run=True)
    done = client.forget("orders", [1, (3, 4)], log=bounds.log)

    assert (would.dry_run, would.forgotten, done.messages, done.log) == (True, 3, 3, bounds.log)
    assert client.forget("orders", partition="Default").messages == 3
    told = [(one.first_seq, one.last_seq) for one in client.forgotten("orders")]
    assert told == [(1, 1), (3, 4), (2, 2), (5, 6)]
    assert [one.position for one in client.forgotten("orders", after=2)] == [3, 4]
    assert client.log_bounds("orders").forgotten == 4
    with pytest.raises(skep.SkepError) as refused:
        client.forget("orders", [1], log=1)
    assert refused.value.code == "LOG_REPLACED"


async def test_the_asynchronous_client_forgets_alike(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1, 2])

    assert (await async_client.forget("orders", [2])).messages == 1
    assert [one.first_seq async for one in async_client.forgotten("orders")] == [2]


def test_the_log_is_read_as_arrow(client: skep.Client) -> None:
    client.push("orders", [1, 22, 333], partition="a/b")
    client.push("orders", 4, partition="c")

    table = pa.ipc.open_stream(client.read_log("orders", 2, columns=["seq", "payload"], partitions=["a/b"])).read_all()
    bounds = client.log_bounds(
        "orders", after=3, wait_seconds=30, at=datetime(2000, 1, 1, tzinfo=UTC), first=1, max_bytes=3
    )

    assert table.to_pydict() == {"seq": [2, 3], "payload": [b"22", b"333"]}
    assert (bounds.first_seq, bounds.last_seq, bounds.at_seq, bounds.through_seq) == (1, 4, 1, 2)
    assert bounds.log == client.log_bounds("orders").log > 0
    assert len(client.read_log("orders", limit=1, compression="zstd")) > 0


def test_a_pop_as_arrow_leases_like_any_other(client: skep.Client) -> None:
    client.push("orders", {"n": 1})
    assert client.pop_arrow("orders", group="g", start="new") == b""
    client.push("orders", [{"n": number} for number in range(2, 5)])

    table = pa.ipc.open_stream(client.pop_arrow("orders", batch=10, group="g")).read_all()

    assert [json.loads(payload) for payload in table["payload"].to_pylist()] == [{"n": 2}, {"n": 3}, {"n": 4}]
    assert client.pop("orders", batch=10, group="g") == []
    (lease_id,) = set(table["lease_id"].to_pylist())
    client.release(lease_id)
    assert [message.attempt for message in client.pop("orders", batch=10, group="g")] == [2]


def test_messages_are_staged_and_published_once(client: skep.Client) -> None:
    rows = pa.record_batch({"payload": ["1", "2"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    stream = sink.getvalue().to_pybytes()

    client.stage("query/1", 0, 0, 4, stream, queue="orders")
    client.stage("query/1", 0, 0, 5, stream, queue="orders")
    client.abort_staging("query/1", 0, partition=0, attempt=4)
    assert [one.attempt for one in client.staging("query/1", 0).attempts] == [5]
    first = client.publish("query/1", 0, [Attempt(0, 5, 2)])

    assert client.publish("query/1", 0, [Attempt(0, 5, 2)]) == first
    assert (first.messages, client.staging("query/1", 0).published, client.log_bounds("orders").last_seq) == (
        2,
        True,
        2,
    )


class Unsent(LogCalls):
    """Keeps what would have been sent."""

    def run(self, call: ApiCall[T]) -> T:
        self.request: Request = call.request
        raise InterruptedError


def test_publishing_may_take_as_long_as_a_long_transaction_does() -> None:
    calls = Unsent()

    with pytest.raises(InterruptedError):
        calls.publish("query/1", 0, [Attempt(0, 5, 2)])
    assert calls.request.wait_seconds >= 600


def test_a_run_of_a_pipeline_tells_of_itself(client: skep.Client) -> None:
    client.put_run("archive/1", RunReport("archive", RunStatus.RUNNING, rows_in=5))
    told = client.put_run("archive/1", RunReport("archive", RunStatus.OK, rows_in=9, lag={"orders": 1}))

    assert client.pipeline_run("archive/1") == told
    assert [(run.id, run.report.rows_in) for run in client.pipeline_runs()] == [("archive/1", 9)]


def test_tables_are_read_as_arrow(client: skep.Client) -> None:
    client.push("orders", [1, 2])
    for message in client.pop("orders", batch=2):
        message.ack()

    leases = pa.ipc.open_stream(client.read_table("leases", "orders", after=0)).read_all()
    queues = pa.ipc.open_stream(client.read_table("queues", limit=1)).read_all()

    assert set(leases["queue"].to_pylist()) == {"orders"}
    assert queues["last_seq"].to_pylist() == [2]


def test_what_happened_to_a_message_is_told_of_its_trace(client: skep.Client) -> None:
    client.push("orders", {"n": 1}, trace_id=TRACE)
    [message] = client.pop("orders")

    message.trace("charged card", {"amount": 3})
    message.trace("sent mail")

    events = client.trace_events(TRACE)
    assert [(event.name, event.queue, event.message_id) for event in events] == [
        ("charged card", "orders", message.id), ("sent mail", "orders", message.id),
    ]  # fmt: skip
    assert [name.name for name in client.trace_names()] == ["charged card", "sent mail"]
    assert [bytes(event.data) for event in client.traces_by_name("charged card")] == [b'{"amount":3}']


def test_a_message_is_deleted_for_all_groups(client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(n, transaction_id=f"t-{n}", partition="p") for n in range(4)])
    [held] = client.pop("orders", group="billing")

    would = client.delete_message("orders", 1, dry_run=True)
    did = client.delete_message("orders", 1, message_id=would.id)
    by_transaction_id = client.delete_message_pushed_as("orders", "t-1", partition="p")

    assert (would.dry_run, did.consumer_groups, did.leases_ended) == (True, ["billing"], 1)
    assert by_transaction_id.seq == 2
    with pytest.raises(skep.SkepError) as late:
        held.ack()
    assert late.value.code is Code.STALE_LEASE
    again = client.pop("orders", group="billing", batch=9)
    assert [message.json() for message in again] == [2, 3]
    for message in again:
        message.ack()
    with pytest.raises(skep.SkepError) as settled:
        client.delete_message("orders", 3)
    assert settled.value.code is Code.MESSAGE_SETTLED


async def test_the_asynchronous_client_deletes_a_message_alike(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1, 2], transaction_id=None)

    assert (await async_client.delete_message("orders", 1)).seq == 1
    assert [message.seq async for message in async_client.messages("orders")] == [2]
