"""What a run shows: a line per round and a live table while it goes on, and a verdict per promise at the end."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from torture.faults import MENU
from torture.round import Outcome
from torture.run import PROMISES, Totals, replay_command, told


class Progress:
    """Tells of rounds: as a table that is kept up to date where there is a terminal, else in lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def tell(self, outcome: Outcome, totals: Totals) -> None:
        done = f", {'; '.join(outcome.injected)}" if outcome.injected else ""
        verdict = f"{len(outcome.violations)} violations" if outcome.violations else "all promises kept"
        line = (
            f"round {outcome.plan.number}: {outcome.calls} calls, {outcome.unanswered} unanswered, "
            f"{outcome.pushed} messages, {outcome.delivered} deliveries{done}: {verdict}"
        )
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True)
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(Group(summary(totals), line), refresh=True)

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()


def summary(totals: Totals) -> Table:
    """The figures so far."""
    table = Table("what", "how many", title=f"torture of {totals.order.store}, seed {totals.order.seed}")
    table.columns[1].justify = "right"
    for name in ("rounds", "calls", "unanswered", "pushed", "delivered", "settled"):
        table.add_row(name, f"{getattr(totals, name):,}")
    for name, times in sorted(totals.faults.items()):
        table.add_row(f"fault {name}", f"{times:,}")
    table.add_row("violations", f"{totals.broken.total():,}")
    return table


def verdicts(totals: Totals) -> Table:
    """One line per promise, with how often it was put to the test."""
    table = Table("promise", "tried", "verdict")
    table.columns[1].justify = "right"
    for promise in PROMISES:
        table.add_row(promise, f"{totals.tried[promise]:,}", verdict(totals, promise))
    return table


def verdict(totals: Totals, promise: str) -> str:
    """Whether a promise was kept; one that nothing put to the test was not tried."""
    if totals.broken[promise]:
        return f"BROKEN, {totals.broken[promise]} times"
    return "kept" if totals.tried[promise] else "not tried"


def show(console: Console, totals: Totals) -> None:
    """The verdicts, and for each promise that was broken the calls that show it and the command that runs it again."""
    console.print(summary(totals))
    console.print(verdicts(totals))
    for violation in totals.witnesses:
        console.print(f"{violation.promise}: {violation.text}", highlight=False, soft_wrap=True)
        for call in violation.witness:
            console.print(f"  {told(call)}", highlight=False, soft_wrap=True, markup=False)
    if totals.failing is not None:
        console.print(f"again: {replay_command(totals.order, totals.failing)}", highlight=False, soft_wrap=True)


def as_json(totals: Totals) -> dict[str, Any]:
    """The same for programs."""
    figures = {
        name: getattr(totals, name)
        for name in ("rounds", "seconds", "calls", "unanswered", "pushed", "delivered", "settled")
    }
    return {
        "store": totals.order.store,
        "seed": totals.order.seed,
        **figures,
        "steps": dict(totals.steps),
        "faults": {name: totals.faults[name] for name in totals.order.faults},
        "promises": {
            promise: {
                "verdict": "broken" if totals.broken[promise] else verdict(totals, promise),
                "tried": totals.tried[promise],
                "violations": totals.broken[promise],
            }
            for promise in PROMISES
        },
        "violations": [
            {"promise": one.promise, "text": one.text, "witness": [told(call) for call in one.witness]}
            for one in totals.witnesses
        ],
        "again": None if totals.failing is None else replay_command(totals.order, totals.failing),
    }


def menu() -> Table:
    """The faults to choose from."""
    table = Table("fault", "stores", "what it does")
    for fault in MENU.values():
        table.add_row(fault.name, ", ".join(fault.stores), fault.description)
    return table
