"""A run: rounds until the time is over, each judged by itself, so that memory does not grow with time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field, structs

from torture.check import shortest
from torture.faults import MENU, layers_of
from torture.history import Call, Violation
from torture.machine import commit, machine
from torture.memory import Scale
from torture.result import Machine
from torture.round import Outcome, Plan, Round
from torture.site import Site, StoreName

PROMISES = tuple(f"I{number}" for number in range(1, 16))
MOST_TOLD = 1_000
"""Characters of a call's request or answer that a report shows."""


class Order(Struct, frozen=True):
    """What was asked for."""

    seed: int
    store: StoreName = "sqlite"
    faults: tuple[str, ...] = ()
    seconds: float = 60.0
    first_round: int = 0
    rounds: int | None = None
    clients: int = 6
    steps: int = 60
    injections: int = 3
    processes: int = 0
    bulk: int = 1
    servers: int = 1
    workers: int = 1
    spark: bool = False

    def site(self, folder: Path) -> Site:
        """What it runs on."""
        layers = layers_of(self.faults)
        return Site(self.store, folder, layers, servers=self.servers, server_workers=self.workers)

    def plan(self, number: int) -> Plan:
        given = (self.clients, self.steps, self.faults, self.injections, self.processes, self.bulk, self.spark)
        return Plan(self.seed, number, *given)


class Totals(Struct):
    """All rounds added up, and the shortest witness of each promise that was broken."""

    order: Order
    began_at: str = ""
    machine: Machine | None = None
    code: tuple[str | None, bool] = (None, False)
    """The commit at the start, and whether the code was another."""
    scale: Scale = field(default_factory=Scale)
    rounds: int = 0
    seconds: float = 0.0
    calls: int = 0
    unanswered: int = 0
    pushed: int = 0
    longest_history: int = 0
    delivered: int = 0
    settled: int = 0
    lost: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    witnesses: list[Violation] = field(default_factory=list)
    failing: Plan | None = None

    def add(self, outcome: Outcome) -> None:
        self.rounds += 1
        for name in ("calls", "unanswered", "pushed", "delivered", "settled", "lost"):
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        self.longest_history = max(self.longest_history, outcome.pushed)
        self.steps += outcome.steps
        self.faults += outcome.faults
        self.tried.update(outcome.tried)
        self.broken.update(violation.promise for violation in outcome.violations)
        if outcome.violations:
            self.witnesses = shortest([*self.witnesses, *outcome.violations])
            self.failing = self.failing or outcome.plan


async def run(order: Order, tell: Callable[[Outcome, Totals], None]) -> Totals:
    """Run rounds until the time is over or a promise is broken; at least one."""
    totals = Totals(order, datetime.now(UTC).isoformat(timespec="seconds"))
    with TemporaryDirectory(prefix="skep-torture-", ignore_cleanup_errors=True) as folder:
        async with order.site(Path(folder)) as site:
            totals.machine = await asyncio.to_thread(machine, site)
            totals.code = await asyncio.to_thread(commit)
            watching = asyncio.create_task(totals.scale.watch(site))
            try:
                await _rounds(site, totals, tell)
            finally:
                watching.cancel()
    return totals


async def _rounds(site: Site, totals: Totals, tell: Callable[[Outcome, Totals], None]) -> None:
    order, number, started = totals.order, totals.order.first_round, time.monotonic()
    is_over = False
    while not is_over and totals.failing is None:
        outcome = await Round(site, order.plan(number), MENU).run()
        totals.add(outcome)
        totals.scale.round_ended(site)
        totals.seconds = time.monotonic() - started
        tell(outcome, totals)
        number += 1
        is_over = totals.rounds >= order.rounds if order.rounds else totals.seconds >= order.seconds


async def shrink(order: Order, plan: Plan, tell: Callable[[str], None]) -> Plan:
    """The smallest plan found that still fails: fewer steps, then fewer clients, then fewer faults.

    A plan fixes the calls and the points of the faults, and not how they interleave: each size gets a few tries.
    """
    smallest = plan
    for change in (_half("steps"), _half("clients"), *([_half("injections")] if plan.faults else [])):
        while (smaller := change(smallest)) is not None and await _fails(order, smaller, tell):
            smallest = smaller
    return smallest


def _half(name: str) -> Callable[[Plan], Plan | None]:
    def change(plan: Plan) -> Plan | None:
        value = getattr(plan, name)
        return structs.replace(plan, **{name: value // 2}) if value > 1 else None

    return change


TRIES = 3


async def _fails(order: Order, plan: Plan, tell: Callable[[str], None]) -> bool:
    for _ in range(TRIES):
        with TemporaryDirectory(prefix="skep-torture-", ignore_cleanup_errors=True) as folder:
            async with order.site(Path(folder)) as site:
                outcome = await Round(site, plan, MENU).run()
        tell(f"{plan.clients} clients, {plan.steps} steps: {len(outcome.violations)} violations")
        if outcome.violations:
            return True
    return False


def told(call: Call) -> str:
    """A call in one line, for people."""
    ended = "no answer" if call.ended is None else f"{(call.ended - call.started) / 1e6:.1f} ms"
    line = f"{call.client} {call.verb} at {call.started / 1e9:.3f} s ({ended}): {call.request}"
    with suppress(TypeError):
        line = f"{line[:MOST_TOLD]} -> {str(call.answer)[:MOST_TOLD]}"
    return line


def command(order: Order) -> str:
    """The command that runs all of it again; what is not as usual is named."""
    usual = Order(order.seed)
    given = {name: getattr(order, name) for name in order.__struct_fields__}
    named = {name: value for name, value in given.items() if name == "seed" or value != getattr(usual, name)}
    return f"./skep torture{options(named)}"


def options(named: Mapping[str, object]) -> str:
    """Options as the command takes them, each with a space before it."""
    text = ""
    for name, value in named.items():
        said = ",".join(value) if isinstance(value, tuple) else value
        text += f" --{name.replace('_', '-')}" + ("" if value is True else f" {said}")
    return text


def replay_command(order: Order, plan: Plan) -> str:
    """The command that runs a plan again."""
    faults = f" --faults {','.join(plan.faults)} --injections {plan.injections}" if plan.faults else ""
    usual = Order(plan.seed)
    given = {"processes": plan.processes, "bulk": plan.bulk, "servers": order.servers, "workers": order.workers}
    given["spark"] = plan.spark
    others = options({name: value for name, value in given.items() if value != getattr(usual, name)})
    return (
        f"./skep torture --store {order.store} --seed {plan.seed}{faults} --first-round {plan.number} --rounds 1"
        f" --clients {plan.clients} --steps {plan.steps}{others}"
    )
