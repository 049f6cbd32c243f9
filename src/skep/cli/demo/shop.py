"""The shop: its orders, its queues, and the workers that carry an order from one to the next.

An order goes from `orders` to `payments`, and from there to `shipments` or `refusals`. Every step acks and pushes in one
transaction. So an order takes each step once, although messages are delivered at least once.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation

from msgspec import Struct

import skep
from skep.model.queue_settings import QueueOptions

SEED = 6632
ORDERS = 120
CUSTOMERS = 12
FLAKY = 10
POISON = 6
DECLINED = 8

CHARGE_SECONDS = 0.08
"""How long the bank takes: long enough to watch."""

QUEUES: dict[str, QueueOptions] = {
    "orders": {},
    "payments": {"max_attempts": 3, "initial_backoff_ms": 400, "max_backoff_ms": 800},
    "shipments": {},
    "refusals": {},
    "returns": {},
}
"""The queues of the shop, with the settings that differ from the defaults."""

GROUPS = {
    "orders": ("billing", "audit"),
    "payments": ("bank",),
    "shipments": ("parcels",),
    "refusals": ("letters",),
    "returns": ("refunds",),
}
"""The groups of each queue. The two groups of `orders` each see every order."""


RETURNS = 24
RATES = {"EUR": 1.0, "USD": 0.9, "CHF": 1.05}


class Return(Struct):
    """Goods that a customer sends back. Some currencies have no rate: only a person can mend that."""

    number: int
    customer: str
    currency: str


class Order(Struct):
    """An order of a customer. The first version of the bank cannot read an amount with a comma."""

    number: int
    customer: str
    amount: str
    card: str = "good"


class BankBusyError(Exception):
    """The bank did not answer this time."""


class UnreadableAmountError(ValueError):
    """The bank cannot read an amount."""


@contextmanager
def staged_failures_unlogged() -> Iterator[None]:
    """Keep the failures that belong to the story out of the log. All others are logged."""
    staged = (BankBusyError, UnreadableAmountError)

    def is_real(record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], staged)

    log = logging.getLogger("skep.worker")
    log.addFilter(is_real)
    try:
        yield
    finally:
        log.removeFilter(is_real)


def placed_orders() -> list[Order]:
    """The orders, the same in every run: most are good, some are poison, some have a card that is declined."""
    chance = random.Random(SEED)
    numbers = list(range(1, ORDERS + 1))
    special = chance.sample(numbers, POISON + DECLINED)
    poison, declined = set(special[:POISON]), set(special[POISON:])
    return [
        Order(
            number,
            f"customer-{chance.randint(1, CUSTOMERS)}",
            f"{chance.randint(1, 90)}{',' if number in poison else '.'}{chance.randint(0, 99):02}",
            "declined" if number in declined else "good",
        )
        for number in numbers
    ]


def sent_back() -> list[Return]:
    """The returns, the same in every run: every fourth has an unknown currency."""
    chance = random.Random(SEED)
    return [
        Return(
            number,
            f"customer-{chance.randint(1, CUSTOMERS)}",
            "XTS" if number % 4 == 0 else chance.choice(sorted(RATES)),
        )
        for number in range(1, RETURNS + 1)
    ]


def refund(found: Return) -> float:
    """The rate of a return; raises when there is none."""
    if found.currency not in RATES:
        raise LookupError(f"return {found.number}: there is no rate for {found.currency!r}")
    return RATES[found.currency]


class Bank:
    """The bank: which amounts it can read, and which orders it still has to fail once."""

    def __init__(self) -> None:
        good = [order.number for order in placed_orders() if order.card == "good" and "," not in order.amount]
        self._to_fail = set(random.Random(SEED).sample(good, FLAKY))
        self._lock = threading.Lock()
        self.fixed = False

    def charge(self, order: Order) -> bool:
        """Whether the card was charged; raises when the bank is busy, or cannot read the amount."""
        time.sleep(CHARGE_SECONDS)
        try:
            Decimal(order.amount.replace(",", ".") if self.fixed else order.amount)
        except InvalidOperation:
            raise UnreadableAmountError(f"cannot read the amount {order.amount!r}") from None
        with self._lock:
            if order.number in self._to_fail:
                self._to_fail.remove(order.number)
                raise BankBusyError("the bank is busy")
        return order.card == "good"


def office(url: str) -> skep.Worker:
    """The workers without the bank: billing and audit read the same orders, parcels and letters end the story."""
    worker = skep.Worker(url)

    @worker.on("orders", group="billing", type=Order)
    def bill(order: Order, message: skep.Message) -> None:
        with message.transaction() as tx:
            tx.push(
                "payments", order, partition=message.partition, trace_id=message.trace_id,
                transaction_id=f"payment-{order.number}",
            )  # fmt: skip

    @worker.on("orders", group="audit", type=Order)
    @worker.on("shipments", group="parcels", type=Order)
    @worker.on("refusals", group="letters", type=Order)
    def note_down(order: Order) -> None:
        del order

    return worker


def till(url: str, bank: Bank) -> skep.Worker:
    """The workers that take payments to the bank."""
    worker = skep.Worker(url)

    @worker.on("payments", group="bank", type=Order, batch=4, concurrency=6)
    def pay(order: Order, message: skep.Message) -> None:
        outcome = "shipments" if bank.charge(order) else "refusals"
        with message.transaction() as tx:
            tx.push(
                outcome, order, partition=message.partition, trace_id=message.trace_id,
                transaction_id=f"{outcome}-{order.number}",
            )  # fmt: skip

    return worker
