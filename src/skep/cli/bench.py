"""`skep bench`: figures beside the ceiling."""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Literal

import structlog
from cyclopts import App, Parameter

from skep.loop import run

bench_app = App(name="bench", help="Measure Skep on this machine; ratios are within one run.")


@bench_app.command
def engine(
    *,
    quick: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    store: Literal["sqlite", "postgres", "both"] = "both",
) -> None:
    """Push, pop and ack through the engine, beside bare tables and a SKIP LOCKED queue.

    Parameters
    ----------
    quick
        End within 60 seconds, with fewer rounds and one row of the matrix.
    as_json
        Print one JSON object and nothing else on stdout.
    store
        Which store to measure.
    """
    from skep.bench import engine as bench
    from skep.bench.report import print_tables

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    report = run(bench.run(["sqlite", "postgres"] if store == "both" else [store], quick))
    if as_json:
        sys.stdout.write(report.json() + "\n")
    else:
        print_tables(report, bench.TARGETS)
