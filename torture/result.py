"""The result of a run, as `--json` prints it and `torture/results` keeps it: one line per field, so that a difference can be read.

`dev/ledger.py` writes docs/ledger.md from these files. A field that is added needs a default, since older results do not have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class Machine(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run ran on, and with what; ``postgres`` is None on SQLite."""

    cores: int
    memory_mib: int
    system: str
    python: str
    sqlite: str
    postgres: str | None = None


class Weight(Struct, frozen=True, forbid_unknown_fields=True):
    """Memory in MiB after the first round, the middle one and the last, and the most that was seen at any time."""

    first: float
    middle: float
    last: float
    largest: float


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """What the server's processes and the torture's own weighed."""

    server: Weight
    torture: Weight


class PromiseResult(Struct, frozen=True, forbid_unknown_fields=True):
    """The verdict on a promise: kept, broken, or not tried."""

    verdict: str
    tried: int
    violations: int


class Broken(Struct, frozen=True, forbid_unknown_fields=True):
    """The shortest witness of a broken promise."""

    promise: str
    text: str
    witness: list[str]


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """One run. ``commit`` is None outside of a clone, ``is_modified`` says that the code was not what the commit has."""

    version: str
    commit: str | None
    is_modified: bool
    began_at: str
    command: str
    machine: Machine
    store: str
    seed: int
    options: dict[str, Any]
    rounds: int
    seconds: float
    calls: int
    unanswered: int
    pushed: int
    longest_history: int
    """Messages pushed in the largest round: each round is one history."""
    delivered: int
    settled: int
    steps: dict[str, int]
    faults: dict[str, int]
    promises: dict[str, PromiseResult]
    violations: list[Broken]
    memory_mib: Memory
    again: str | None = None
    lost: int = 0
    """Messages answered as stored that failovers to an asynchronous standby lost, which is not promised otherwise."""

    def text(self) -> str:
        """The result as JSON, one line per field."""
        fields = msgspec.to_builtins(self)
        lines = [f"  {_json(name)}: {_json(value)}" for name, value in fields.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def read(path: Path) -> Result:
    """The result that a file holds."""
    return msgspec.json.decode(path.read_bytes(), type=Result)
