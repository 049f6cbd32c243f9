"""The counters of several processes on one port, added up. Each process can answer for all.

Each process notes its counters in a file of a folder that they share, about once a second, so the counters of the others may be
that old. The counters of an ended process are kept in one file for all ended processes, so a total never falls.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
from msgspec import Struct

from skep.observe.failures import Noted
from skep.observe.histogram import Histogram
from skep.observe.metrics import HookCounts, Meter, QueueCounts

NOTE_SECONDS = 1.0
"""How often a process notes its counters."""
ENDED = "ended"
NAMES_KEPT = 100
"""How many names of ended processes are kept: more than can end while somebody reads."""
_COUNTS = tuple(QueueCounts.__slots__)
_HOOK_COUNTS = tuple(HookCounts.__slots__)


class CounterNote(Struct, array_like=True):
    """The counters of a process; ``names`` are the processes whose counters these are."""

    names: list[str] = []
    queues: list[tuple[str, str, list[int]]] = []
    routes: list[tuple[str, str, dict[int, int]]] = []
    latencies: list[tuple[str, list[int], float]] = []
    hooks: list[tuple[str, list[int]]] = []
    failures: list[Noted] = []


class Tally:
    """One process's part of the count, and the sum of all."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def note(self, meter: Meter) -> None:
        """Write the counters of this process for the others."""
        _write(self._folder / self._name, _note([self._name], meter))

    def total(self, meter: Meter) -> Meter:
        """The counters of this process as they are, and those of the others as they were last noted."""
        whole = Meter(meter.queue_labels)
        _add(whole, _note([], meter))
        others = {path.name: _read(path) for path in sorted(self._folder.iterdir()) if not path.suffix}
        # Read after the others: a process that ends meanwhile is in here, or was read above, or both.
        ended = _read(self._folder / ENDED)
        _add(whole, ended)
        for name, note in others.items():
            if name not in (self._name, ENDED, *ended.names):
                _add(whole, note)
        return whole


def keep_of_ended(folder: Path, name: str, queue_labels: int) -> None:
    """Add the counters of an ended process to the file of all ended processes."""
    path = folder / name
    ended = _read(folder / ENDED)
    whole = Meter(queue_labels)
    _add(whole, ended)
    _add(whole, _read(path))
    _write(folder / ENDED, _note([*ended.names, name][-NAMES_KEPT:], whole))
    path.unlink(missing_ok=True)


def _note(names: list[str], meter: Meter) -> CounterNote:
    return CounterNote(
        names,
        [(tenant, queue, [getattr(c, count) for count in _COUNTS]) for (tenant, queue), c in meter.queues.items()],
        [(method, path, route.by_status) for (method, path), route in meter.routes.items()],
        [(verb, histogram.buckets, histogram.seconds) for verb, histogram in meter.latencies.items()],
        [(name, [getattr(counts, count) for count in _HOOK_COUNTS]) for name, counts in meter.hooks.items()],
        meter.failures.notes(),
    )


def _add(meter: Meter, note: CounterNote) -> None:
    for tenant, queue, counts in note.queues:
        _add_counts(meter.queue(tenant, queue), _COUNTS, counts)
    for hook, counts in note.hooks:
        _add_counts(meter.hook(hook), _HOOK_COUNTS, counts)
    for method, path, by_status in note.routes:
        route = meter.route(method, path, verb="")
        for status, count in by_status.items():
            route.by_status[status] = route.by_status.get(status, 0) + count
    meter.latencies.pop("", None)
    meter.failures.merge(note.failures)
    for verb, buckets, seconds in note.latencies:
        histogram = meter.latencies.setdefault(verb, Histogram())
        histogram.buckets = [mine + other for mine, other in zip(histogram.buckets, buckets, strict=True)]
        histogram.seconds += seconds


def _add_counts(mine: object, names: tuple[str, ...], counts: list[int]) -> None:
    for name, count in zip(names, counts, strict=True):
        setattr(mine, name, getattr(mine, name) + count)


def _write(path: Path, note: CounterNote) -> None:
    """Write the file whole or not at all, since another process may read it. A full disk costs only figures."""
    with contextlib.suppress(OSError):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.msgpack.encode(note))
        fresh.replace(path)


def _read(path: Path) -> CounterNote:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=CounterNote)
    except (OSError, msgspec.DecodeError):
        return CounterNote()
