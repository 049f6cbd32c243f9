"""What a run shows: a line per round and a live table while it goes on, and a verdict per promise at the end."""

from __future__ import annotations

from msgspec import to_builtins
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from skep import __version__
from torture.faults import MENU
from torture.result import Broken, PromiseResult, Result
from torture.round import Outcome
from torture.run import PROMISES, Totals, command, replay_command, told


class Progress:
    """Tells of rounds: as a table that is kept up to date where there is a terminal, else in lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def tell(self, outcome: Outcome, totals: Totals) -> None:
        done = f", {'; '.join(outcome.injected)}" if outcome.injected else ""
        done += f"; {outcome.lost} messages lost by failovers, which is not promised otherwise" if outcome.lost else ""
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
    if totals.lost:
        table.add_row("lost by failovers, not promised", f"{totals.lost:,}")
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


def result_of(totals: Totals) -> Result:
    """The same for programs, and for the ledger."""
    assert totals.machine is not None
    figures = ("rounds", "calls", "unanswered", "pushed", "longest_history", "delivered", "settled", "lost")
    found, is_modified = totals.code
    return Result(
        version=__version__,
        commit=found,
        is_modified=is_modified,
        began_at=totals.began_at,
        command=command(totals.order),
        machine=totals.machine,
        store=totals.order.store,
        seed=totals.order.seed,
        options=to_builtins(totals.order),
        seconds=round(totals.seconds, 1),
        **{name: getattr(totals, name) for name in figures},
        steps=dict(totals.steps),
        faults={name: totals.faults[name] for name in totals.order.faults},
        promises={promise: _promise(totals, promise) for promise in PROMISES},
        violations=[Broken(one.promise, one.text, [told(call) for call in one.witness]) for one in totals.witnesses],
        memory_mib=totals.scale.result(),
        again=None if totals.failing is None else replay_command(totals.order, totals.failing),
    )


def _promise(totals: Totals, promise: str) -> PromiseResult:
    broken = totals.broken[promise]
    return PromiseResult("broken" if broken else verdict(totals, promise), totals.tried[promise], broken)


def menu() -> Table:
    """The faults to choose from."""
    table = Table("fault", "stores", "what it does")
    for fault in MENU.values():
        table.add_row(fault.name, ", ".join(fault.stores), fault.description)
    return table
