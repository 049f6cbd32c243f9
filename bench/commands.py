"""How many commands a worker does: messages that become events of entities, settled in batches, over HTTP.

The worker is this process; the server is another one, on a fresh store with fsync on. What each side spends in CPU for a command is
told beside the rate, since on a machine with few cores, or a busy one, they are in each other's way.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec

import skep
from bench.http import Subject, fresh
from bench.report import Report, middle
from skep.client.settings import client_settings
from skep.spec import load as load_spec
from skep.worker.working import Working, WorkOptions

ENTITIES = 1_000
PUSHED_AT_ONCE = 1_000
SPEC = """
app Commands {
  queue Alerts {
    message_type {
      incident: string
      kind: string
      title: string
      urgency: string
      occurred_at: time
      details: json
    }
    key: incident
    map_to: command Incident.Record {
      incident: incident
      kind: kind
      title: title
      severity: urgency == "high" ? "critical" : "minor"
      at: occurred_at
    }
  }
  entity Incident {
    id: input.incident
    state {
      title: string = ""
      severity: enum(minor, critical) = minor
      status: string = ""
      changes: int = 0
      changed_at: time?
    }
    command Record {
      input {
        incident: string
        kind: string
        title: string
        severity: enum(minor, critical)
        at: time
      }
      guard: state.status != "resolved" || input.kind != "resolved"
      emits Opened when (state.changes == 0) {
        title: input.title
      }
      emits Changed {
        severity: input.severity
        status: input.kind
        at: input.at
      }
    }
    event Opened {
      title: event.title
    }
    event Changed {
      severity: event.severity
      status: event.status
      changed_at: event.at
      changes: state.changes + 1
    }
  }
}
"""


class Round(msgspec.Struct, frozen=True):
    """What one round came to: commands a second, and for each of them seconds of CPU of the worker and of the server."""

    rate: float
    worker_cpu: float
    server_cpu: float


async def one_round(subject: Subject, commands: int, size: int) -> Round:
    """Push that many messages for a tenant of its own, then time how long a worker takes for them."""
    url, tenant = f"http://127.0.0.1:{subject.port}", fresh()
    await asyncio.to_thread(_push, url, tenant, commands, size)
    app = load_spec(SPEC, "commands.skep")
    working = Working(app, {}, client_settings(url, {"tenant": tenant}), WorkOptions(until_empty=True))
    started, mine, theirs = time.perf_counter(), time.process_time(), cpu_seconds(subject.pid)
    done = await working.run()
    seconds = time.perf_counter() - started
    assert done == commands, f"{done} of {commands} commands were done"
    return Round(
        commands / seconds, (time.process_time() - mine) / commands, (cpu_seconds(subject.pid) - theirs) / commands
    )


async def measure(subject: Subject, rounds: int, commands: int, size: int, report: Report) -> None:
    """Rounds of commands; the median counts."""
    async with skep.AsyncClient(f"http://127.0.0.1:{subject.port}") as client:
        await client.apply(load_spec(SPEC, "commands.skep"))
    done = [await one_round(subject, commands, size) for _ in range(rounds)]
    report.rates[f"{subject.name}.commands"] = middle([one.rate for one in done])
    report.notes[f"{subject.name}.commands"] = (
        f"{middle([one.worker_cpu for one in done]) * 1e6:.0f} us of the worker and "
        f"{middle([one.server_cpu for one in done]) * 1e6:.0f} us of the server for a command"
    )


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _push(url: str, tenant: str, commands: int, size: int) -> None:
    with skep.Client(url, tenant=tenant) as client:
        for start in range(0, commands, PUSHED_AT_ONCE):
            numbers = range(start, min(start + PUSHED_AT_ONCE, commands))
            client.push("Alerts", [skep.NewMessage(_alert(n, size), partition=f"i-{n % ENTITIES}") for n in numbers])


def _alert(number: int, size: int) -> dict[str, object]:
    alert: dict[str, object] = {
        "incident": f"i-{number % ENTITIES}", "kind": "acknowledged", "title": "the database is down", "urgency": "high",
        "occurred_at": "2026-03-01T10:00:00.123Z", "details": "",
    }  # fmt: skip
    alert["details"] = "x" * max(0, size - len(msgspec.json.encode(alert)))
    return alert
