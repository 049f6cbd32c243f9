"""Moving and seeing messages by the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import skep
from tests.cli.command import Command


def test_a_payload_is_pushed_once_however_often_it_is_said(command: Command, client: skep.Client) -> None:
    arguments = (
        "push", "orders", '{"total": 10}', "--partition", "c-1", "--transaction-id", "order-1",
        "--header", "kind=test", "--trace-id", "0199a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b",
    )  # fmt: skip
    first, second = command(*arguments).json(), command(*arguments).json()
    assert (first["status"], second["status"]) == ("stored", "duplicate")
    assert first["message_id"] == second["message_id"]
    [message] = client.pop("orders", batch=10)
    assert (message.json(), message.partition, message.headers) == ({"total": 10}, "c-1", {"kind": "test"})
    assert message.trace_id == "0199a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b"


def test_a_pop_of_a_paused_queue_says_that_it_is_paused(command: Command, client: skep.Client) -> None:
    client.push("orders", {})
    assert "nothing to pop" in command("pop", "orders", "--partition", "elsewhere").err
    client.pause("orders")
    done = command("pop", "orders")
    assert done.code == 4
    assert "paused" in done.err
    assert "skep queue resume" in done.err


def test_a_file_is_one_payload(command: Command, client: skep.Client, tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(b"\x00\x01\n\xff")
    assert command("push", "pictures", "--file", str(file), "--content-type", "image/x").code == 0
    [message] = client.pop("pictures")
    assert (message.payload, message.content_type) == (b"\x00\x01\n\xff", "image/x")


def test_every_line_of_stdin_is_a_payload(command: Command, client: skep.Client) -> None:
    lines = "".join(f'{{"number": {number}}}\n' for number in range(1_234)) + '\n  \n{"number": 1234}'
    counts = command("push", "orders", "--batch", "100", stdin=lines).json()
    assert counts == {"pushed": 1_235, "stored": 1_235, "scheduled": 0, "duplicates": 0, "queued": 0, "buffered": 0}
    numbers = [message.json()["number"] for message in client.pop("orders", batch=2_000)]
    assert numbers == list(range(1_235))


def test_lines_may_be_whole_items(command: Command, client: skep.Client) -> None:
    items = [
        {"queue": "a", "payload": 1, "transactionId": "x", "partition": "p", "headers": {"k": "v"}, "task": "t"},
        {"queue": "a", "payload": 1, "transactionId": "x", "partition": "p"},
        {"payload": "aGk=", "contentType": "text/plain"},
    ]
    counts = command("push", "b", "--items", stdin="".join(json.dumps(item) + "\n" for item in items)).json()
    assert (counts["stored"], counts["duplicates"]) == (2, 1)
    assert client.stats("a").settings.task == "t"
    [first], [second] = client.pop("a", batch=9), client.pop("b", batch=9)
    assert (first.payload, first.partition, first.headers) == (b"1", "p", {"k": "v"})
    assert (second.payload, second.content_type) == (b"hi", "text/plain")


def test_a_bad_line_is_named_and_nothing_of_its_batch_is_pushed(command: Command, client: skep.Client) -> None:
    ended = command("push", "orders", "--batch", "2", stdin="1\n2\n3\nnope\n")
    assert ended.code == 1
    assert ended.err.startswith("skep: INVALID_PAYLOAD: Line 4 is not JSON")
    assert ended.err.endswith(" Pushed before: 2.\n")
    assert [message.json() for message in client.pop("orders", batch=9)] == [1, 2]


def test_what_is_popped_can_be_settled_by_what_was_printed(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2], partition="p")
    one, two = command("pop", "orders", "--batch", "5", "--group", "g", "-o", "ndjson").lines()
    assert (one["payload"], two["payload"], one["attempt"]) == (1, 2, 1)
    [acked] = command("ack", one["leaseId"], str(one["seq"])).json()
    assert acked["status"] == "completed"
    [failed] = command("ack", two["leaseId"], str(two["seq"]), "--status", "dlq", "--error", "no good").json()
    assert (failed["status"], failed["deadLetterQueue"]) == ("dead", "orders.dead")
    [again] = command("ack", one["leaseId"], str(one["seq"])).json()
    assert (again["status"], again["repeated"]) == ("completed", True)
    stale = command("ack", one["leaseId"], str(one["seq"]), "--status", "dlq")
    assert stale.code == 1
    assert "STALE_LEASE" in stale.err
    assert json.loads(stale.out)[0]["status"] == "refused"


def test_a_lease_is_completed_as_a_whole_or_up_to_a_seq(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2, 3, 4, 5], partition="p")
    popped = command("pop", "orders", "--batch", "5", "-o", "ndjson").lines()
    lease = popped[0]["leaseId"]
    [first] = command("ack", lease, "--through", str(popped[1]["seq"])).json()
    [rest] = command("ack", lease, "--whole").json()
    assert [(one["status"], one["messages"]) for one in (first, rest)] == [("completed", 2), ("completed", 3)]
    assert client.stats("orders").groups[0].completed == 5
    stale = command("ack", lease, "--through", str(popped[0]["seq"]))
    assert stale.code == 1
    assert "STALE_LEASE: The lease was not settled" in stale.err


@pytest.mark.parametrize(
    "said", [(), ("1", "--whole"), ("--whole", "--through", "1"), ("--whole", "--status", "dlq"), ("--through", "1", "--error", "no")]
)  # fmt: skip
def test_an_ack_says_what_it_is_of_in_one_way(command: Command, said: tuple[str, ...]) -> None:
    ended = command("ack", "LEASE", *said)
    assert ended.code == 1
    assert ended.err.startswith("skep: INVALID_REQUEST: ")


def test_pop_acks_what_it_printed_and_says_when_there_is_nothing(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2])
    assert len(command("pop", "orders", "--ack", "--batch", "5").json()) == 2
    [group] = client.stats("orders").groups
    assert (group.completed, group.in_flight) == (2, 0)
    ended = command("pop", "orders")
    assert (ended.code, ended.out) == (4, "")


def test_tail_shows_what_is_pushed_without_leasing_it_and_ctrl_c_ends_it_well(
    command: Command, client: skep.Client
) -> None:
    client.push("orders", "before", partition="p")
    process = command.started("tail", "orders", "--from", "beginning", "--partition", "p")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert json.loads(process.stdout.readline())["payload"] == "before"
        client.push("orders", "elsewhere", partition="q")
        client.push("orders", "after", partition="p")
        assert json.loads(process.stdout.readline())["payload"] == "after"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
    assert client.stats("orders").groups == []


@pytest.mark.slow
def test_tail_starts_where_it_is_told(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    told = {
        place: [line["payload"] for line in command("tail", "orders", "--from", place, "--no-follow").lines()]
        for place in ("beginning", "end", "2", "1h")
    }
    assert told == {"beginning": [1, 2, 3], "end": [], "2": [2, 3], "1h": [1, 2, 3]}
    assert command("tail", "nope", "--no-follow").code == 4


def test_messages_are_listed_and_shown(command: Command, client: skep.Client) -> None:
    client.push("orders", {"n": 1}, partition="p", transaction_id="t-1")
    [other] = client.push("orders", {"n": 2}).messages
    client.pop("orders", group="g", partition="p")
    listed = command("message", "list", "orders", "--group", "g").json()
    assert [(one["payload"]["n"], one["state"]) for one in listed] == [(1, "in_flight"), (2, "pending")]
    newest = command("message", "list", "orders", "--newest-first", "--limit", "1").json()
    assert [one["seq"] for one in newest] == [2]
    assert command("message", "show", "orders", "2").json()["payload"] == {"n": 2}
    by_name = command("message", "show", "orders", "--transaction-id", "t-1", "--partition", "p").json()
    assert by_name["seq"] == 1
    assert command("message", "show", "orders", "9").code == 4
    assert [one["seq"] for one in command("trace", other.trace_id or "").json()] == [2]
    assert command("trace", "0199a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5c").code == 4


def test_a_message_is_found_by_its_transaction_id_in_whichever_partition_it_is(
    command: Command, client: skep.Client
) -> None:
    client.push("orders", {"n": 1}, partition="customer-1", transaction_id="order-1")
    client.push("orders", {"n": 2}, partition="customer-2", transaction_id="order-2", delay=3600)

    assert command("message", "show", "orders", "--transaction-id", "order-1").json()["partition"] == "customer-1"
    assert command("message", "show", "orders", "--transaction-id", "order-2").json()["payload"] == {"n": 2}

    missing = command("message", "show", "orders", "--transaction-id", "nope")
    assert (missing.code, "no message with the transaction id 'nope' in 'orders'" in missing.err) == (4, True)
    assert "--transaction-id order-1" in command("message", "show", "orders", "order-1").err
    assert "--transaction-id order-1" in command("trace", "order-1").err


def test_a_message_is_shown_with_its_attempts_and_their_errors(command: Command, client: skep.Client) -> None:
    client.push("orders", {"n": 1})
    [message] = client.pop("orders")
    message.nack(error="ValueError: no\nTraceback: line 3")

    told = command("message", "show", "orders", "1").json()
    table = command("message", "show", "orders", "1", "--output", "table")

    assert [(one["attempt"], one["outcome"]) for one in told["attempts"]] == [(1, "retried")]
    assert told["attempts"][0]["error"] == "ValueError: no\nTraceback: line 3"
    assert told["payload"] == {"n": 1}
    assert "Traceback: line 3" in table.out


def test_leases_are_listed_with_who_holds_them(command: Command, client: skep.Client) -> None:
    client.push("orders", {"n": 1})
    client.pop("orders")

    [lease] = command("lease", "list", "orders").json()
    assert (lease["queue"], lease["messages"], lease["firstSeq"], lease["lastSeq"]) == ("orders", 1, 1, 1)
    assert command("lease", "list", "nosuch").json() == []


def test_a_message_is_deleted_after_a_question(command: Command, client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(n, transaction_id=f"t-{n}") for n in range(3)])
    client.pop("orders")

    would = command("message", "delete", "orders", "1", "--dry-run")
    assert (would.json()["dryRun"], would.json()["leasesEnded"]) == (True, 1)
    unasked = command("message", "delete", "orders", "1")
    assert (unasked.code, "This deletes message 1 of 'orders'" in unasked.err) == (1, True)
    assert [one.seq for one in client.messages("orders")] == [1, 2, 3]
    agreed = command.on_terminal("message", "delete", "orders", "1", typed="y\n")
    assert "deleted message 1 of 'orders', unsettled in 1 group, 1 lease held it" in agreed.out
    assert command("message", "delete", "orders", "--transaction-id", "t-1", "--yes").json()["seq"] == 2
    assert [one.seq for one in client.messages("orders")] == [3]
    assert command("message", "delete", "orders", "1", "--yes").code == 4
    assert command("message", "delete", "orders", "--yes").code == 1


def test_messages_are_forgotten_after_a_question(command: Command, client: skep.Client) -> None:
    client.push("orders", [skep.NewMessage(n) for n in range(8)])
    client.push("orders", [skep.NewMessage(8)], partition="ann")
    [message, *_] = client.pop("orders", batch=1)
    message.reject(error="no good")

    would = command("message", "forget", "orders", "1", "3-5", "--dry-run")
    assert (would.json()["dryRun"], would.json()["forgotten"]) == (True, 5)
    unasked = command("message", "forget", "orders", "1", "3-5")
    assert (unasked.code, "4 messages, 1 dead letter of queue 'orders', for good" in unasked.err) == (1, True)
    assert len(list(client.messages("orders"))) == 9
    agreed = command.on_terminal("message", "forget", "orders", "1", "3-5", typed="y\n")
    assert "erased 4 messages, 1 dead letter of queue 'orders'" in agreed.out
    assert command("message", "forget", "orders", "--partition", "ann", "--yes").json()["messages"] == 1
    assert [one.seq for one in client.messages("orders")] == [2, 6, 7, 8]
    assert "no message of queue 'orders'" in command("message", "forget", "orders", "1", "--yes", "-o", "table").out
    for wrong in (["orders"], ["orders", "1-"], ["orders", "x"], ["orders", "99"]):
        assert command("message", "forget", *wrong, "--yes").code == 1
    assert command("message", "forget", "none", "1", "--yes").code == 4
