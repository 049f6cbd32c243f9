"""`./skep torture`: a real server under load and faults, and a verdict per promise."""

from __future__ import annotations

import random
import sys
from typing import Annotated

from cyclopts import App, Parameter

from skep.errors import Code, SkepError
from skep.runtime.loop import run as run_loop
from torture.layers import COMPILED, CURE, can_compile
from torture.site import StoreName

torture_app = App(
    name="skep torture",
    help_format="plaintext",
    help="Run a server under load and faults on this machine, and check every promise from the recorded history.",
)

MOST_SEED = 1_000_000
MOST_BULK = 100
"""A drain pops so many hundreds at once: as many as the server gives."""


@torture_app.default
def torture(
    *,
    seconds: Annotated[float, Parameter(help="How long; a round that has begun is finished.")] = 60.0,
    seed: Annotated[int | None, Parameter(help="The seed of the plan; another one each time by default.")] = None,
    faults: Annotated[str, Parameter(help="Faults to inject, divided by commas; or all.")] = "",
    store: Annotated[StoreName, Parameter(help="The store below the server.")] = "sqlite",
    first_round: Annotated[int, Parameter(help="The number of the first round: part of the seed.")] = 0,
    rounds: Annotated[int | None, Parameter(help="So many rounds, whatever time they take.")] = None,
    clients: Annotated[int, Parameter(help="Clients at a time.")] = 6,
    steps: Annotated[int, Parameter(help="Steps of each client in a round.")] = 60,
    injections: Annotated[int, Parameter(help="Faults in a round.")] = 3,
    processes: Annotated[
        int | None, Parameter(help="So many of the clients are processes of their own: 0, or 2 with the fault client.")
    ] = None,
    bulk: Annotated[int, Parameter(help="Batches so many times as large, for long histories; up to 100.")] = 1,
    servers: Annotated[int, Parameter(help="Servers of one store: several need PostgreSQL.")] = 1,
    workers: Annotated[int | None, Parameter(help="Processes of each server: 1, or 2 with the fault process.")] = None,
    spark: Annotated[
        bool, Parameter(negative=(), help="A Spark job takes part; with the faults driver and executor in any case.")
    ] = False,
    shrink: Annotated[bool, Parameter(help="After a violation, look for a smaller plan that shows one.")] = True,
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print the result as one JSON object and nothing else on stdout.")
    ] = False,
    list_: Annotated[bool, Parameter(name="--list", negative=(), help="Show the faults, and do nothing.")] = False,
) -> int:
    """Run rounds of a seeded load, check each, and exit with 1 when a promise was broken."""
    from rich.console import Console

    from torture import report
    from torture.faults import OF_SEVERAL_PROCESSES, OF_SPARK
    from torture.run import Order
    from torture.run import run as run_rounds
    from torture.run import shrink as shrink_plan

    if list_:
        Console().print(report.menu())
        return 0
    console = Console(stderr=True)
    if servers > 1 and store == "sqlite":
        raise SkepError(Code.INVALID_REQUEST, "several servers need a PostgreSQL: add --store postgres")
    chosen = chosen_faults(faults, store, has_workers=(workers or 1) > 1, has_spark=spark)
    if spark or OF_SPARK & {*chosen}:
        check_spark(chosen)
    if faults == "all" and (missing := left_out(store)):
        console.print(f"left out: {', '.join(missing)}; {CURE}", highlight=False)
    if not 1 <= bulk <= MOST_BULK:
        raise SkepError(Code.INVALID_REQUEST, f"--bulk is {bulk}: choose from 1 to {MOST_BULK}")
    if seed is None:
        seed = random.randrange(MOST_SEED)
    if processes is None:
        processes = 2 if "client" in chosen else 0
    if workers is None:
        workers = 2 if OF_SEVERAL_PROCESSES & {*chosen} else 1
    order = Order(
        seed, store, chosen, seconds, first_round, rounds, clients, steps, injections, processes, bulk, servers, workers,
        spark,
    )  # fmt: skip
    console.print(f"torture of {store}, seed {seed}, faults: {', '.join(chosen) or 'none'}", highlight=False)
    progress = report.Progress(console)
    try:
        totals = run_loop(run_rounds(order, progress.tell))
    finally:
        progress.end()
    if totals.failing is not None and shrink:
        say = lambda line: console.print(f"shrinking: {line}", highlight=False)  # noqa: E731 - a name for one line
        totals.failing = run_loop(shrink_plan(order, totals.failing, say))
    if as_json:
        sys.stdout.write(report.result_of(totals).text())
    else:
        report.show(Console(), totals)
    return 1 if totals.failing is not None else 0


def check_spark(chosen: tuple[str, ...]) -> None:
    """INVALID_REQUEST when there is no Spark here, or when it cannot go with the faults."""
    from skep.cli.pipeline import missing_for_spark
    from torture.faults import LOSING

    if losing := [name for name in chosen if name in LOSING]:
        # The checkpoint has batches that the server has lost, and nothing is promised for a checkpoint of another time than the store.
        raise SkepError(Code.INVALID_REQUEST, f"Spark does not go with the fault {losing[0]}: leave one of them out")
    if (missing := missing_for_spark()) is not None:
        raise SkepError(Code.INVALID_REQUEST, missing)


def chosen_faults(
    text: str, store: StoreName, *, has_workers: bool = False, has_spark: bool = False
) -> tuple[str, ...]:
    """The faults that a list of names means; INVALID_REQUEST for one that is not there, or not for this store.

    All are those that lose nothing, and need no other server than the usual one, unless it ``has_workers``, and no Spark job, unless the run ``has_spark``.
    """
    from torture.faults import LOSING, MENU, OF_SEVERAL_PROCESSES, OF_SPARK

    fitting = [name for name, fault in MENU.items() if store in fault.stores]
    missing = left_out(store)
    if text == "all":
        unfit = LOSING if has_workers else LOSING | OF_SEVERAL_PROCESSES
        unfit = unfit if has_spark else unfit | OF_SPARK
        return tuple(name for name in fitting if name not in missing and name not in unfit)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in fitting:
            cure = f"choose from {', '.join(fitting)}, or all"
            raise SkepError(Code.INVALID_REQUEST, f"there is no fault {name!r} for {store}: {cure}")
        if name in missing:
            raise SkepError(Code.INVALID_REQUEST, f"the fault {name!r} cannot be had on this machine: {CURE}")
    return names


def left_out(store: StoreName) -> list[str]:
    """The faults for this store that this machine cannot have, since they need layers."""
    from torture.faults import MENU

    if can_compile():
        return []
    return [name for name, fault in MENU.items() if store in fault.stores and not COMPILED.isdisjoint(fault.layers)]
