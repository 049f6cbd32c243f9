"""Queues, groups and dead letters by the command line."""

from __future__ import annotations

import json

import pytest

import skep
from tests.cli.command import Command


def test_a_queue_lives_by_the_command_line(command: Command, client: skep.Client) -> None:
    made = command("queue", "create", "orders", "--max-attempts", "5", "--lease-seconds", "60").json()
    assert (made["settings"]["max_attempts"], made["settings"]["lease_seconds"]) == (5, 60)
    assert command("queue", "create", "orders").code == 1
    changed = command("queue", "update", "orders", "--namespace", "shop", "--reset", "max-attempts").json()
    assert (changed["settings"]["namespace"], changed["settings"]["max_attempts"]) == ("shop", 3)
    assert changed["settings"]["lease_seconds"] == 60
    assert command("queue", "update", "nope", "--paused").code == 4
    assert command("queue", "pause", "orders").json()["settings"]["paused"] is True
    assert command("queue", "resume", "orders").json()["settings"]["paused"] is False
    client.configure("other")
    assert [one["name"] for one in command("queue", "list").json()] == ["orders", "other"]
    assert [one["name"] for one in command("queue", "list", "--namespace", "shop", "-o", "ndjson").lines()] == [
        "orders"
    ]
    assert command("queue", "show", "orders").json()["stats"]["depth"] == 0


def test_a_queue_says_which_dead_letter_queue_it_has_or_that_it_has_none(command: Command, client: skep.Client) -> None:
    client.configure("usual")
    client.configure("careless", dead_letter_queue="none")
    client.configure("shared", dead_letter_queue="graves")

    for queue, said in (
        ("usual", "usual.dead (the default)"),
        ("careless", "none (dead letters are discarded)"),
        ("shared", "graves"),
    ):
        shown = command("queue", "show", queue, "-o", "table").out
        [line] = [line for line in shown.splitlines() if "dead_letter_queue" in line]
        assert line.split(maxsplit=1)[1].strip() == said


def test_a_queue_says_what_waits_for_the_archive(command: Command, client: skep.Client) -> None:
    def told() -> str:
        shown = command("queue", "show", "orders", "-o", "table").out
        [line] = [line for line in shown.splitlines() if "not archived" in line]
        return line.split("not archived")[1].strip()

    client.configure("orders", retention_requires_archive=True)
    assert told() == "nothing; no archive has reported yet"
    client.push("orders", [1, 2])
    assert told().startswith("2 messages, the oldest ")
    assert told().endswith(" old; no archive has reported yet")
    client.report_progress("orders", "lake", 2, archived=True)
    assert told() == "nothing; archived to seq 2"


def buried(client: skep.Client, count: int) -> None:
    """A queue with a group, with so many dead letters, one message pending and one in flight."""
    client.configure("orders", max_attempts=1)
    client.push("orders", [{"n": number} for number in range(count)], partition="dying")
    for _ in range(count):
        [message] = client.pop("orders", group="g")
        message.reject(error="no good")
    client.push("orders", [1], partition="a")
    client.push("orders", [1], partition="b")
    assert len(client.pop("orders", group="g")) == 1


DESTRUCTIVE = [
    (("queue", "delete", "orders"), "with 2 unsettled messages (1 in flight, 0 scheduled) and 1 group"),
    (("queue", "clear", "orders"), "1 message"),
    (("group", "seek", "orders", "g", "end"), "1 in flight lose their lease"),
    (("group", "delete", "orders", "g"), "1 pending and 1 in flight"),
    (("dlq", "replay", "orders"), "2 dead letters"),
    (("dlq", "purge", "orders"), "2 dead letters"),
]


@pytest.mark.parametrize(("arguments", "count"), DESTRUCTIVE, ids=lambda value: " ".join(value[:2]))
def test_what_takes_something_away_says_how_much_and_asks(
    command: Command, client: skep.Client, arguments: tuple[str, ...], count: str
) -> None:
    buried(client, 2)
    before = _state(client)

    refused = command(*arguments)
    assert refused.code == 1
    assert count in refused.err
    assert "--yes" in refused.err
    assert command(*arguments, "--dry-run").json()["dryRun"] is True
    declined = command.on_terminal(*arguments, typed="n\n")
    assert declined.code == 1
    assert count in declined.out
    assert _state(client) == before

    agreed = command.on_terminal(*arguments, typed="y\n")
    assert agreed.code == 0, agreed.out
    assert _state(client) != before


def _state(client: skep.Client) -> str:
    """All that these commands could change."""
    names = [queue.name for queue in client.queues(stats=False)]
    groups = [(g.queue, g.consumer_group, g.progress_seq, g.pending, g.in_flight) for g in client.groups()]
    letters = [letter.seq for name in names if name.endswith(".dead") for letter in client.dead_letters(name)]
    return json.dumps([names, groups, letters])


def test_yes_asks_nobody(command: Command, client: skep.Client) -> None:
    buried(client, 2)
    ended = command("queue", "clear", "orders", "--scope", "all", "--yes")
    assert ended.json()["pending"] == 2
    assert command("queue", "delete", "orders", "--yes").code == 0
    assert command("queue", "show", "orders").code == 4


def test_dead_letters_are_listed_shown_replayed_and_purged(command: Command, client: skep.Client) -> None:
    buried(client, 3)
    listed = command("dlq", "list", "orders", "--reason", "rejected", "--since", "1h").json()
    assert [(one["payload"]["n"], one["error"]) for one in listed] == [(0, "no good"), (1, "no good"), (2, "no good")]
    assert command("dlq", "list", "orders", "--error", "something else").json() == []
    shown = command("dlq", "show", "orders", str(listed[0]["seq"])).json()
    assert shown["id"] == listed[0]["id"]
    done = command("dlq", "replay", "orders", str(listed[1]["seq"]), "--yes").json()
    assert (done["count"], done["replayed"][0]["deadSeq"]) == (1, listed[1]["seq"])
    [again] = command("dlq", "replays", "orders").json()
    assert (again["deadSeq"], again["error"], again["replayResult"]) == (listed[1]["seq"], "no good", "pending")
    assert command("dlq", "purge", "orders", listed[0]["id"], "--yes").json()["count"] == 1
    assert [one["seq"] for one in command("dlq", "list", "orders").json()] == [listed[2]["seq"]]
    assert command("dlq", "purge", "orders", "--until", "1h", "--yes").code == 4


def test_a_dead_letter_is_edited_and_replayed(command: Command, client: skep.Client) -> None:
    buried(client, 2)
    first, second = command("dlq", "list", "orders").json()
    edit = ("--payload", '{"mended": true}', "--yes")

    done = command("dlq", "replay", "orders", str(first["seq"]), *edit).json()

    assert (done["count"], done["replayed"][0]["deadSeq"]) == (1, first["seq"])
    [back] = client.pop("orders", group="g", partition="dying")
    assert back.json() == {"mended": True}
    for wrong in ((), (second["id"], first["id"]), (second["id"], "--reason", "rejected")):
        refused = command("dlq", "replay", "orders", *wrong, *edit)
        assert (refused.code, "goes with one dead letter" in refused.err) == (1, True)
    assert "--payload is not JSON" in command("dlq", "replay", "orders", second["id"], "--payload", "{", "--yes").err
    assert [one["seq"] for one in command("dlq", "list", "orders").json()] == [second["seq"]]


def test_many_dead_letters_go_back_in_order(command: Command, client: skep.Client) -> None:
    client.configure("orders", ordering="unordered")
    client.push("orders", list(range(1_203)))
    client.reject(*client.pop("orders", batch=2_000))
    done = command("dlq", "replay", "orders", "--yes").json()
    assert done["count"] == 1_203
    assert [message.json() for message in client.pop("orders", batch=2_000)] == list(range(1_203))
    assert list(client.dead_letters("orders")) == []


def test_the_traceback_of_a_dead_letter_keeps_its_lines(command: Command, client: skep.Client) -> None:
    client.push("orders", 1)
    client.pop("orders")[0].reject(error="ValueError: no total\n\nTraceback:\n  File \x1b[31m")

    lines = [line.strip() for line in command("dlq", "show", "orders", "1", "-o", "table").out.splitlines()]

    start = lines.index(next(line for line in lines if line.endswith("ValueError: no total")))
    assert lines[start + 1 : start + 4] == ["", "Traceback:", "File \ufffd[31m"]


def test_a_place_that_is_none_is_told_with_all_that_are_one(command: Command, client: skep.Client) -> None:
    client.push("orders", 1)

    refused = command("group", "seek", "orders", "g", "begining", "--yes")

    assert refused.code == 1
    assert "A place in a log is beginning, end, a seq, a time such as" in refused.err


def test_a_group_is_moved_to_where_it_is_told(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])
    assert command("group", "seek", "orders", "g", "2", "--yes").json()["pending"] == 2
    assert [message.json() for message in client.pop("orders", group="g", batch=9)] == [2, 3]
    [listed] = command("group", "list", "--queue", "orders").json()
    assert (listed["consumerGroup"], listed["pushed"], listed["inFlight"]) == ("g", 2, 2)
    assert command("group", "delete", "orders", "nope", "--yes").code == 4


def test_a_seek_says_when_it_makes_the_group(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2, 3])

    would = command("group", "seek", "orders", "typo", "end", "--dry-run", "-o", "table").out
    made = command("group", "seek", "orders", "g", "end", "--yes", "-o", "table").out
    moved = command("group", "seek", "orders", "g", "beginning", "--yes", "-o", "table").out

    assert would.strip() == "would make group 'typo' of queue 'orders', which is not there, at seq 3"
    assert made.strip() == "made group 'g' of queue 'orders', which is not there, at seq 3"
    assert moved.strip() == "moved group 'g' of queue 'orders' from seq 3 to 0"


def test_a_partition_is_taken_from_a_consumer_that_hangs(command: Command, client: skep.Client) -> None:
    client.push("orders", 1, partition="customer-1")
    client.pop("orders", group="billing")
    assert client.pop("orders", group="billing") == []

    released = command("lease", "release", "orders", "billing", "customer-1").json()

    assert released["released"] == 1
    [again] = client.pop("orders", group="billing")
    assert again.attempt == 2
    assert command("lease", "release", "orders", "billing", "nobody").code == 4


def test_lag_shows_who_is_furthest_behind_first(command: Command, client: skep.Client) -> None:
    client.push("a", [1, 2, 3])
    client.push("b", [1])
    for queue in ("a", "b"):
        client.pop(queue, group="g")
    assert [(one["queue"], one["lag"]) for one in command("lag").json()] == [("a", 3), ("b", 1)]
    assert [one["queue"] for one in command("lag", "--above", "2", "--group", "g").json()] == ["a"]


def test_stats_are_of_all_or_of_one(command: Command, client: skep.Client) -> None:
    client.push("orders", [1, 2])
    client.pop("orders", group="g")
    assert command("stats").json()["totals"]["depth"] == 2
    [group] = command("stats", "orders").json()["groups"]
    assert (group["pushed"], group["pending"], group["inFlight"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("queue", "list"), ["queue", "depth", "orders", "orders.dead"]),
        (("queue", "show", "orders"), ["max_attempts", "lease_seconds", "300", "completed"]),
        (("group", "list"), ["group", "pushed", "g", "last used", "ago", "holds"]),
        (("dlq", "list", "orders"), ["no good", '{"n":0}', "rejected"]),
        (("dlq", "show", "orders", "1"), ["source queue", "orders", "no good"]),
        (("message", "list", "orders", "--group", "g"), ["in_flight", '{"n":0}']),
        (("message", "show", "orders", "1"), ["partition", "dying", '{"n":0}']),
        (("lag",), ["lag", "orders", "last used", "ago", "holds"]),
        (("stats",), ["queues", "nothing needs attention"]),
        (("stats", "orders"), ["depth", "completed", "g"]),
        (("pop", "orders", "--group", "g"), ["attempt", "payload", "skep ack "]),
        (("tail", "orders", "--from", "1", "--no-follow"), ["dying", '{"n":0}']),
        (("push", "orders", "1"), ["stored as seq 5"]),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_on_a_terminal_it_is_made_for_people(
    command: Command, client: skep.Client, arguments: tuple[str, ...], shown: list[str]
) -> None:
    buried(client, 2)
    ended = command.on_terminal(*arguments)
    assert ended.code == 0, ended.out
    assert [part for part in shown if part not in ended.out] == [], ended.out
    assert '"queue"' not in ended.out
