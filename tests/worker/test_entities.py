"""Commands of the built-in entity store: events, state, receipt and ack in one transaction, each message once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import skep
from skep.entities import compile_entities, encoded, fold
from skep.model import DeadReason
from skep.worker.working import Working, WorkOptions
from tests.worker.killing import Relay
from tests.worker.place import Place

ACCOUNTS = """
app Accounts {
  queue Deposits {
    message_type {
      account: string
      cents: int
      owner: string?
    }
    key: account
    map_to: command Account.Deposit {
      account: account
      cents: cents
      owner: owner
    }
    then: queue Receipts when (cents > 100) {
      account: account
      version: int(result.version)
    }
  }
  queue Receipts {
    retention {
      max_depth: 100000
    }
  }
  entity Account {
    id: input.account
    state {
      owner: string = ""
      cents: int = 0
      deposits: int = 0
    }
    command Deposit {
      input {
        account: string
        cents: int
        owner: string?
      }
      guard: input.cents > 0
      emits Opened when (state.deposits == 0) {
        owner: input.owner != null ? input.owner : "nobody"
      }
      emits Deposited {
        cents: input.cents
        at: now
      }
    }
    event Opened {
      owner: event.owner
    }
    event Deposited {
      cents: state.cents + event.cents
      deposits: state.deposits + 1
    }
  }
}
"""


def entity(place: Place, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = place.client.request("GET", f"/api/v1/entities/Account/{id_}")
    return found


def events(place: Place, id_: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query = {"limit": "1000"}
    while True:
        page = place.client.request("GET", f"/api/v1/entities/Account/{id_}/events", query=query)
        found += page["events"]
        if page["after"] is None:
            return found
        query["after"] = str(page["after"])


def assert_sound(place: Place, app: skep.App, id_: str) -> dict[str, Any]:
    """State = fold(events), version = their number, each message caused its events once."""
    one, log = entity(place, id_), events(place, id_)
    compiled = compile_entities(app.spec)["Account"]
    again = fold(compiled, [(event["name"], event["data"]) for event in log])
    assert msgspec.json.decode(encoded(again)) == one["state"]
    assert one["version"] == len(log)
    assert [event["number"] for event in log] == list(range(1, len(log) + 1))
    causes = [event["cause"] for event in log if event["name"] == "Deposited"]
    assert len(causes) == len(set(causes))
    return one


async def test_a_command_leaves_events_state_receipt_and_what_follows(place: Place) -> None:
    app = place.app(ACCOUNTS)
    pushed = place.client.push("Deposits", {"account": "a-1", "cents": 500, "owner": "Ann"})
    assert await place.work(app, at_least=1) == 1
    assert assert_sound(place, app, "a-1")["state"] == {"owner": "Ann", "cents": 500, "deposits": 1}
    assert [event["name"] for event in events(place, "a-1")] == ["Opened", "Deposited"]
    message = pushed.messages[0].message_id
    assert {event["cause"] for event in events(place, "a-1")} == {message}
    read = place.client.request(
        "POST", "/api/v1/entities/read", body={"receipts": [{"scope": "command", "key": message}]}
    )
    answer = read["receipts"][0]["answer"]
    assert (answer["entity"], answer["id"], answer["version"]) == ("Account", "a-1", 2)
    assert place.payloads("Receipts") == [{"account": "a-1", "version": 2}]
    assert place.depth("Deposits") == 0


async def test_messages_of_one_batch_build_on_each_other_whatever_their_partitions(place: Place) -> None:
    app = place.app(ACCOUNTS)
    for number in range(30):
        place.client.push(
            "Deposits",
            [{"account": f"a-{number % 3}", "cents": 10}, {"account": "a-0", "cents": -1}],
            partition=f"p{number % 7}",
        )
    assert await place.work(app, at_least=60) == 60
    assert [assert_sound(place, app, f"a-{n}")["state"]["cents"] for n in range(3)] == [100, 100, 100]
    letters = place.dead("Deposits")
    assert len(letters) == 30
    assert {letter.reason for letter in letters} == {DeadReason.REJECTED}
    assert (letters[0].error or "").startswith(
        "GUARD_REJECTED: the guard of Account.Deposit does not hold for 'a-0': `input.cents > 0`; input {'account': 'a-0', "
    )
    assert letters[0].attempts == 1


async def test_a_message_that_was_done_already_changes_nothing_and_is_acked(place: Place) -> None:
    app = place.app(ACCOUNTS)
    place.client.push("Deposits", [{"account": "a-1", "cents": 500}, {"account": "a-2", "cents": 7}])
    assert await place.work(app, at_least=2) == 2
    before = [entity(place, "a-1"), entity(place, "a-2")]
    # The group goes back to the beginning: every message comes again, with the id it has.
    place.client.seek("Deposits", "__QUEUE_MODE__", "beginning")
    place.client.push("Deposits", {"account": "a-1", "cents": 1})
    assert await place.work(app, at_least=3) == 3
    assert entity(place, "a-2") == before[1]
    assert assert_sound(place, app, "a-1")["state"]["cents"] == 501
    assert len(place.payloads("Receipts")) == 1
    assert place.depth("Deposits") == 0


async def test_a_transaction_whose_answer_is_lost_is_done_once(place: Place) -> None:
    app = place.app(ACCOUNTS)
    place.client.push("Deposits", [{"account": f"a-{n % 2}", "cents": 500} for n in range(10)])
    relay = Relay(place.url, wanted=1, answered=True, kill=lambda: None, path="/transaction")
    settings = msgspec.structs.replace(place.client.settings, urls=(await relay.start(),))
    await Working(app.spec, app.functions, settings, WorkOptions(until_empty=True)).run()
    await relay.stop()
    assert relay.requests.count("POST /api/v1/transaction") >= 2
    assert [assert_sound(place, app, f"a-{n}")["state"]["cents"] for n in range(2)] == [2500, 2500]
    assert (len(place.payloads("Receipts")), place.depth("Deposits"), place.dead("Deposits")) == (10, 0, [])


async def test_workers_side_by_side_on_the_same_entities_lose_and_double_nothing(place: Place) -> None:
    app = place.app(ACCOUNTS.replace("key: account", "concurrency: 3\n    batch: 20"))
    for number in range(20):
        place.client.push(
            "Deposits", [{"account": f"a-{n % 3}", "cents": 1} for n in range(15)], partition=f"p{number}"
        )
    done = await asyncio.gather(*(place.work(app) for _ in range(3)))
    assert sum(done) >= 300
    assert [assert_sound(place, app, f"a-{n}")["state"]["cents"] for n in range(3)] == [100, 100, 100]
    assert (place.depth("Deposits"), place.dead("Deposits")) == (0, [])


async def test_a_message_that_cannot_be_committed_hinders_no_other(place: Place) -> None:
    app = place.app(ACCOUNTS.replace("max_depth: 100000", "max_depth: 2"))
    place.client.push("Deposits", [{"account": f"a-{n}", "cents": 1000} for n in range(3)], partition="one")
    place.client.push("Deposits", [{"account": f"b-{n}", "cents": 1} for n in range(3)], partition="two")
    await place.work(app)
    # Two follow, for the third there is no room: it comes again later, in its place.
    assert [assert_sound(place, app, f"b-{n}")["state"]["cents"] for n in range(3)] == [1, 1, 1]
    assert [assert_sound(place, app, f"a-{n}")["state"]["cents"] for n in range(2)] == [1000, 1000]
    assert len(place.payloads("Receipts")) == 2
    assert place.depth("Deposits") == 1
    with pytest.raises(skep.SkepError, match="ENTITY_NOT_FOUND"):
        entity(place, "a-2")


async def test_thousands_of_messages_are_processed_once_each(place: Place) -> None:
    """Ten thousand of them go all the way from webhooks in tests/webhooks/test_load.py."""
    app = place.app(ACCOUNTS)
    count, accounts = 3_000, 500
    for start in range(0, count, 1_000):
        numbers = range(start, start + 1_000)
        place.client.push(
            "Deposits",
            [
                skep.NewMessage({"account": f"a-{n % accounts}", "cents": n % 90 + 1}, partition=f"a-{n % accounts}")
                for n in numbers
            ],
        )
    assert await place.work(app, at_least=count) == count
    total = sum(n % 90 + 1 for n in range(count))
    found: list[dict[str, Any]] = []
    query = {"limit": "1000"}
    while True:
        page = place.client.request("GET", "/api/v1/entities/Account", query=query)
        found += page["entities"]
        if page["after"] is None:
            break
        query["after"] = page["after"]
    assert len(found) == accounts
    assert sum(one["state"]["cents"] for one in found) == total
    assert sum(one["state"]["deposits"] for one in found) == count
    assert sum(one["version"] for one in found) == count + accounts
    for number in (0, 17, accounts - 1):
        assert_sound(place, app, f"a-{number}")
    assert (place.depth("Deposits"), place.dead("Deposits")) == (0, [])
