"""The story, act by act: orders are placed, pushed twice, held by a worker that crashes, die, are replayed, and add up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import skep
from skep.cli.accounts import ACCOUNT, QUEUE
from skep.cli.demo import checks, shop
from skep.cli.demo.screen import group_table
from skep.cli.demo.stage import StoryStage
from skep.cli.demo.tables import into_spark
from skep.errors import Code

if TYPE_CHECKING:
    from skep.cli.demo.screen import StoryScreen
    from skep.cli.demo.server import DemoServer
    from skep.wire.groups import GroupFigures

PLACED_AT_ONCE = 8
PLACING_SECONDS = 0.2
"""The pause between two pushes of orders, so that there is something to watch."""
REPEATED = 10
CRASH_BATCH = 5
CRASH_LEASE_SECONDS = 3.0
RETURNED_AT_ONCE = 10
JOIN_SECONDS = 10.0


@dataclass(frozen=True)
class StoryResult:
    """A story that came to its end, and whether every check held."""

    stage: StoryStage
    held: bool


@contextmanager
def told(served: DemoServer, screen: StoryScreen, lake: str | None = None) -> Iterator[StoryResult]:
    """Tell the story, and run the pipelines on Spark. The workers go on until the ``with`` ends."""
    from stamina.instrumentation import set_on_retry_hooks

    set_on_retry_hooks([])  # retries are part of the story, not of its output
    with ExitStack() as stack:
        stack.enter_context(shop.staged_failures_unlogged())
        client = stack.enter_context(skep.Client(served.url))
        stage = StoryStage(served, client, screen)
        _open(stage)
        stack.enter_context(_at_work(shop.office(served.url)))
        _place(stage)
        _repeat(stage)
        crashed = _crash(stage)
        stack.enter_context(_at_work(shop.till(served.url, stage.bank)))
        _take_over(stage, crashed)
        _bury(stage)
        _fix(stage)
        _send_back(stage)
        held = _sum_up(stage)
        yield StoryResult(stage, into_spark(stage, lake) and held)


def keep_serving(stage: StoryStage) -> NoReturn:
    """Name some commands to try, and show the figures until Ctrl-C."""
    trace = next(stage.client.messages("shipments", preview=0)).trace_id
    order = '{"number": 900, "customer": "you", "amount": "1.00"}'
    stage.screen.act(
        "It keeps serving; Ctrl-C ends it and takes everything away. In another terminal:",
        stage.typed(f"push orders '{order}'"),
        stage.typed("tail shipments --from beginning"),
        stage.typed(f"trace {trace}"),
        stage.typed("stats payments"),
        stage.typed("lag"),
        f"or open {stage.served.url} for the dashboard, {stage.served.url}/docs for the API",
    )
    while True:
        stage.watch(1.0)


@contextmanager
def _at_work(worker: skep.Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(JOIN_SECONDS)


def _open(stage: StoryStage) -> None:
    stage.screen.act(
        "A shop opens",
        f"skep serve listens on {stage.served.url} (pid {stage.served.pid})",
        f"its messages are in SQLite, in {stage.served.folder}",
        "an order goes from orders to payments, and from there to shipments or refusals",
    )
    for queue, settings in shop.QUEUES.items():
        stage.client.configure(queue, **settings)


def _place(stage: StoryStage) -> None:
    count = len(stage.orders)
    stage.screen.act(
        f"Act 1: {count} orders are placed",
        "billing and audit are two groups: each gets every order",
        "a customer is a partition: its orders stay in line",
        "try: " + stage.typed("queue list"),
    )
    for start in range(0, count, PLACED_AT_ONCE):
        _push(stage, stage.orders[start : start + PLACED_AT_ONCE])
        stage.watch(PLACING_SECONDS)
    stage.watch_until(
        lambda groups: all(name in groups and groups[name].completed >= count for name in ("billing", "audit")),
        "billing",
    )


def _push(stage: StoryStage, orders: Sequence[shop.Order]) -> skep.Pushed:
    return stage.client.push("orders", [
        skep.NewMessage(order, partition=order.customer, transaction_id=f"order-{order.number}") for order in orders
    ])  # fmt: skip


def _repeat(stage: StoryStage) -> None:
    pushed = _push(stage, stage.orders[:REPEATED])
    stage.seen.duplicates_sent, stage.seen.duplicates_answered = REPEATED, len(pushed.duplicates)
    stage.screen.act(
        "Act 2: an answer got lost",
        f"so the shop pushes {REPEATED} orders again: {len(pushed.duplicates)} are duplicates, stored once",
    )
    stage.watch(1.0)


def _crash(stage: StoryStage) -> list[skep.Message]:
    messages = stage.client.pop("payments", group="bank", batch=CRASH_BATCH, lease_seconds=CRASH_LEASE_SECONDS)
    stage.seen.crashed = len(messages)
    stage.screen.act(
        "Act 3: a worker crashes",
        f"it took {len(messages)} payments and is gone; nobody else gets them for {CRASH_LEASE_SECONDS:g} seconds",
        "try: " + stage.typed("message list payments --group bank --state in_flight"),
    )
    stage.watch(1.0)
    return messages


def _take_over(stage: StoryStage, held: list[skep.Message]) -> None:
    stage.screen.act(
        "Act 4: the others go on",
        "the bank is busy at times: those payments fail and come again after a pause",
        f"some amounts cannot be read at all: after {shop.QUEUES['payments']['max_attempts']} attempts they are dead letters",
    )
    stage.watch_until(lambda groups: _idle(groups, "bank", len(stage.orders)), "the bank")
    results = stage.client.ack(*held)
    stage.seen.stale_acks = sum(result.code is Code.STALE_LEASE for result in results)
    stage.seen.taken_over = sum(_settled(stage, message) for message in held)
    stage.screen.say(
        f"all {stage.seen.taken_over} payments of the crashed worker came again, and others settled them",
        f"now it wakes up and acks them: {stage.seen.stale_acks} refused as {Code.STALE_LEASE}",
    )


def _settled(stage: StoryStage, message: skep.Message) -> bool:
    """Whether another worker has settled the messages of the crashed worker."""
    found = stage.client.messages("payments", group="bank", partition=message.partition, preview=0)
    return any(one.seq == message.seq and one.state in ("settled", "dead") for one in found)


def _idle(groups: dict[str, GroupFigures], name: str, pushed: int) -> bool:
    group = groups.get(name)
    return group is not None and group.pushed >= pushed and group.pending == group.in_flight == 0


def _bury(stage: StoryStage) -> None:
    letters = list(stage.client.dead_letters("payments"))
    stage.seen.died = len(letters)
    stage.screen.act(
        f"Act 5: {len(letters)} payments are dead letters",
        *[f"{one.transaction_id}: {_first_line(one.error)}, {one.attempts} attempts" for one in letters[:3]],
        "try: " + stage.typed("dlq list payments"),
    )
    stage.watch(2.0)


def _first_line(error: str | None) -> str:
    return (error or "").partition("\n")[0]


def _fix(stage: StoryStage) -> None:
    stage.bank.fixed = True
    replayed = stage.client.replay("payments")
    stage.seen.replayed = replayed.count
    stage.screen.act(
        "Act 6: the bank learns to read a comma",
        f"{replayed.count} dead letters go back to the group that gave them up, as skep dlq replay does",
    )
    count = len(stage.orders)
    stage.watch_until(lambda groups: _idle(groups, "bank", count + replayed.count), "the replay")
    stage.watch_until(
        lambda groups: (
            all(_idle(groups, name, 1) for name in ("parcels", "letters"))
            and groups["parcels"].completed + groups["letters"].completed >= count
        ),
        "shipping",
    )
    stage.seen.dead_left = len(list(stage.client.dead_letters("payments")))


def _send_back(stage: StoryStage) -> None:
    """Push returns. Those in an unknown currency are rejected at once, and stay dead letters."""
    client, sent = stage.client, shop.sent_back()
    client.push("returns", [skep.NewMessage(one, partition=one.customer) for one in sent])
    rejected, left = 0, len(sent)
    while left:
        for message in client.pop("returns", group="refunds", batch=RETURNED_AT_ONCE, wait_seconds=1.0):
            left -= 1
            try:
                shop.refund(message.as_(shop.Return))
            except LookupError as error:
                rejected += 1
                client.reject(message, error=str(error))
            else:
                client.ack(message)
    stage.screen.act(
        f"Act 7: {len(sent)} returns",
        f"{rejected} are in a currency nobody knows: to try again would not help, so they are rejected and stay dead letters",
    )
    stage.groups()


def _numbers(client: skep.Client, queue: str) -> list[int]:
    """The orders in the log of a queue, with repeats."""
    return [int((message.transaction_id or "").rpartition("-")[2]) for message in client.messages(queue, preview=0)]


def _sum_up(stage: StoryStage) -> bool:
    groups = stage.groups()
    client = stage.client
    shipped, refused = _numbers(client, "shipments"), _numbers(client, "refusals")
    placed = [order.number for order in stage.orders]
    found = checks.all_checks(groups, placed, shipped, refused, stage.seen, shop.POISON)
    stage.screen.act("What became of it")
    stage.screen.summary(group_table(groups, {**QUEUE, **ACCOUNT}))
    stage.screen.say(f"{len(placed)} orders placed = {len(shipped)} shipped + {len(refused)} refused", "")
    stage.screen.say(*[checks.line(check) for check in found])
    failed = [check for check in found if not check.held]
    stage.screen.say("", f"{len(failed)} of {len(found)} checks failed" if failed else f"all {len(found)} checks held")
    return not failed
