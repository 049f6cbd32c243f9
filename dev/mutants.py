"""Apply each mutant to a copy of the checkout, run its tests, and tell who survived: `./skep test --mutants [--list] [--json FILE] [WORD …]`.

With words, only mutants whose table or name has one of them. A mutant is killed when a test fails. When nothing could be tested, since
the copy does not even start, the mutant is broken: it proves nothing. A test that does not end fails, and the verdict says so: on a busy
machine that may be no proof. Should pytest itself not end, that counts as killed, too, but by no test. With ``--json`` the result goes to a file as well: what became of each mutant, by which test.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.mutants import Mutant  # noqa: E402
from tests.mutants.tables import TABLES  # noqa: E402
from tests.support.endless import LATE  # noqa: E402

COPIES = 2
"""How many run at once."""
LONGEST_SECONDS = 300
LONGEST_TEST_SECONDS = 60
KILLED, SURVIVED, EQUIVALENT, BROKEN = "killed", "SURVIVED", "equivalent", "BROKEN"
PASSED, FAILED = 0, 1


class Verdict(NamedTuple):
    """What became of a mutant. ``by`` is the test that killed it; ``is_late``: by not ending in time."""

    table: str
    name: str
    outcome: str
    seconds: float = 0.0
    by: str | None = None
    is_late: bool = False


def main(arguments: list[str]) -> int:
    """Run the mutants that the arguments name; 1 when one survived or is broken."""
    asked = parsed(arguments)
    words = [word.lower() for word in asked.words]
    chosen = [
        (table, mutant)
        for table, mutants in TABLES.items()
        for mutant in mutants
        if not words or any(word in f"{table} {mutant.name}".lower() for word in words)
    ]
    if asked.list:
        for table, mutant in chosen:
            print(f"{table}: {mutant.name} ({mutant.file})")
        return 0
    started = time.monotonic()
    verdicts: list[Verdict] = []
    with copies() as free, ThreadPoolExecutor(COPIES) as threads:
        for verdict in threads.map(lambda one: judged(free, *one), chosen):
            verdicts.append(verdict)
            if asked.json is not None:  # each time, so that a run that is cut off has told what it found
                asked.json.write_text(as_json(verdicts), encoding="utf-8")
    outcomes = [verdict.outcome for verdict in verdicts]
    print(f"\n{len(verdicts)} mutants in {time.monotonic() - started:.0f} s: ", end="")
    print(", ".join(f"{outcomes.count(kind)} {kind}" for kind in (KILLED, EQUIVALENT, SURVIVED, BROKEN)))
    return int(SURVIVED in outcomes or BROKEN in outcomes or not outcomes)


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The options, and the words."""
    parser = argparse.ArgumentParser(
        prog="./skep test --mutants", description="Faults in a copy of the code that the tests must notice."
    )
    parser.add_argument("--list", action="store_true", help="say which there are, and run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each to this file")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only those whose table or name has one of the words")
    return parser.parse_args(arguments)


def as_json(verdicts: Sequence[Verdict]) -> str:
    """A line for each mutant."""
    lines = [
        json.dumps({**one._asdict(), "outcome": one.outcome.lower(), "seconds": round(one.seconds)}) for one in verdicts
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


@contextmanager
def copies() -> Iterator[SimpleQueue[Path]]:
    """Copies of the checkout's files, as they are now, for mutants to be applied to."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="skep-mutants-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # PostgreSQL has an account of its own
        for number in range(COPIES):
            copy = Path(folder) / str(number)
            for name in listed.stdout.splitlines():
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, copy / name)
            compile_sources(copy)
            free.put(copy)
        yield free


def compile_sources(copy: Path) -> None:
    """Compile all modules, so that no run has to. A module counts as changed by its text: a fault may change neither time nor size."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "checked-hash", "src"]
    subprocess.run(command, cwd=copy, check=True)


def judged(free: SimpleQueue[Path], table: str, mutant: Mutant) -> Verdict:
    """Run one mutant and print its verdict."""
    if mutant.equivalent is not None:
        print(f"{EQUIVALENT:10}       {table}: {mutant.name}: {mutant.equivalent}", flush=True)
        return Verdict(table, mutant.name, EQUIVALENT)
    copy = free.get()
    started = time.monotonic()
    outcome, said = run(copy, mutant)
    free.put(copy)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE) if outcome == KILLED else None
    is_late = outcome == KILLED and (found is None or LATE in said)
    verdict = Verdict(table, mutant.name, outcome, time.monotonic() - started, found and found[1], is_late)
    by = f"{verdict.by or 'no test'}{', which did not end in time' if is_late else ''}"
    print(f"{outcome:10} {verdict.seconds:4.0f} s {table}: {mutant.name} ({by})", flush=True)
    if outcome != KILLED:
        print(said[-3000:], flush=True)
    return verdict


def run(copy: Path, mutant: Mutant) -> tuple[str, str]:
    """Apply a mutant to a copy, run its tests there, and take the fault back."""
    file = copy / "src/skep" / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.apply(text), encoding="utf-8")
    try:
        status, said = pytest(copy, shlex.split(mutant.killed_by))
    finally:
        file.write_text(text, encoding="utf-8")
    if status == PASSED:
        return SURVIVED, said
    return KILLED if status is None or (status == FAILED and "\nFAILED " in said) else BROKEN, said


def pytest(copy: Path, arguments: list[str]) -> tuple[int | None, str]:
    """The status of pytest, None when it did not end, and the end of what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += [f"--longest={LONGEST_TEST_SECONDS}", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONPYCACHEPREFIX", None)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )  # fmt: skip
        try:
            status: int | None = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        with suppress(
            ProcessLookupError
        ):  # what a test that failed has left behind, too: it would go on with the next mutant's code
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return status, output.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
