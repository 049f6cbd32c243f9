"""How messages flow through a worker: what follows, rate limits, fair shares, and a stop that drops nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import skep
from skep.clock import ManualClock
from skep.spec import load
from tests.worker.place import Place

CHAIN = """
app Chain {
  queue Orders {
    message_type {
      order: string
      customer: string
      cents: int
    }
    key: customer
    map_to: command Order.Price {
      order: order
      cents: cents
    }
    then: queue Invoices {
      order: order
      total: int(result.total)
    }
    then: queue Gifts when (cents > 1000) {
      to: customer
    }
  }
  queue Invoices {
    message_type {
      order: string
      total: int
    }
    then: queue Archive {
      what: "invoice " + order
    }
  }
  queue Gifts {
    message_type {
      to: string
    }
    retention {
      max_depth: 1
    }
  }
  queue Archive {}
}
"""


@dataclass
class Price:
    order: str
    cents: int


def chain(place: Place) -> skep.App:
    app = place.app(CHAIN)

    @app.command("Order.Price")
    def price(given: Price) -> dict[str, int]:
        return {"total": given.cents * 2}

    return app


async def test_what_follows_is_pushed_with_the_ack_from_queue_to_queue(place: Place) -> None:
    app = chain(place)
    place.client.push("Orders", {"order": "o-1", "customer": "c-1", "cents": 500}, partition="c-1")
    assert await place.work(app, at_least=2) == 2
    assert place.payloads("Invoices") == [{"order": "o-1", "total": 1000}]
    assert place.payloads("Archive") == [{"what": "invoice o-1"}]
    assert place.payloads("Gifts") == []
    [order], [archived] = place.client.messages("Orders"), place.client.messages("Archive")
    assert archived.trace_id == order.trace_id
    assert archived.partition == order.partition == "c-1"


async def test_a_message_that_is_done_twice_leads_on_once(place: Place) -> None:
    app = chain(place)
    place.client.push("Orders", {"order": "o-1", "customer": "c-1", "cents": 500})
    assert await place.work(app, at_least=2) == 2
    place.client.seek("Orders", "__QUEUE_MODE__", "beginning")
    assert await place.work(app, at_least=1) == 1  # the function again, and nothing after it
    assert place.payloads("Invoices") == [{"order": "o-1", "total": 1000}]


async def test_a_message_whose_follower_finds_no_room_comes_again_and_follows_once(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    app = chain(place)
    place.client.push("Gifts", {"to": "nobody"})
    place.client.push("Orders", {"order": "o-1", "customer": "c-1", "cents": 5000})
    await place.work(app)
    assert place.payloads("Invoices") == []  # all or nothing
    assert place.depth("Orders") == 1
    place.client.clear("Gifts")
    clock.advance(2)
    await place.work(app, at_least=2)
    assert (place.payloads("Invoices"), place.depth("Orders")) == ([{"order": "o-1", "total": 10_000}], 0)
    assert place.payloads("Gifts")[-1] == {"to": "c-1"}


async def test_a_follower_that_cannot_be_made_is_a_dead_letter_with_the_expression(place: Place) -> None:
    app = place.app(CHAIN)

    @app.command("Order.Price")
    def price(_given: Price) -> str:
        return "a string"

    place.client.push("Orders", {"order": "o-1", "customer": "c-1", "cents": 500})
    await place.work(app)
    [letter] = place.dead("Orders")
    assert letter.error is not None
    assert "then queue Invoices, field 'total'" in letter.error
    assert "`int(result.total)`" in letter.error
    assert "a string" in letter.error


LIMITED = """
app Limited {
  queue Calls {
    message_type {
      customer: string
      number: int
    }
    concurrency: 2
    batch: 10
    rate_limit {
      count: 2
      per: 10s
      key: customer
    }
    map_to: command Call.Make {
      customer: customer
      number: number
    }
  }
}
"""


async def test_a_key_over_its_limit_waits_in_order_and_lets_others_pass_and_uses_up_no_attempt(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    app = place.app(LIMITED)
    done: list[tuple[str, int, int]] = []
    changed = asyncio.Condition()

    @app.command("Call.Make")
    async def make(given: dict[str, object], message: skep.AsyncMessage) -> None:
        async with changed:
            done.append((str(given["customer"]), int(str(given["number"])), message.attempt))
            changed.notify_all()

    async def until(count: int) -> None:
        async with changed, asyncio.timeout(20):
            await changed.wait_for(lambda: len(done) >= count)

    for number in range(5):
        for customer in ("a", "b", "c", "d"):
            place.client.push("Calls", {"customer": customer, "number": number}, partition=customer)
    working = place.working(app)
    running = asyncio.create_task(working.run())
    await until(8)  # two of each: those who wait have given their places away
    assert Counter(customer for customer, _, _ in done) == dict.fromkeys("abcd", 2)
    for more in (12, 16, 20):
        clock.advance(5)
        await until(more)
        assert len(done) == more
    working.stop()
    await running
    for customer in "abcd":
        assert [entry for entry in done if entry[0] == customer] == [(customer, number, 1) for number in range(5)]
    assert place.depth("Calls") == 0


async def test_a_message_without_a_key_to_count_by_is_given_up_and_the_next_one_done(place: Place) -> None:
    app = place.app(LIMITED.replace("key: customer", "key: string(1 / number)"))
    done: list[object] = []

    @app.command("Call.Make")
    async def make(given: dict[str, object]) -> None:
        done.append(given["number"])

    place.client.push("Calls", [{"customer": "a", "number": 0}, {"customer": "a", "number": 1}])
    await place.work(app)
    assert done == [1]
    [letter] = place.dead("Calls")
    assert "`string(1 / number)`" in (letter.error or "")


def shares(place: Place, order: list[str]) -> skep.App:
    app = skep.App(load(
        """
        app Shared {
          queue Jobs {
            concurrency: 1
            batch: 2
            fairness: tenant
            map_to: command Job.Do {
              n: message.n
            }
          }
        }
        """, "shared.skep",
    ))  # fmt: skip

    @app.command("Job.Do")
    async def do(_given: dict[str, object], message: skep.AsyncMessage) -> None:
        order.append(message.client.settings.tenant)

    return app


async def test_tenants_take_turns_however_much_one_of_them_has(place: Place) -> None:
    base = place.client.settings.tenant
    tenants = [f"{base}-{name}" for name in ("big", "small", "tiny")]
    for tenant, count in zip(tenants, (20, 4, 1), strict=True):
        with skep.Client(place.url, tenant=tenant) as client:
            client.push("Jobs", [{"n": number} for number in range(count)])
    order: list[str] = []
    app = shares(place, order)
    assert await place.work(app, tenants=tenants, at_least=25) == 25
    # One batch of two in turn: the small ones are through after their own share, not after the big one's.
    assert Counter(order[:7]) == {tenants[0]: 4, tenants[1]: 2, tenants[2]: 1}
    assert order.index(tenants[2]) <= 4
    assert max(place for place, tenant in enumerate(order) if tenant == tenants[1]) <= 9


async def test_a_stop_finishes_what_was_begun_and_gives_back_the_rest(place: Place) -> None:
    app = place.app(CHAIN)
    begun: list[object] = []
    finished: list[object] = []
    working_on, release = asyncio.Event(), asyncio.Event()

    @app.command("Order.Price")
    async def price(given: dict[str, object]) -> dict[str, int]:
        begun.append(given["order"])
        working_on.set()
        await release.wait()
        finished.append(given["order"])
        return {"total": 1}

    place.client.push("Orders", [{"order": f"o-{n}", "customer": "c", "cents": 1} for n in range(4)])
    working = place.working(app)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(20):
        await working_on.wait()
    working.stop()
    release.set()
    await running
    assert begun == finished == ["o-0"]
    assert place.depth("Orders") == 3
    [back] = place.client.pop("Orders")
    assert back.json()["order"] == "o-1"
