"""The Python client beside the same requests by hand, on the same server, in rounds that alternate.

By hand means a bare connection per caller and as little Python as a loader can do with (`SkepLineWithIds`). The requests are the
same: the client gives each message a transaction id, so that a push whose answer is lost can be made again. What those ids cost the
server is told apart, by the same load without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from bench.apart import Loader
from bench.load import fresh_queue
from bench.peers import loads
from bench.peers.lines import Way
from bench.peers.loads import Outcome
from bench.peers.systems import STARTERS, Running
from bench.report import Report, middle, percentile

SIZE = 300
BATCH = 100
CALLERS = 4
WARM_MESSAGES = 2_000
WARM_TURNS = 20
LINES = {"raw_without_ids": "skep", "raw": "skep_ids", "client": "skep_client"}
STORES = ("sqlite", "postgres")
RATIOS = {
    f"{ratio}.{store}": target
    for ratio, target in (("client_of_raw_cycle", ">= 0.80"), ("client_of_raw_latency", "<= 1.20"))
    for store in STORES
}


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rounds: int
    seconds: float
    turns: int


QUICK = Scale(rounds=3, seconds=2, turns=200)
FULL = Scale(rounds=7, seconds=5, turns=1_000)
Found = dict[tuple[str, str], list[Outcome]]


def beside_raw(stores: Sequence[str], quick: bool, report: Report) -> None:
    """Measure on a fresh server of each store."""
    scale = QUICK if quick else FULL
    report.notes["cycle"] = (
        f"messages of {SIZE} bytes pushed, popped and acked a second, batches of {BATCH}, {CALLERS} + {CALLERS} callers, fsync on"
    )
    report.notes["latency"] = "one caller: a push, a pop and an ack of one message, together"
    for store in stores:
        with TemporaryDirectory(prefix="skep-bench-") as folder, ExitStack() as running:
            system = running.enter_context(STARTERS[store](Path(folder)))
            loader = running.enter_context(closing(Loader()))
            tell(store, measured(system, loader, scale), report)


def measured(system: Running, loader: Loader, scale: Scale) -> Found:
    """All rounds of all lines, each on a queue of its own."""
    found: Found = {}
    for line in LINES:
        loader.run(loads.cycle, way(system, line), CALLERS, scale.seconds, WARM_MESSAGES)
    for _ in range(scale.rounds):
        for line in LINES:
            most = 1 << 62
            outcome = loader.run(loads.cycle, way(system, line), CALLERS, scale.seconds, most)
            found.setdefault(("cycle", line), []).append(outcome)
        for line in LINES:
            outcome = loader.run(loads.in_turn, way(system, line), scale.turns, WARM_TURNS)
            found.setdefault(("latency", line), []).append(outcome)
    return found


def way(system: Running, line: str) -> Way:
    """The line to a queue that nobody has used."""
    return Way(LINES[line], system.address, fresh_queue().name, BATCH, SIZE, system.pids)


def tell(store: str, found: Found, report: Report) -> None:
    """Rates of the median rounds, and the ratios of the rounds that ran side by side."""
    for line in LINES:
        cycles, turns = found["cycle", line], found["latency", line]
        report.rates[f"cycle.{line}.{store}"] = middle([rate(one) for one in cycles])
        report.rates[f"latency_p50_ms.{line}.{store}"] = middle([p50(one) * 1e3 for one in turns])
        report.rates[f"own_cpu_us_per_cycle.{line}.{store}"] = middle(
            [one.loader_cpu / one.popped * 1e6 for one in cycles]
        )
        report.rates[f"own_cpu_us_one_by_one.{line}.{store}"] = middle(
            [one.loader_cpu / len(one.latencies) * 1e6 for one in turns]  # which are those that were timed
        )
        report.rates[f"server_cpu_us_per_cycle.{line}.{store}"] = middle(
            [one.system_cpu / one.popped * 1e6 for one in cycles]
        )
        lost = sum(one.lost for one in (*cycles, *turns))
        assert not lost, f"{lost} messages of {line} were lost on {store}"
    report.ratios[f"client_of_raw_cycle.{store}"] = compared(found, "cycle", rate, "client", "raw")
    report.ratios[f"client_of_raw_latency.{store}"] = compared(found, "latency", p50, "client", "raw")
    report.ratios[f"ids_of_none_cycle.{store}"] = compared(found, "cycle", rate, "raw", "raw_without_ids")


def compared(found: Found, load: str, figure: Callable[[Outcome], float], mine: str, other: str) -> float:
    """The median of what the rounds say that ran side by side."""
    return middle([figure(a) / figure(b) for a, b in zip(found[load, mine], found[load, other], strict=True)])


def rate(outcome: Outcome) -> float:
    """Cycles a second."""
    return outcome.popped / outcome.seconds


def p50(outcome: Outcome) -> float:
    """The median time, in seconds."""
    return percentile(outcome.latencies, 0.5)
