"""`skep bench webhooks`: signed webhooks, each stored once, beside plain pushes of the same payload, and a worker's commands.

The server is a process of its own on a fresh store with fsync on; the loader is another one, kept to one core. Rounds of what
is compared alternate, and the median round counts. What a request costs the server in CPU is told beside the rates, since it
says more than they do on a machine that others use too.
"""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from msgspec import Struct

from bench import commands as commands_bench
from bench import http, scripts
from bench.commands import cpu_seconds
from bench.http import SIZE, Subject, driven, fresh, latency, serving
from bench.loader import Driven, Load
from bench.report import Report, machine, middle
from skep.spec import load as load_spec
from skep.spec import to_json
from skep.testing.postgres import running_postgres

TARGETS = {"hook_of_push": ">= 0.60"}
CONNECTIONS = http.SINGLE_CONNECTIONS
SECRET = "a secret of the benchmark"  # noqa: S105 - it keeps nothing
ENVIRONMENT = {"BENCH_WEBHOOK_SECRET": SECRET}
SPEC = """
app Bench {
  queue Incoming {
    message_type {
      payload: json
      headers: map<string, string>
      source_ip: string
      received_at: time
    }
  }
  webhook Bench {
    queue: Incoming
    verify_hmac { header: "X-Signature", secret_env: "BENCH_WEBHOOK_SECRET" }
    keep_headers: ["user-agent"]
  }
}
"""
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rounds: int
    seconds: float
    command_rounds: int
    commands: int


QUICK = Scale(rounds=5, seconds=1.5, command_rounds=3, commands=5_000)
FULL = Scale(rounds=7, seconds=5, command_rounds=5, commands=20_000)


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the servers of the stores, one after the other."""
    scale = QUICK if quick else FULL
    report = Report("webhooks", machine())
    report.notes["load"] = (
        f"payloads of {SIZE} bytes from {CONNECTIONS} connections, fsync on; hooks are signed by HMAC, each is stored once by the "
        "hash of its body, and its message has a type"
    )
    with TemporaryDirectory(prefix="skep-bench-") as folder:
        if "sqlite" in stores:
            with serving(f"{folder}/served.db", Path(folder), ENVIRONMENT) as (port, pid):
                await measure(Subject("sqlite", port, pid, ""), scale, report)
        if "postgres" in stores:
            with running_postgres() as server, serving(server.create_database(), Path(folder), ENVIRONMENT) as at:
                await measure(Subject("postgres", *at, ""), scale, report)
    return report


async def measure(subject: Subject, scale: Scale, report: Report) -> None:
    """All that is measured of one server."""
    apply(subject.port)
    for step in STEPS:
        started = time.perf_counter()
        await step(subject, scale, report)
        log.info("measured", store=subject.name, step=step.__name__, seconds=round(time.perf_counter() - started, 1))


def apply(port: int, spec: str = SPEC) -> None:
    """Let the server have a spec."""
    app = load_spec(spec, "bench.skep")
    url = f"http://127.0.0.1:{port}/api/v1/apps/{app.name}"
    asked = urllib.request.Request(url, to_json(app).encode(), {"Content-Type": "application/json"}, method="PUT")
    with urllib.request.urlopen(asked, timeout=30):  # noqa: S310 - the URL is ours
        pass


async def hook_of_push(subject: Subject, scale: Scale, report: Report) -> None:
    """Signed webhooks, beside plain single pushes."""
    hooks, pushes = [], []
    hook_cpu, push_cpu = [], []
    await driven(subject, Load(scripts.push, (fresh(), 1, SIZE), CONNECTIONS, seconds=0.5))
    for number in range(scale.rounds):
        hook = Load(scripts.hook, ("Bench", SECRET, SIZE, number), CONNECTIONS, seconds=scale.seconds)
        push = Load(scripts.push, (fresh(), 1, SIZE), CONNECTIONS, seconds=scale.seconds)
        hooked, spent = await _measured(subject, hook)
        hook_cpu.append(spent)
        pushed, spent = await _measured(subject, push)
        push_cpu.append(spent)
        hooks.append(hooked.requests_per_second)
        pushes.append(pushed.requests_per_second)
        report.notes[f"{subject.name}.hook"] = latency(hooked)
        report.notes[f"{subject.name}.push"] = latency(pushed)
    report.rates[f"{subject.name}.hook"] = middle(hooks)
    report.rates[f"{subject.name}.push"] = middle(pushes)
    report.ratios[f"{subject.name}.hook_of_push"] = middle([a / b for a, b in zip(hooks, pushes, strict=True)])
    report.notes[f"{subject.name}.cpu"] = (
        f"{middle(hook_cpu) * 1e6:.0f} us of the server for a hook, {middle(push_cpu) * 1e6:.0f} for a push"
    )


async def commands(subject: Subject, scale: Scale, report: Report) -> None:
    """Commands of the entity store, done by a worker."""
    await commands_bench.measure(subject, scale.command_rounds, scale.commands, SIZE, report)


STEPS = (hook_of_push, commands)


async def _measured(subject: Subject, wanted: Load) -> tuple[Driven, float]:
    """What came of a load, and the seconds of CPU that each request cost the server."""
    before = cpu_seconds(subject.pid)
    result = await driven(subject, wanted)
    return result, (cpu_seconds(subject.pid) - before) / result.requests
