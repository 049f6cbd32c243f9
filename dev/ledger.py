"""Writes the tables of docs/ledger.md, from the results of runs and the findings in torture/results.

`python dev/ledger.py` writes them; `tests/docs/test_ledger.py` fails when somebody forgot to. The text around the tables is written by hand.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from torture.faults import MENU  # noqa: E402
from torture.result import Result, Weight, read  # noqa: E402
from torture.run import PROMISES  # noqa: E402

PAGE = ROOT / "docs" / "ledger.md"
RESULTS = ROOT / "torture" / "results"
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
NONE = "none"
LONG_SECONDS, SEVERAL_ROUNDS = 600, 3
"""A run of at least so long, and of so many rounds, shows whether memory grows: a round keeps its history until its end."""
MILLION = 1_000_000
"""A history of at least so many messages has a row of its own."""
HARMS = {
    "lost": ("I1",),
    "doubled": ("I3",),
    "reordered": ("I4",),
    "stranded": ("I8", "I9"),
    "accounts wrong": ("I12",),
}
"""What a reader asks about a long history, and the promises whose violations say it."""
_PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PROMISE = re.compile(r"^## (I\d+)\n\n\*\*(.+?)\*\*", re.MULTILINE | re.DOTALL)

Runs = dict[str, Result]
"""Results by the names of their files."""


class Finding(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that was wrong, and the commit that mended it."""

    kind: str
    what: str
    found_by: str
    commit: str
    promises: list[str] = []


KINDS = ("bug", "gap", "checker")
"""Of findings: a fault of Skep, a rule that no test held, and a mistake of the checker or the load."""


def runs() -> Runs:
    return {path.stem: read(path) for path in sorted(RESULTS.glob("*.json"))}


def findings() -> list[Finding]:
    found = tomllib.loads((RESULTS / "findings.toml").read_text(encoding="utf-8"))
    return msgspec.convert(found["finding"], list[Finding])


def with_tables(page: str, results: Runs, found: Sequence[Finding]) -> str:
    """The page with each table as it should be."""
    return _PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]](results, found)}{place[3]}", page)


def rows_of(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """The runs by fault and store, a run with several faults in the row of each; every fault of the menu is there, with or without runs."""
    rows: dict[tuple[str, str], list[Result]] = {(NONE, store): [] for store in STORES}
    rows |= {(name, store): [] for name, fault in MENU.items() for store in fault.stores}
    for result in results:
        for name in result.faults or (NONE,):
            rows[name, result.store].append(result)
    return rows


def _faults(results: Runs, _: Sequence[Finding]) -> str:
    head = (
        "fault",
        "store",
        "runs",
        "alone",
        "injected",
        "messages",
        "longest history",
        "deliveries",
        "calls without an answer",
        "violations",
    )
    lines = []
    for (name, store), of_row in rows_of(results.values()).items():
        if of_row:
            alone = sum(len(one.faults) < 2 for one in of_row)
            injected = sum(one.faults.get(name, 0) for one in of_row)
            figures = [len(of_row), alone, injected, _sum(of_row, "pushed"), max(one.longest_history for one in of_row)]
            figures += [_sum(of_row, "delivered"), _sum(of_row, "unanswered"), _violations(of_row)]
            lines.append([_fault(name), STORES[store], *(f"{figure:,}" for figure in figures)])
        else:
            lines.append([_fault(name), STORES[store], "not yet run", *[""] * 7])
    return _table(head, lines)


def _millions(results: Runs, _: Sequence[Finding]) -> str:
    """The runs with a history of a million messages, and what these lost."""
    lines = []
    for name, one in results.items():
        if one.longest_history >= MILLION:
            faults = ", ".join(f"`{fault}` {count:,}" for fault, count in one.faults.items()) or "none"
            figures = [one.pushed, one.delivered, one.unanswered]
            figures += [sum(one.promises[key].violations for key in keys) for keys in HARMS.values()]
            figures += [_violations([one])]
            lines.append([_file(name), STORES[one.store], faults, *(f"{figure:,}" for figure in figures)])
    head = ("run", "store", "faults, times", "messages", "deliveries", "calls without an answer")
    return _table((*head, *HARMS, "all violations"), lines)


def _promises(results: Runs, _: Sequence[Finding]) -> str:
    texts = dict(_PROMISE.findall((ROOT / "docs" / "promises.md").read_text(encoding="utf-8")))
    lines = []
    for promise in PROMISES:
        verdicts = [one.promises[promise] for one in results.values()]
        tried = [verdict for verdict in verdicts if verdict.tried]
        figures = (len(tried), sum(one.tried for one in tried), sum(one.violations for one in verdicts))
        text = texts[promise].replace("\n", " ")
        lines.append([f"[{promise}](promises.md#{promise.lower()})", text, *(f"{figure:,}" for figure in figures)])
    return _table(("promise", "", "runs that tried it", "times tried", "violations"), lines)


def _tried(results: Runs, _: Sequence[Finding]) -> str:
    """How often each promise was tried under each fault."""
    lines = []
    for (name, store), of_row in rows_of(results.values()).items():
        if of_row:
            lines.append([_fault(name), STORES[store], *(_cell(of_row, promise) for promise in PROMISES)])
    return _table(("fault", "store", *PROMISES), lines)


def _cell(of_row: Sequence[Result], promise: str) -> str:
    verdicts = [one.promises[promise] for one in of_row]
    broken = sum(one.violations for one in verdicts)
    tried = short(sum(one.tried for one in verdicts))
    return f"**{tried}, broken {broken:,} times**" if broken else tried


def short(figure: int) -> str:
    """A figure in few characters, rounded down: 950, 12k, 3.4M."""
    if figure < 1_000:
        return str(figure)
    return f"{figure // 1_000}k" if figure < 1_000_000 else f"{figure // 100_000 / 10}M"


def _memory(results: Runs, _: Sequence[Finding]) -> str:
    lines = []
    for name, result in results.items():
        if result.seconds >= LONG_SECONDS and result.rounds >= SEVERAL_ROUNDS:
            weights = (_weights(result.memory_mib.server), _weights(result.memory_mib.torture))
            figures = [f"{result.seconds / 60:.0f}", f"{result.rounds:,}", f"{result.pushed:,}"]
            lines.append([_file(name), STORES[result.store], *figures, *weights])
    return _table(("run", "store", "minutes", "rounds", "messages", "server, MiB", "torture, MiB"), lines)


def _weights(weight: Weight) -> str:
    return f"{weight.first:.0f}, {weight.middle:.0f}, {weight.last:.0f}; at most {weight.largest:.0f}"


def _runs(results: Runs, _: Sequence[Finding]) -> str:
    lines = []
    for name, one in results.items():
        commit = "none" if one.commit is None else f"`{one.commit[:8]}`{' and changes' if one.is_modified else ''}"
        verdict = f"{_violations([one]):,} violations" if one.violations else "kept"
        figures = [f"{one.seconds:,.0f}", f"{one.rounds:,}", f"{one.pushed:,}"]
        lines.append([_file(name), one.version, commit, *figures, verdict, f"`{one.command}`"])
    return _table(("run", "version", "commit", "seconds", "rounds", "messages", "promises", "again"), lines)


def _machines(results: Runs, _: Sequence[Finding]) -> str:
    counted: dict[tuple[str, ...], int] = {}
    for one in results.values():
        machine = one.machine
        below = f"PostgreSQL {machine.postgres}" if machine.postgres else f"SQLite {machine.sqlite}"
        key = (str(machine.cores), f"{machine.memory_mib:,}", machine.system, machine.python, below)
        counted[key] = counted.get(key, 0) + 1
    lines = [[*key, str(count)] for key, count in counted.items()]
    return _table(("cores", "memory, MiB", "system", "Python", "store", "runs"), lines)


def _findings(kind: str) -> Callable[[Runs, Sequence[Finding]], str]:
    def table(_: Runs, found: Sequence[Finding]) -> str:
        lines = [
            [one.what, ", ".join(one.promises), one.found_by, f"`{one.commit}`"] for one in found if one.kind == kind
        ]
        return _table(("what was wrong", "promises", "found by", "mended in"), lines)

    return table


TABLES: dict[str, Callable[[Runs, Sequence[Finding]], str]] = {
    "faults": _faults,
    "millions": _millions,
    "promises": _promises,
    "tried": _tried,
    "memory": _memory,
    "machines": _machines,
    "runs": _runs,
    **{kind: _findings(kind) for kind in KINDS},
}


def _fault(name: str) -> str:
    return "no fault" if name == NONE else f"`{name}`"


def _file(name: str) -> str:
    return f"[{name}](../torture/results/{name}.json)"


def _sum(results: Iterable[Result], name: str) -> int:
    return sum(getattr(one, name) for one in results)


def _violations(results: Iterable[Result]) -> int:
    return sum(promise.violations for one in results for promise in one.promises.values())


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return "None yet.\n"
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *lines])


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), runs(), findings()), encoding="utf-8")
