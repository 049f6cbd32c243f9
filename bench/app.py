"""`./skep bench`: figures beside the ceiling."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Literal

import structlog
from cyclopts import App, Parameter

from skep.runtime.loop import run

if TYPE_CHECKING:
    from rich.table import Table

    from bench.report import Report

bench_app = App(
    name="skep bench", help_format="plaintext", help="Measure Skep on this machine; ratios are within one run."
)


Quick = Annotated[bool, Parameter(help="A short run: fewer rounds, and one row of the matrix.")]
AsJson = Annotated[bool, Parameter(name="--json", help="Print one JSON object and nothing else on stdout.")]
Messages = Annotated[int, Parameter(help="How many messages; 5,000,000, or 200,000 with --quick, when not given.")]
Systems = Annotated[
    tuple[
        Literal[
            "sqlite", "sqlite_workers", "postgres", "postgres_workers", "redis", "rabbitmq", "nats", "pgmq", "table"
        ],
        ...,
    ],
    Parameter(help="Which systems to measure; all that are installed, when not given.", negative=()),
]
Cases = Annotated[
    tuple[
        Literal[
            "queues",
            "partitions",
            "groups",
            "settled",
            "leases",
            "scheduled",
            "retention",
            "replay",
            "purge",
            "waiters",
        ],
        ...,
    ],
    Parameter(help="Which cases to measure; all, when not given.", negative=()),
]
Queues = Annotated[int, Parameter(help="How many queues have messages that night.")]
NightMessages = Annotated[int, Parameter(name="--messages", help="How many messages have come since the last night.")]
Gigabytes = Annotated[int, Parameter(help="How large their payloads are together.")]
Stores = Annotated[Literal["sqlite", "postgres", "both"], Parameter(help="Which store to measure.")]


@bench_app.command
def engine(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """Push, pop and ack through the engine, beside bare tables and a SKIP LOCKED queue."""
    from bench import engine as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def http(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """A running server under load, beside the same engine without HTTP."""
    from bench import http as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def client(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """The Python client beside the same requests by hand, on a server of each store, and against a server that does nothing."""
    from bench import client as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def webhooks(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """Signed webhooks, each stored once, beside plain pushes of the same payload."""
    from bench import webhooks as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def qos(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """Single pushes that are answered at once (QoS 0), beside those that wait for the disk."""
    from bench import qos as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def doors(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """The interfaces of others (Amazon SQS), beside our own with the same batches."""
    from bench import doors as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def spark(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """Queues read and written by Spark, beside Parquet, JDBC and bare pushes; --quick ends within 180 seconds."""
    from bench import spark as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def overload(*, quick: Quick = False, as_json: AsJson = False) -> None:
    """More pushes than the server can do, with admission and without, on PostgreSQL."""
    from bench import overload as bench

    _measure(lambda: bench.run(quick), bench.TARGETS, as_json)


@bench_app.command
def encryption(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both") -> None:
    """Messages through an encrypted queue, beside the same through a plain one."""
    from bench import encryption as bench

    _measure(lambda: bench.run(_stores(store), quick), bench.TARGETS, as_json)


@bench_app.command
def soak(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "sqlite", messages: Messages = 0) -> None:
    """Very many messages through one server, and its memory after each tenth of them."""
    from bench import soak as bench

    count = messages or (bench.QUICK_MESSAGES if quick else bench.MESSAGES)
    _measure(lambda: bench.run(_stores(store), count), bench.TARGETS, as_json)


@bench_app.command
def peers(*, quick: Quick = False, as_json: AsJson = False, system: Systems = ()) -> None:
    """Skep beside Redis, RabbitMQ, NATS, pgmq and a table in PostgreSQL, where they are installed; --quick takes a few minutes."""
    from bench.peers import run as bench

    _measure(lambda: bench.run(system, quick), bench.TARGETS, as_json, bench.table_of_systems)


@bench_app.command
def size(*, quick: Quick = False, as_json: AsJson = False, store: Stores = "both", case: Cases = ()) -> None:
    """What a bystander's pushes feel of many queues, leases, waiters and chores, beside few; --quick takes some minutes."""
    from bench.size import run as bench

    _measure(lambda: bench.run(_stores(store), quick, case), bench.TARGETS, as_json)


@bench_app.command
def night(
    *,
    quick: Quick = False,
    as_json: AsJson = False,
    queues: Queues = 10_000,
    messages: NightMessages = 10**9,
    gigabytes: Gigabytes = 10_000,
) -> None:
    """What the archive of a night takes on 1, 10 and 100 executors: a simulation of what is measured here on PostgreSQL."""
    from bench.night import run as bench
    from bench.night.model import Night

    meant = Night(queues, messages, gigabytes * 10**9)
    _measure(lambda: bench.run(meant, quick), bench.TARGETS, as_json, bench.table_of_nights)


def _stores(store: str) -> list[str]:
    return ["sqlite", "postgres"] if store == "both" else [store]


def _measure(
    bench: Callable[[], Coroutine[Any, Any, Report]],
    targets: dict[str, str],
    as_json: bool,
    table: Callable[[Report], Table] | None = None,
) -> None:
    from bench.report import print_tables

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    report = run(bench())
    if as_json:
        sys.stdout.write(report.json() + "\n")
    else:
        print_tables(report, targets, table(report) if table is not None else None)
